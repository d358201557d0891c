"""Throttled work is retried in time, spread, and is no failure."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from types import SimpleNamespace

import pytest

from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.nodeclaim.instance_launcher import InstanceLauncher
from karpenter_core.controllers.reconciling.reconciler import (
    DONE,
    ControllerRuntime,
    PeriodicLoop,
    Reconciler,
    ReconcileResult,
)
from karpenter_core.controllers.reconciling.workqueue import ExponentialBackoff
from karpenter_core.errors import CloudProviderError, ThrottledError, TooManyRequestsError
from karpenter_core.sim.virtual_time import LoopClock, run_virtual

SECOND = timedelta(seconds=1)


def runtime(clock, jitter):
    return ControllerRuntime(
        clock=clock, new_id=map(str, count()).__next__, metrics=Metrics(), jitter=jitter
    )


def rises(error_of, jitter=lambda: 0.5, tries=6):
    """Return when a key is tried that fails with these errors, one after the other."""
    seen = []

    async def scenario():
        clock = LoopClock()

        async def reconcile(_):
            seen.append(round(clock.monotonic(), 3))
            raise error_of(len(seen))

        reconciler = Reconciler(
            "test",
            reconcile,
            runtime=runtime(clock, jitter),
            backoff=ExponentialBackoff(base_seconds=1.0),
        )
        task = asyncio.create_task(reconciler.run())
        reconciler.wake("web")
        await clock.sleep(600)
        task.cancel()

    run_virtual(scenario())
    return seen[:tries]


def throttled(seconds=1.0):
    return ThrottledError("slow down", retry_after=timedelta(seconds=seconds))


def test_a_throttled_key_waits_the_requested_time_every_time():
    """Half a draw of jitter is half as long again; the sixth wait is no longer than the first."""
    assert rises(lambda _: throttled(2)) == [0.0, 3.0, 6.0, 9.0, 12.0, 15.0]


@pytest.mark.parametrize("draw", [0.0, 0.999])
def test_a_retry_is_between_once_and_twice_the_requested_delay(draw):
    waits = rises(lambda _: throttled(2), jitter=lambda: draw)
    assert 2.0 <= waits[1] - waits[0] <= 4.0


def test_a_long_wait_has_limited_jitter():
    """An hour is an hour and half a minute at most."""
    waits = rises(lambda _: throttled(300), jitter=lambda: 1.0, tries=2)
    assert waits == [0.0, 330.0]


def test_throttling_counts_no_failure():
    """The failure after five throttlings waits as a first one."""

    def error_of(attempt):
        return CloudProviderError("broken") if attempt == 6 else throttled(1)

    waits = rises(error_of, jitter=lambda: 0.0, tries=7)
    assert waits == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_a_throttled_call_without_retry_after_waits():
    waits = rises(lambda _: throttled(0), jitter=lambda: 0.0, tries=3)
    assert waits == [0.0, 0.2, 0.4]


def unsaid():
    return ThrottledError("slow down")


def test_a_key_doubles_its_wait_without_a_requested_delay():
    """From one second to half a minute."""
    tried = rises(lambda _: unsaid(), jitter=lambda: 0.0, tries=8)
    waits = [after - before for before, after in pairwise(tried)]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_default_wait_has_jitter():
    assert rises(lambda _: unsaid(), jitter=lambda: 0.5, tries=4) == [0.0, 1.5, 4.5, 10.5]


def test_throttling_without_a_time_counts_no_failure():
    """The failure after three throttlings waits as a first one, and ends their row."""

    def error_of(attempt):
        return CloudProviderError("broken") if attempt == 4 else unsaid()

    tried = rises(error_of, jitter=lambda: 0.0, tries=6)
    assert tried == [0.0, 1.0, 3.0, 7.0, 8.0, 9.0]


def test_a_success_ends_the_row_of_throttlings_of_its_key_alone():
    tried = {"web": [], "db": []}

    async def scenario():
        clock = LoopClock()

        async def reconcile(key):
            tried[key].append(clock.monotonic())
            if key == "web" and len(tried[key]) == 3:
                return ReconcileResult(requeue_after=10.0)
            raise unsaid()

        reconciler = Reconciler("test", reconcile, runtime=runtime(clock, lambda: 0.0))
        task = asyncio.create_task(reconciler.run())
        for key in tried:
            reconciler.wake(key)
        await clock.sleep(60)
        task.cancel()

    run_virtual(scenario())
    assert tried["web"][:6] == [0.0, 1.0, 3.0, 13.0, 14.0, 16.0]
    assert tried["db"][:6] == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0]


def test_the_api_server_s_throttling_is_no_failure_either():
    def error(_):
        return TooManyRequestsError("busy", status=429, retry_after=SECOND)

    assert rises(error, jitter=lambda: 0.0, tries=4) == [0.0, 1.0, 2.0, 3.0]


def steps(errors, jitter):
    """Return when a loop makes its steps, which end in these errors (None succeeds, for 5 s)."""
    seen = []

    async def scenario():
        clock = LoopClock()

        async def step():
            seen.append(clock.monotonic())
            error = errors[len(seen) - 1] if len(seen) <= len(errors) else None
            if error is not None:
                raise error
            return 5.0

        task = asyncio.create_task(PeriodicLoop("test", step, runtime=runtime(clock, jitter)).run())
        await clock.sleep(300)
        task.cancel()

    run_virtual(scenario())
    return seen[: len(errors) + 1]


def test_a_throttled_loop_waits_the_requested_time_every_time():
    assert steps([throttled(1)] * 3, lambda: 0.5) == [0.0, 1.5, 3.0, 4.5]


def test_a_loop_doubles_its_wait_without_a_requested_delay():
    """A success ends the row."""
    seen = steps([*[unsaid()] * 7, None, unsaid()], lambda: 0.0)
    waits = [after - before for before, after in pairwise(seen)]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 5.0, 1.0]


def test_ninety_throttled_launches_are_done_when_the_cloud_lets_them():
    """Ten a second are let through, so nine seconds are needed; and no instant is a stampede."""
    done, tries = {}, Counter()
    tokens = {"left": 10.0, "at": 0.0}

    async def scenario():
        clock = LoopClock()

        async def reconcile(key):
            now = clock.monotonic()
            tries[round(now, 2)] += 1
            tokens["left"] = min(10.0, tokens["left"] + 10 * (now - tokens["at"]))
            tokens["at"] = now
            if tokens["left"] < 1:
                raise throttled(1)
            tokens["left"] -= 1
            done[key] = now
            return DONE

        draw = random.Random(7).random
        reconciler = Reconciler("test", reconcile, runtime=runtime(clock, draw), concurrency=90)
        task = asyncio.create_task(reconciler.run())
        for number in range(90):
            reconciler.wake(f"web-{number}")
        await clock.sleep(120)
        task.cancel()

    run_virtual(scenario())
    assert len(done) == 90
    assert max(done.values()) < 12
    assert max(number for moment, number in tries.items() if moment > 0) <= 10


class Clock:
    """Stands still until it is moved."""

    seconds = 1000.0

    def monotonic(self):
        return self.seconds

    def now(self):
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)


@pytest.fixture
def launching():
    """A launcher whose launches fail as configured, a claim, and its wait."""
    clock = Clock()
    snapshot = SimpleNamespace(node_classes={}, node_claims={})
    launcher = InstanceLauncher(
        cluster_state=SimpleNamespace(snapshot=lambda: snapshot),
        providers=SimpleNamespace(subscribe_late_launches=lambda _: None),
        runtime=SimpleNamespace(clock=clock, jitter=lambda: 0.25),
        well_known=frozenset(),
    )
    claim = NodeClaim.model_validate(
        {
            "metadata": {"name": "web", "uid": "1"},
            "spec": {
                "nodeClassRef": {"group": "cloud.example.com", "kind": "Class", "name": "default"},
                "requirements": [],
            },
        }
    )

    async def left_after(error):
        launcher._record_failure(claim, error, ())
        return (await launcher.launch(claim)).requeue_after.total_seconds()

    return SimpleNamespace(left_after=left_after, forget=lambda: launcher.forget(claim.uid))


async def test_a_throttled_launch_is_no_failed_launch(launching):
    """Its wait is the one asked for, spread, however often it was throttled before."""
    for _ in range(6):
        assert await launching.left_after(throttled(1)) == pytest.approx(1.25)
    assert await launching.left_after(CloudProviderError("broken")) == pytest.approx(1.0)
    await launching.left_after(CloudProviderError("broken"))
    await launching.left_after(throttled(1))
    assert await launching.left_after(CloudProviderError("broken")) == pytest.approx(4.0)


async def test_a_launch_doubles_its_wait_without_a_requested_delay(launching):
    """A quarter is jitter; failures before and after are counted without it."""
    assert await launching.left_after(CloudProviderError("broken")) == pytest.approx(1.0)
    waits = [await launching.left_after(unsaid()) for _ in range(7)]
    assert waits == pytest.approx([1.25, 2.5, 5.0, 10.0, 20.0, 37.5, 37.5])
    assert await launching.left_after(CloudProviderError("broken")) == pytest.approx(2.0)
    assert await launching.left_after(unsaid()) == pytest.approx(1.25)
    await launching.left_after(unsaid())
    launching.forget()
    assert await launching.left_after(unsaid()) == pytest.approx(1.25)
