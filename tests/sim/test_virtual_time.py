"""The loop whose time jumps."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import UTC, datetime, timedelta

import pytest

from karpenter_core.sim.virtual_time import DeadlockError, LoopClock, run_virtual

NOON = datetime(2031, 5, 1, 12, tzinfo=UTC)


def test_a_day_passes_at_once():
    """A task that wakes every minute of a simulated day needs no real minute."""

    async def day():
        clock = LoopClock()
        start, ticks = clock.now(), 0
        while clock.now() - start < timedelta(days=1):
            await clock.sleep(60)
            ticks += 1
        return ticks, clock.now(), clock.monotonic()

    before = time.process_time()
    ticks, end, seconds = run_virtual(day(), epoch=NOON)

    assert ticks == 1440
    assert end == NOON + timedelta(days=1)
    assert seconds == 86400
    assert time.process_time() - before < 5


@pytest.mark.parametrize("start", [0.145, 1259.144604039, 86400.3])
def test_a_timer_that_is_due_a_rounding_error_from_now_rings_late_rather_than_early(start):
    """Else whoever waits until then would set it again and again, and time would stand still."""

    async def wait_until_then():
        loop = asyncio.get_running_loop()
        await asyncio.sleep(start)
        due, rung = math.nextafter(loop.time(), math.inf), 0
        while loop.time() < due:
            ringing = loop.create_future()
            loop.call_at(due, ringing.set_result, None)
            await ringing
            rung += 1
            assert rung < 10

    run_virtual(wait_until_then())


def test_a_timer_does_not_ring_early_while_others_are_at_work():
    """It did within asyncio's resolution, and who waited for that time never saw it come."""

    async def story():
        loop = asyncio.get_running_loop()
        await asyncio.sleep(8000.1)
        due, rung = math.nextafter(loop.time(), math.inf), []
        loop.call_at(due, lambda: rung.append(loop.time()))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not rung
        await asyncio.sleep(1)
        return due, *rung

    due, rung = run_virtual(story())
    assert rung >= due


def test_timers_fire_in_the_order_of_their_times():
    """Sleeps, time limits and callbacks share one time line."""

    async def race():
        told = []
        loop = asyncio.get_running_loop()
        loop.call_later(2, told.append, "callback")

        async def sleeper(seconds):
            await asyncio.sleep(seconds)
            told.append(seconds)

        async with asyncio.TaskGroup() as group:
            group.create_task(sleeper(3))
            group.create_task(sleeper(1))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 2.5)
            told.append("limit")
        return told

    assert run_virtual(race()) == [1, "callback", "limit", 3]


def test_waiting_for_nothing_is_an_error():
    """Nobody will ever set the event: the run ends instead of hanging."""

    async def stuck():
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError):
        run_virtual(stuck())


def test_executors_run_inline():
    """A thread would not know the time; its result and its error arrive all the same."""

    async def work():
        assert await asyncio.to_thread(sum, [1, 2]) == 3
        with pytest.raises(ValueError, match="invalid literal"):
            await asyncio.to_thread(int, "x")
        return asyncio.get_running_loop().time()

    assert run_virtual(work()) == 0


def test_the_clock_also_follows_a_real_loop():
    """It starts at the epoch it is given."""

    async def now():
        return LoopClock(NOON).now()

    assert timedelta(0) <= asyncio.run(now()) - NOON < timedelta(seconds=5)
