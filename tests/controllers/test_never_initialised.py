"""Nodes that launch and never initialise are replaced."""

from __future__ import annotations

import pytest

from tests.controllers.cluster_runs import (
    lose_launch_answers,
    remove_startup_taint_late,
    repair_unready_node,
    replace_by_incomplete_node,
    replace_by_unready_node,
    run_cluster,
)
from tests.support.run_selection import others_as_cluster_runs

REPAIR = "--feature-gates=NodeRepair=true"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("life", "arguments"),
    others_as_cluster_runs(
        [
            (replace_by_unready_node, ()),
            (repair_unready_node, (REPAIR,)),
            (replace_by_incomplete_node, ()),
            (remove_startup_taint_late, ()),
            (lose_launch_answers, ()),
        ],
        first=2,
    ),
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_run_with_a_failing_node_converges(tmp_path, life, arguments):
    def begin(scene, watch):
        running = scene.start("--disable-leader-election", *arguments, faults=watch.note_write)

        def end():
            assert running.is_alive

        return end

    run_cluster(tmp_path / "life", life, begin)
