"""Memory is given back every minute, and before the container's limit is reached."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from karpenter_core.operator.clock import SystemClock
from karpenter_core.operator.memory_limit import (
    RETURN_SECONDS,
    MemoryLimit,
    resident_bytes,
    return_memory,
    return_memory_regularly,
)

LIMIT = 1000
BLOCK = 3000
"""Bytes of a block of the C library's: Python keeps smaller objects in an allocator of its own."""


class Memory:
    """Resident memory, and the rest after trimming and collecting."""

    def __init__(self, resident, after_trim=None, after_collect=None):
        self.resident = resident
        self.after_trim = resident if after_trim is None else after_trim
        self.after_collect = after_collect
        self.calls = []

    def trim(self):
        self.calls.append("trim")
        self.resident = self.after_trim

    def collect(self):
        self.calls.append("collect")
        self.after_trim = self.after_collect
        return 0


def limit_over(memory):
    return MemoryLimit(
        LIMIT,
        clock=SystemClock(),
        resident=lambda: memory.resident,
        trim=memory.trim,
        collect=memory.collect,
    )


@pytest.mark.parametrize(
    ("memory", "calls", "warned"),
    [
        (Memory(900), [], False),
        (Memory(901, after_trim=700), ["trim"], False),
        (Memory(950, after_collect=800), ["trim", "collect", "trim"], False),
        (Memory(950, after_collect=940), ["trim", "collect", "trim"], True),
    ],
    ids=["below 90 %", "freed memory is returned", "collected", "in use"],
)
async def test_no_more_is_done_than_brings_memory_below_ninety_percent(memory, calls, warned):
    with capture_logs() as logs:
        await limit_over(memory).check()

    assert calls == memory.calls
    assert [line["log_level"] for line in logs] == ["warning"] * warned


async def test_after_a_collection_the_process_pauses_collecting():
    """Each one stops everything."""
    usual = await limit_over(Memory(100)).check()
    after = await limit_over(Memory(950, after_collect=940)).check()

    assert after >= 10 * usual


def test_the_process_has_resident_memory():
    assert resident_bytes() > 2**20


async def test_freed_memory_is_returned_every_minute_as_long_as_it_can_be():
    slept = []
    answers = iter([True, True, False])

    class Clock:
        async def sleep(self, seconds):
            slept.append(seconds)

    await return_memory_regularly(Clock(), returns=lambda: next(answers))

    assert slept == [RETURN_SECONDS] * 3
    assert next(answers, "none") == "none"


@pytest.mark.skipif(not return_memory(), reason="this C library returns memory by itself")
def test_pages_between_used_blocks_are_returned():
    """The C library itself returns what lies beyond the last used block only."""
    blocks = [bytes(BLOCK) for _ in range(20_000)]
    kept = blocks[::20]
    del blocks
    before = resident_bytes()

    assert return_memory()

    assert before - resident_bytes() > 30 * 2**20
    assert len(kept) == 1000
