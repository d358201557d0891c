"""The token bucket and the back-off."""

from __future__ import annotations

import asyncio

import pytest

from karpenter_core.kube.pacing import JitteredBackoff, cancel_when_raised, time_limit
from karpenter_core.kube.rate_limits import AsyncTokenBucket
from karpenter_core.sim.virtual_time import LoopClock, run_virtual


def test_a_burst_passes_and_later_requests_keep_the_rate():
    """In order of arrival."""

    async def scenario():
        clock = LoopClock()
        bucket = AsyncTokenBucket(clock, rate=2, burst=3)
        passed = []

        async def one(number):
            await bucket.acquire()
            passed.append((number, clock.monotonic()))

        await asyncio.gather(*map(one, range(5)))
        return passed

    assert run_virtual(scenario()) == [(0, 0), (1, 0), (2, 0), (3, 0.5), (4, 1.0)]


def test_cancelled_waiter_frees_its_place():
    """A cancelled wait costs no token."""

    async def scenario():
        clock = LoopClock()
        bucket = AsyncTokenBucket(clock, rate=1, burst=1)
        await bucket.acquire()
        waiting = asyncio.ensure_future(bucket.acquire())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        await bucket.acquire()
        return clock.monotonic()

    assert run_virtual(scenario()) == pytest.approx(1.0)


def test_tokens_never_pile_up_beyond_the_burst():
    """However long nothing happened."""

    async def scenario():
        bucket = AsyncTokenBucket(LoopClock(), rate=10, burst=2)
        await asyncio.sleep(100)
        return [bucket.try_take() for _ in range(3)]

    assert run_virtual(scenario()) == [True, True, False]


def test_a_bucket_without_rate_is_refused():
    """It would wait for ever."""

    async def scenario():
        AsyncTokenBucket(LoopClock(), rate=0, burst=1)

    with pytest.raises(ValueError, match="rate > 0"):
        run_virtual(scenario())


def test_waits_double_up_to_the_cap_and_start_over():
    """Full jitter draws between nothing and the ceiling."""
    backoff = JitteredBackoff(lambda: 1.0, base=0.8, cap=30)
    assert [backoff.next_delay() for _ in range(8)] == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30]
    backoff.reset()
    assert backoff.next_delay() == 0.8
    assert JitteredBackoff(lambda: 0.5, base=0.8, cap=30).next_delay() == 0.4


def test_a_time_limit_is_measured_by_the_given_clock():
    """And leaves no timer behind when the block ends in time."""

    async def scenario():
        clock = LoopClock()
        async with time_limit(clock, 5):
            await clock.sleep(4)
        with pytest.raises(TimeoutError):
            async with time_limit(clock, 5):
                await clock.sleep(60)
        return clock.monotonic()

    assert run_virtual(scenario()) == 9


def test_a_block_is_cancelled_with_the_error_of_its_check():
    """At once, and the block is cancelled."""

    async def scenario():
        clock = LoopClock()

        async def check():
            await clock.sleep(3)
            raise ConnectionError("nobody answers")

        with pytest.raises(ConnectionError, match="nobody answers") as caught:
            async with cancel_when_raised(check):
                await clock.sleep(60)
        assert caught.value.__cause__ is None
        return clock.monotonic()

    assert run_virtual(scenario()) == 3


def test_a_time_limit_inside_of_a_block_is_not_taken_for_its_check():
    """The check went on until the block ended, and is ended with it."""

    async def scenario():
        clock = LoopClock()
        ended = []

        async def check():
            try:
                await clock.sleep(60)
            finally:
                ended.append(clock.monotonic())

        with pytest.raises(TimeoutError):
            async with cancel_when_raised(check), time_limit(clock, 2):
                await clock.sleep(60)
        async with cancel_when_raised(check):
            await clock.sleep(1)
        await clock.sleep(0)
        return ended

    assert run_virtual(scenario()) == [2, 3]
