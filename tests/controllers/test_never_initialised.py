"""Nodes that launch and never initialise are replaced."""

from __future__ import annotations

import pytest

from tests.controllers.lives import incomplete, late, live, never_initialised, repaired, unanswered

REPAIR = "--feature-gates=NodeRepair=true"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("life", "arguments"),
    [
        (never_initialised, ()),
        (incomplete, ()),
        (late, ()),
        (unanswered, ()),
        (repaired, (REPAIR,)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_run_with_a_failing_node_converges(tmp_path, life, arguments):
    def begin(scene, watch):
        running = scene.start("--disable-leader-election", *arguments, faults=watch.note_write)

        def end():
            assert running.is_alive

        return end

    live(tmp_path / "life", life, begin)
