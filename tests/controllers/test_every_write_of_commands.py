"""Every write of a command is failed in every way.

Marks, replacements, deletions, what is taken back when a replacement fails: as in
`test_every_write`, a cluster is run once, and then once for each of these writes and each way.
"""

from __future__ import annotations

import sys

import pytest

from tests.controllers.cluster_runs import (
    replace_drifted_nodes,
    roll_back_without_capacity,
    run_cluster,
)
from tests.controllers.test_every_write import WAYS, WriteFailure, WriteRecord

WITHOUT_ELECTION = "--disable-leader-election"
EXECUTION = "karpenter_core.controllers.disruption.execution"
RUNS = {"renewed": (replace_drifted_nodes, 16), "refused": (roll_back_without_capacity, 14)}
"""Each with the number of writes for commands that it has had."""


class CommandWriteRecord(WriteRecord):
    """Notes which writes are those of commands: orders, and what the queue writes itself."""

    def __init__(self):
        super().__init__()
        self.commanded = set()

    async def __call__(self, op):
        await super().__call__(op)
        is_order = (op.verb, op.kind.kind) == ("create", "NodeClaim")
        if op.stage == "request" and (is_order or EXECUTION in callers()):
            self.commanded.add(len(self.writes) - 1)


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


RECORDED_RUNS = {}
"""Recorded writes of each run; they are the same each time."""


def record_run(folder, run):
    return run_with_faults(folder, run, lambda _clock: CommandWriteRecord())


@pytest.mark.parametrize("run", RUNS)
def test_the_writes_of_commands_are_all_seen(tmp_path, run):
    record = record_run(tmp_path / "run", run)
    assert len(record.commanded) >= RUNS[run][1]


@pytest.mark.cluster_runs
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("run", RUNS)
def test_a_run_converges_after_any_failed_write_of_a_command(tmp_path, run, way):
    if run not in RECORDED_RUNS:
        RECORDED_RUNS[run] = record_run(tmp_path / "record", run)
    record = RECORDED_RUNS[run]
    for number in sorted(record.commanded.intersection(record.numbers(WAYS[way]))):
        strike = run_with_faults(
            tmp_path / f"{number}", run, lambda clock, n=number: WriteFailure(n, WAYS[way], clock)
        )
        assert strike.hits, f"{record.writes[number]} was not repeated"
