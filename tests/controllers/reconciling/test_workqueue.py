"""The work queue of keys and the reconcile loop of controllers."""

from __future__ import annotations

import asyncio
import sys

import pytest

from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.reconciling.reconciler import (
    ControllerRuntime,
    PeriodicLoop,
    Reconciler,
    ReconcileResult,
)
from karpenter_core.controllers.reconciling.workqueue import ExponentialBackoff, WorkQueue
from karpenter_core.errors import ConflictError, FencedError, KarpenterError, NotFoundError
from karpenter_core.operator.inline_platform import SequentialIds
from karpenter_core.sim.virtual_time import LoopClock, run_virtual


def runtime():
    return ControllerRuntime(clock=LoopClock(), new_id=SequentialIds("test"), metrics=Metrics())


def test_backoff_doubles_up_to_its_maximum():
    """And takes any number of failures."""
    backoff = ExponentialBackoff(base_seconds=1.0, maximum_seconds=10.0)

    assert [backoff.seconds(n) for n in range(1, 6)] == [1.0, 2.0, 4.0, 8.0, 10.0]
    assert backoff.seconds(10_000) == 10.0


def test_a_key_added_often_is_taken_once():
    """In the order of first arrival."""

    async def scenario():
        queue = WorkQueue(LoopClock(), backoff=None)
        for key in ("a", "b", "a"):
            queue.add(key)

        assert len(queue) == 2
        assert [await queue.take(), await queue.take()] == ["a", "b"]
        assert len(queue) == 0

    run_virtual(scenario())


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_a_key_that_is_due_in_no_time_is_due_at_once(seconds):
    """Without a timer."""

    async def scenario():
        queue = WorkQueue(LoopClock(), backoff=None)
        queue.add_after("a", seconds)
        assert len(queue) == 1

    run_virtual(scenario())


def test_a_key_with_requested_back_off_waits_longer_each_time():
    """And from the beginning after it was content."""
    seen = []

    async def scenario():
        clock = LoopClock()
        answers = [ReconcileResult(back_off=True)] * 3 + [ReconcileResult(requeue_after=10.0)]
        answers += [ReconcileResult(back_off=True), ReconcileResult()]

        async def reconcile(_key):
            seen.append(clock.monotonic())
            return answers.pop(0)

        reconciler = Reconciler(
            "test", reconcile, runtime=runtime(), backoff=ExponentialBackoff(base_seconds=1.0)
        )
        task = asyncio.create_task(reconciler.run())
        reconciler.wake("a")
        await clock.sleep(60)
        task.cancel()

    run_virtual(scenario())
    assert seen == pytest.approx([0.0, 1.0, 3.0, 7.0, 17.0, 18.0])


def test_a_key_added_while_worked_on_is_due_again_afterwards():
    """It is never worked on twice at a time."""

    async def scenario():
        queue = WorkQueue(LoopClock(), backoff=None)
        queue.add("a")
        assert await queue.take() == "a"
        queue.add("a")
        queue.add("a")
        assert len(queue) == 0

        queue.done("a")

        assert len(queue) == 1

    run_virtual(scenario())


def test_the_earliest_of_several_delays_counts():
    """And an immediate wish cancels all delays."""

    async def scenario():
        clock = LoopClock()
        queue = WorkQueue(clock, backoff=None)
        queue.add_after("a", 5.0)
        queue.add_after("a", 2.0)
        queue.add_after("a", 9.0)
        assert await queue.take() == "a"
        assert clock.monotonic() == pytest.approx(2.0)
        queue.done("a")
        await clock.sleep(20)
        assert len(queue) == 0

        queue.add_after("b", 1.0)
        queue.add("b")
        assert await queue.take() == "b"
        queue.done("b")
        await clock.sleep(20)
        assert len(queue) == 0
        queue.close()

    run_virtual(scenario())


def test_a_failing_key_waits_ever_longer_until_it_succeeds():
    """Other keys do not wait with it."""
    seen = []

    async def scenario():
        clock = LoopClock()
        failures = {"bad": 3}

        async def reconcile(key):
            seen.append((key, clock.monotonic()))
            if failures.get(key, 0) > 0:
                failures[key] -= 1
                raise KarpenterError("not yet")
            return ReconcileResult()

        reconciler = Reconciler(
            "test", reconcile, runtime=runtime(), backoff=ExponentialBackoff(base_seconds=1.0)
        )
        task = asyncio.create_task(reconciler.run())
        reconciler.wake("bad")
        reconciler.wake("good")
        await clock.sleep(60)
        task.cancel()

    run_virtual(scenario())
    assert [(key, pytest.approx(at)) for key, at in seen] == [
        ("bad", 0.0),
        ("good", 0.0),
        ("bad", 1.0),
        ("bad", 3.0),
        ("bad", 7.0),
    ]


