"""Every write of a command is failed in every way.

Marks, replacements, deletions, what is taken back when a replacement fails: as in
`test_every_write`, a life is played once, and then once for each of these writes and each way.
"""

from __future__ import annotations

import sys

import pytest

from tests.controllers.lives import live, refused, renewed
from tests.controllers.test_every_write import WAYS, WriteFailure, WriteRecord

WITHOUT_ELECTION = "--disable-leader-election"
EXECUTION = "karpenter_core.controllers.disruption.execution"
LIVES = {"renewed": (renewed, 16), "refused": (refused, 14)}
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
    frame, found = sys._getframe(1), set()
    while frame is not None:
        found.add(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
    return found


def played(folder, life, faults):
    """Play a life; return what was struck or taped."""
    kept = []

    def begin(scene, watch):
        kept.append(faults(scene.cluster.clock))

        async def both(op):
            await watch.note_write(op)
            await kept[0](op)

        scene.start(WITHOUT_ELECTION, faults=both)
        return lambda: None

    live(folder, LIVES[life][0], begin)
    return kept[0]


TAPES = {}
"""Recorded writes of each run; they are the same each time."""


def taped(folder, life):
    return played(folder, life, lambda _clock: CommandWriteRecord())


@pytest.mark.parametrize("life", LIVES)
def test_the_writes_of_commands_are_all_seen(tmp_path, life):
    tape = taped(tmp_path / "life", life)
    assert len(tape.commanded) >= LIVES[life][1]


@pytest.mark.lives
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("life", LIVES)
def test_a_run_converges_after_any_failed_write_of_a_command(tmp_path, life, way):
    if life not in TAPES:
        TAPES[life] = taped(tmp_path / "tape", life)
    tape = TAPES[life]
    for number in sorted(tape.commanded.intersection(tape.numbers(WAYS[way]))):
        strike = played(
            tmp_path / f"{number}", life, lambda clock, n=number: WriteFailure(n, WAYS[way], clock)
        )
        assert strike.hits, f"{tape.writes[number]} was not repeated"
