"""Whole lives with machines that are made and never serve."""

from __future__ import annotations

import pytest

from tests.controllers.lives import late, live, stillborn, unanswered


@pytest.mark.parametrize("life", [stillborn, late, unanswered])
def test_a_life_with_a_failing_machine_ends_well(tmp_path, life):
    def begin(scene, watch):
        running = scene.start("--disable-leader-election", faults=watch.note_write)

        def end():
            assert running.is_alive

        return end

    live(tmp_path / "life", life, begin)
