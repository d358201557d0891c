"""Every write of a command is failed in every way.

Marks, replacements, deletions, what is taken back when a replacement fails: as in
`test_every_write`, the run of a cluster is continued once for each of these writes and each way.
"""

from __future__ import annotations

import sys

import pytest

from tests.controllers.cluster_runs import (
    replace_drifted_nodes,
    roll_back_without_capacity,
    run_cluster,
)
from tests.controllers.write_failures import WAYS, EveryWriteFailure
from tests.support.drawn_faults import drawn_faults
from tests.support.forked_runs import ForkedRuns

WITHOUT_ELECTION = "--disable-leader-election"
EXECUTION = "karpenter_core.controllers.disruption.execution"
RUNS = {"renewed": (replace_drifted_nodes, 16), "refused": (roll_back_without_capacity, 14)}
"""Each with the number of writes for commands that it has had."""


def is_commanded(op):
    """Return whether a write is one of commands: an order, or what the queue writes itself."""
    is_order = (op.verb, op.kind.kind) == ("create", "NodeClaim")
    return is_order or EXECUTION in callers()


def callers():
    """Return the modules of all callers that wait for this call."""
    frame, result = sys._getframe(1), set()
    while frame is not None:
        result.add(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
    return result


def run_with_faults(folder, run, faults):
    """Run a cluster with faults; return the faults or the recorded writes."""
    kept = []

    def begin(scene, watch):
        kept.append(faults(scene.cluster.clock))

        async def both(op):
            await watch.note_write(op)
            await kept[0](op)

        scene.start(WITHOUT_ELECTION, faults=both)
        return lambda: None

    run_cluster(folder, RUNS[run][0], begin)
    return kept[0]


class CommandedWrites:
    """Counts the writes of commands of an undisturbed run."""

    def __init__(self, _clock):
        self.count = 0

    async def __call__(self, op):
        self.count += op.stage == "request" and is_commanded(op)


@pytest.mark.parametrize("run", RUNS)
def test_the_writes_of_commands_are_all_seen(tmp_path, run):
    assert run_with_faults(tmp_path / "run", run, CommandedWrites).count >= RUNS[run][1]


@pytest.mark.cluster_runs
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("run", RUNS)
def test_a_run_converges_after_any_failed_write_of_a_command(tmp_path, run, way, pytestconfig):
    folder = tmp_path / "run"
    drawn = drawn_faults(pytestconfig, f"command {run}", list(WAYS).index(way))
    forks = ForkedRuns(folder, drawn)
    failures = lambda clock: EveryWriteFailure(WAYS[way], clock, forks, is_commanded)  # noqa: E731
    forks.play(lambda: run_with_faults(folder, run, failures))
    assert len(forks.names) >= RUNS[run][1]
