"""What is throttled is tried again when the other side said so, spread, and is no failure."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import count
from types import SimpleNamespace

import pytest

from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.controllers.metrics import Metrics
from karpenter_core.controllers.nodeclaim.launching import Launcher
from karpenter_core.controllers.reconciler import DONE, Loop, Reconciler, Runtime
from karpenter_core.controllers.workqueue import Backoff
from karpenter_core.errors import CloudProviderError, ThrottledError, TooManyRequestsError
from karpenter_core.sim.virtual_time import LoopClock, run_virtual

SECOND = timedelta(seconds=1)


def runtime(clock, jitter):
    return Runtime(clock=clock, new_id=map(str, count()).__next__, metrics=Metrics(), jitter=jitter)


def rises(error_of, jitter=lambda: 0.5, tries=6):
    """Return when a key is tried that fails with these errors, one after the other."""
    seen = []

    async def story():
        clock = LoopClock()

        async def reconcile(_):
            seen.append(round(clock.monotonic(), 3))
            raise error_of(len(seen))

        reconciler = Reconciler(
            "test",
            reconcile,
            runtime=runtime(clock, jitter),
            backoff=Backoff(base_seconds=1.0),
        )
        task = asyncio.create_task(reconciler.run())
        reconciler.wake("web")
        await clock.sleep(600)
        task.cancel()

    run_virtual(story())
    return seen[:tries]


def throttled(seconds=1.0):
    return ThrottledError("slow down", retry_after=timedelta(seconds=seconds))


def test_a_throttled_key_waits_as_long_as_asked_every_time():
    """Half a draw of jitter is half as long again; the sixth wait is no longer than the first."""
    assert rises(lambda _: throttled(2)) == [0.0, 3.0, 6.0, 9.0, 12.0, 15.0]


@pytest.mark.parametrize("draw", [0.0, 0.999])
def test_nobody_comes_back_sooner_than_asked_nor_later_than_twice_that(draw):
    waits = rises(lambda _: throttled(2), jitter=lambda: draw)
    assert 2.0 <= waits[1] - waits[0] <= 4.0


def test_a_long_wait_is_not_drawn_out_by_half():
    """An hour is an hour and half a minute at most."""
    waits = rises(lambda _: throttled(300), jitter=lambda: 1.0, tries=2)
    assert waits == [0.0, 330.0]


def test_throttling_counts_no_failure():
    """The failure after five throttlings waits as a first one."""

    def error_of(attempt):
        return CloudProviderError("broken") if attempt == 6 else throttled(1)

    waits = rises(error_of, jitter=lambda: 0.0, tries=7)
    assert waits == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_a_cloud_that_names_no_time_is_not_asked_without_a_pause():
    waits = rises(lambda _: throttled(0), jitter=lambda: 0.0, tries=3)
    assert waits == [0.0, 0.2, 0.4]


def test_the_api_server_s_throttling_is_no_failure_either():
    def error(_):
        return TooManyRequestsError("busy", status=429, retry_after=SECOND)

    assert rises(error, jitter=lambda: 0.0, tries=4) == [0.0, 1.0, 2.0, 3.0]


def test_a_throttled_loop_waits_as_long_as_asked_every_time():
    seen = []

    async def story():
        clock = LoopClock()

        async def step():
            seen.append(clock.monotonic())
            raise throttled(1)

        task = asyncio.create_task(Loop("test", step, runtime=runtime(clock, lambda: 0.5)).run())
        await clock.sleep(5)
        task.cancel()

    run_virtual(story())
    assert seen == [0.0, 1.5, 3.0, 4.5]


def test_ninety_throttled_launches_are_done_when_the_cloud_lets_them():
    """Ten a second are let through, so nine seconds are needed; and no instant is a stampede."""
    done, tries = {}, Counter()
    tokens = {"left": 10.0, "at": 0.0}

    async def story():
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

    run_virtual(story())
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


async def test_a_throttled_launch_is_no_failed_launch():
    """Its wait is the one asked for, spread, however often it was throttled before."""
    clock = Clock()
    snapshot = SimpleNamespace(node_classes={}, node_claims={})
    launcher = Launcher(
        hands=SimpleNamespace(feed=SimpleNamespace(snapshot=lambda: snapshot)),
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

    async def left():
        return (await launcher.launch(claim)).requeue_after.total_seconds()

    for _ in range(6):
        launcher._failed(claim, throttled(1), ())
        assert await left() == pytest.approx(1.25)
    launcher._failed(claim, CloudProviderError("broken"), ())
    assert await left() == pytest.approx(1.0)
    launcher._failed(claim, CloudProviderError("broken"), ())
    launcher._failed(claim, throttled(1), ())
    launcher._failed(claim, CloudProviderError("broken"), ())
    assert await left() == pytest.approx(4.0)
