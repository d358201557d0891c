"""A task waits for a signal, or for a time."""

from __future__ import annotations

import asyncio

import pytest

from karpenter_core.controllers.reconciling.wake_signal import WakeSignal
from karpenter_core.sim.virtual_time import LoopClock, run_virtual


def waited(seconds, *, set_at=None, clear_at=None):
    """Return what a wait for so many seconds answers, and when."""

    async def story():
        loop, signal, clock = asyncio.get_running_loop(), WakeSignal(), LoopClock()
        if set_at is not None:
            loop.call_at(set_at, signal.set)
        if clear_at is not None:
            loop.call_at(clear_at, signal.clear)
        return await signal.wait_for(clock, seconds), loop.time()

    return run_virtual(story())


def test_a_wait_ends_with_the_time_or_the_signal():
    """Whichever is first."""
    assert waited(5) == (False, 5)
    assert waited(5, set_at=2) == (True, 2)
    assert waited(5, set_at=7) == (False, 5)


def test_a_signal_that_was_taken_back_is_not_told():
    """The task still wakes, and looks again."""
    assert waited(5, set_at=2, clear_at=2) == (False, 2)


@pytest.mark.parametrize("seconds", [5, 0, -1])
def test_a_signal_that_is_set_ends_every_wait_at_once(seconds):
    """Other tasks run all the same."""

    async def story():
        signal, others = WakeSignal(), []
        signal.set()
        asyncio.get_running_loop().call_soon(others.append, "ran")
        answer = await signal.wait_for(LoopClock(), seconds)
        await signal.wait()
        return answer, others, asyncio.get_running_loop().time()

    assert run_virtual(story()) == (True, ["ran"], 0)


def test_no_timer_is_left_behind():
    """A controller that is woken every second would gather them."""

    async def story():
        loop, signal, clock = asyncio.get_running_loop(), WakeSignal(), LoopClock()
        for at in range(1, 6):
            loop.call_at(at, signal.set)
            assert await signal.wait_for(clock, 3600)
            signal.clear()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await signal.wait_for(clock, 3600)
        return [handle for handle in loop._scheduled if not handle.cancelled()]

    assert run_virtual(story()) == []