def test_unexpected_exceptions_are_counted_and_do_not_end_the_loop():
    """The one place where anything is caught; losing a race is no failure to report."""

    async def scenario():
        base = runtime()
        errors = [
            FencedError("not the leader"),
            ValueError("a bug"),
            ConflictError("stale", status=409),
            NotFoundError("gone meanwhile", status=404),
        ]

        succeeded = []

        async def reconcile(key):
            if errors:
                raise errors.pop(0)
            succeeded.append(key)
            return ReconcileResult()

        reconciler = Reconciler("test", reconcile, runtime=base)
        task = asyncio.create_task(reconciler.run())
        reconciler.wake("a")
        await base.clock.sleep(10)

        assert succeeded == ["a"], "each error is followed by another attempt"
        assert not task.done()
        counted = base.metrics.reconcile_errors.labels(controller="test")
        assert counted._value.get() == 1
        task.cancel()

    run_virtual(scenario())


def test_no_more_than_the_given_number_of_keys_are_worked_on_at_once():
    """The others wait their turn."""

    async def scenario():
        base = runtime()
        running = most = 0

        async def reconcile(_key):
            nonlocal running, most
            running += 1
            most = max(most, running)
            await base.clock.sleep(1)
            running -= 1
            return ReconcileResult()

        reconciler = Reconciler("test", reconcile, runtime=base, concurrency=3)
        task = asyncio.create_task(reconciler.run())
        for number in range(10):
            reconciler.wake(number)
        await base.clock.sleep(3.5)
        assert len(reconciler.queue) == 0
        await base.clock.sleep(1)
        task.cancel()
        assert most == 3

    run_virtual(scenario())


def test_a_cancelled_reconciler_cancels_its_open_keys():
    """Nothing goes on behind the back of a process that no longer leads."""

    async def scenario():
        base = runtime()
        ended = []

        async def reconcile(key):
            try:
                await base.clock.sleep(1000)
            finally:
                ended.append(key)
            return ReconcileResult()

        reconciler = Reconciler("test", reconcile, runtime=base)
        task = asyncio.create_task(reconciler.run())
        reconciler.wake("a")
        await base.clock.sleep(1)
        task.cancel()
        await asyncio.wait({task})
        assert ended == ["a"]

    run_virtual(scenario())


def test_a_woken_loop_does_not_sleep_out():
    """And one that fails waits longer each time."""

    async def scenario():
        base = runtime()
        at = []

        async def step():
            at.append(base.clock.monotonic())
            if len(at) in {3, 4}:
                raise KarpenterError("not now")
            return 10.0

        loop = PeriodicLoop("test", step, runtime=base)
        task = asyncio.create_task(loop.run())
        await base.clock.sleep(4)
        loop.wake()
        await base.clock.sleep(30)
        task.cancel()
        assert [pytest.approx(moment) for moment in at] == [0.0, 4.0, 14.0, 15.0, 17.0, 27.0]

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("milli", "workers"), [(0, 10), (1000, 10), (1500, 26), (15_000, 244), (100_000, 1000)]
)
def test_workers_grow_with_the_cpu_requests(milli, workers):
    """Upstream's numbers for 10 to 1000 workers."""

    async def scenario():
        base = ControllerRuntime(
            clock=LoopClock(), new_id=SequentialIds("x"), metrics=Metrics(), cpu_requests=milli
        )
        assert workers == base.workers(10, 1000)

    run_virtual(scenario())


def test_a_key_that_is_put_off_again_and_again_takes_the_room_of_one():
    """Each reconcile of a claim puts it off until it expires, in a month."""

    async def scenario():
        queue = WorkQueue(LoopClock(), backoff=None)
        queue.add_after("soon", 60.0)
        before = sys.getallocatedblocks()
        for _ in range(5_000):
            queue.add("claim")
            queue.done(await queue.take())
            queue.add_after("claim", 720 * 3600.0)
        assert sys.getallocatedblocks() - before < 2_000
        assert queue.waiting == 2
        assert [await queue.take() for _ in range(2)] == ["soon", "claim"]
        queue.close()

    run_virtual(scenario())


@pytest.mark.parametrize("error", [KarpenterError("not yet"), FencedError("not the leader")])
def test_a_failing_loop_waits_ever_longer_until_it_succeeds(error):
    """A success, as the fourth here, makes the waits short again."""
    seen = []

    async def scenario():
        clock = LoopClock()

        async def step():
            seen.append(round(clock.monotonic(), 3))
            if len(seen) in {1, 2, 3, 5}:
                raise error
            return 10.0

        loop = PeriodicLoop(
            "test", step, runtime=runtime(), backoff=ExponentialBackoff(base_seconds=1.0)
        )
        task = asyncio.create_task(loop.run())
        await clock.sleep(30)
        task.cancel()

    run_virtual(scenario())
    assert seen[:6] == [0.0, 1.0, 3.0, 7.0, 17.0, 18.0]
