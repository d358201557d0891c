"""The event loop skips idle time."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import UTC, datetime, timedelta

import pytest

from karpenter_core.sim.virtual_time import DeadlockError, LoopClock, run_virtual, until

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
    """Else a waiter would set it again and again, and time would stand still."""

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

    async def scenario():
        loop = asyncio.get_running_loop()
        await asyncio.sleep(8000.1)
        due, rung = math.nextafter(loop.time(), math.inf), []
        loop.call_at(due, lambda: rung.append(loop.time()))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not rung
        await asyncio.sleep(1)
        return due, *rung

    due, rung = run_virtual(scenario())
    assert rung >= due


def test_timers_fire_in_the_order_of_their_times():
    """Sleeps, time limits and callbacks share one time line."""

    async def race():
        recorded = []
        loop = asyncio.get_running_loop()
        loop.call_later(2, recorded.append, "callback")

        async def sleeper(seconds):
            await asyncio.sleep(seconds)
            recorded.append(seconds)

        async with asyncio.TaskGroup() as group:
            group.create_task(sleeper(3))
            group.create_task(sleeper(1))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 2.5)
            recorded.append("limit")
        return recorded

    assert run_virtual(race()) == [1, "callback", "limit", 3]


def test_waiting_for_nothing_is_an_error():
    """The event will never be set: the run ends instead of hanging."""

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


class TestUntil:
    @pytest.mark.parametrize("after", [0.0, 0.05, 0.1, 0.15, 7.01, 7.1, 63.0])
    def test_condition_is_noticed_at_the_next_check(self, after):
        """As by a loop of checks and sleeps; also at the very time of a check, as the last thing."""

        async def scenario():
            loop, done = asyncio.get_running_loop(), []
            loop.call_later(after, loop.call_soon, done.append, True)
            assert await until(lambda: bool(done), every_seconds=0.1, within_seconds=100)
            return loop.time()

        looks = math.ceil(round(after / 0.1, 6))
        assert run_virtual(scenario()) == pytest.approx(max(looks, 1) / 10)

    def test_condition_that_holds_already_takes_no_time(self):
        async def scenario():
            assert await until(lambda: True, every_seconds=1, within_seconds=0)
            return asyncio.get_running_loop().time()

        assert run_virtual(scenario()) == 0

    def test_condition_that_never_holds_times_out_with_and_without_other_tasks(self):
        async def scenario(*others):
            loop = asyncio.get_running_loop()
            tasks = [loop.create_task(asyncio.sleep(other)) for other in others]
            assert not await until(lambda: False, every_seconds=0.3, within_seconds=10)
            for task in tasks:
                task.cancel()
            return loop.time()

        assert run_virtual(scenario()) == pytest.approx(10, abs=0.3)
        assert run_virtual(scenario(0.2, 9.95, 60)) == pytest.approx(10, abs=0.3)

    def test_condition_on_the_clock_is_noticed_within_a_second(self):
        async def scenario():
            loop = asyncio.get_running_loop()
            assert await until(lambda: loop.time() >= 5.3, every_seconds=0.1, within_seconds=60)
            return loop.time()

        assert 5.3 <= run_virtual(scenario()) < 6.4

    def test_effects_of_a_check_finish_before_the_next_check(self):
        async def scenario():
            loop, start_times, done = asyncio.get_running_loop(), [], []

            def poked():
                start_times.append(loop.time())
                loop.call_soon(loop.call_later, 0.05, done.append, loop.time())
                return len(done) == 2

            assert await until(poked, every_seconds=0.1, within_seconds=60)
            return start_times

        assert run_virtual(scenario()) == pytest.approx([0, 0.1, 0.2])

    def test_an_error_ends_the_waiting(self):
        async def scenario():
            answers = iter([False])
            with pytest.raises(RuntimeError, match="StopIteration"):
                await until(lambda: next(answers), every_seconds=1, within_seconds=60)
            return asyncio.get_running_loop().time()

        assert run_virtual(scenario()) == 1

    def test_several_waits_run_and_a_cancelled_one_stops_checking(self):
        async def scenario():
            loop, looked = asyncio.get_running_loop(), []
            first = asyncio.create_task(
                until(lambda: loop.time() >= 2, every_seconds=0.5, within_seconds=60)
            )
            second = asyncio.create_task(
                until(lambda: looked.append(loop.time()), every_seconds=0.4, within_seconds=60)
            )
            assert await first
            second.cancel()
            await asyncio.sleep(10)
            return looked

        looked = run_virtual(scenario())
        assert looked == pytest.approx([0, 0.4, 0.8, 1.2, 1.6, 2.0][: len(looked)])
        assert len(looked) >= 5

    def test_a_real_loop_is_waited_for_too(self):
        async def scenario():
            answers = [False, False, True]
            assert await until(lambda: answers.pop(0), every_seconds=0.001, within_seconds=60)
            assert not await until(lambda: False, every_seconds=0.001, within_seconds=0.01)

        asyncio.run(scenario())


def test_the_clock_also_follows_a_real_loop():
    """It starts at the epoch it is given."""

    async def now():
        return LoopClock(NOON).now()

    assert timedelta(0) <= asyncio.run(now()) - NOON < timedelta(seconds=5)
