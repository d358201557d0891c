"""Whole lives with machines that are made and never serve."""

from __future__ import annotations

import pytest

from tests.controllers.lives import incomplete, late, live, repaired, stillborn, unanswered

REPAIR = "--feature-gates=NodeRepair=true"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("life", "arguments"),
    [(stillborn, ()), (incomplete, ()), (late, ()), (unanswered, ()), (repaired, (REPAIR,))],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_life_with_a_failing_machine_ends_well(tmp_path, life, arguments):
    def begin(scene, watch):
        running = scene.start("--disable-leader-election", *arguments, faults=watch.note_write)

        def end():
            assert running.is_alive

        return end

    live(tmp_path / "life", life, begin)
