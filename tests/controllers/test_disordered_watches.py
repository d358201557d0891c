"""Watches that delay, repeat, reorder and lose what they show cause no wrong launch and no lost pod.

No API server reorders the changes of one kind; a proxy that lies or a broken cache might. Reordered
are only the kinds that the controller does not write: an answered write shows the controller its
object, and a later version in the watch proves then that the object came and went.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import aclosing, asynccontextmanager, suppress

import pytest

from karpenter_core.errors import ApiError
from karpenter_core.kube.resources import DEPLOYMENTS
from tests.controllers.whole_controller import (
    NODE_CLASS,
    cloud,
    deployment,
    node_pool,
    run_controller,
)
from tests.support.drawn_faults import drawn_runs
from tests.support.invariants import Invariants

HELD_SECONDS = 20
"""The longest time for which a change is held back."""
DISORDER = ("hold", "repeat", "both", "wait", "cut")
ORDERED = ("repeat", "wait", "cut")
OURS = ("/nodes", "/nodeclaims")
ONE_IN = 6
"""Share of the lines that something happens to."""
SEEDS = 8
EACH = 2
"""Size of a group, of which each run of the tests plays one."""


class DisorderedWatches:
    """A transport whose watches show changes late, twice, out of order, or end."""

    def __init__(self, transport, rng):
        self._transport, self._rng = transport, rng
        self.done = Counter()

    async def request(self, request):
        return await self._transport.request(request)

    async def close(self):
        await self._transport.close()

    @asynccontextmanager
    async def stream(self, request):
        kinds = ORDERED if request.path.endswith(OURS) else DISORDER
        async with self._transport.stream(request) as (response, lines):
            if response.status != 200:
                yield response, lines
                return
            initial = "sendInitialEvents" in request.query
            async with aclosing(self._disorder(lines, kinds, initial=initial)) as disordered:
                yield response, disordered

    async def _disorder(self, lines, kinds, *, initial):
        shown = asyncio.Queue()
        reading = asyncio.ensure_future(self._read(lines, kinds, shown, initial=initial))
        try:
            while (line := await shown.get()) is not None:
                yield line
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

    async def _read(self, lines, kinds, shown, *, initial):
        """Put the lines of a stream into `shown`, then None."""
        loop = asyncio.get_running_loop()
        all_shown_at = loop.time()
        with suppress(ApiError):
            async for line in lines:
                await asyncio.sleep(0)
                is_spared = initial or self._rng.random() > 1 / ONE_IN
                initial = initial and b"initial-events-end" not in line
                what = "" if is_spared else self._rng.choice(kinds)
                delay = self._rng.uniform(0, HELD_SECONDS)
                self.done[what] += 1
                if what in {"hold", "both"}:
                    loop.call_later(delay, shown.put_nowait, line)
                    all_shown_at = max(all_shown_at, loop.time() + delay)
                if what == "wait":
                    await asyncio.sleep(delay)
                if what != "hold":
                    shown.put_nowait(line)
                if what == "repeat":
                    shown.put_nowait(line)
                if what == "cut":
                    break
        # Held lines are shown before the end, or nobody would ever show them.
        loop.call_at(all_shown_at + 0.001, shown.put_nowait, None)


@pytest.mark.cluster_runs
@pytest.mark.parametrize("first", range(0, SEEDS, EACH))
def test_disordered_watches_cause_no_wrong_launch_and_no_lost_pod(tmp_path, first, pytestconfig):
    seeds = range(first, first + EACH)
    for seed, folder in drawn_runs(pytestconfig, "disorder", seeds, tmp_path):
        check_disordered_watches(folder, seed)


def check_disordered_watches(tmp_path, seed):
    rng = random.Random(seed)
    transports = []

    async def story(harness):
        cluster = harness.cluster
        honest = cluster.transport

        def transport():
            transports.append(DisorderedWatches(honest(), rng))
            return transports[-1]

        cluster.transport = transport
        disruption = {
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": "30s",
            "budgets": [{"nodes": "50%"}],
        }
        cluster.apply([NODE_CLASS, node_pool(disruption=disruption)])
        watched = Invariants(harness)
        running = harness.start("--disable-leader-election")
        names = [f"web-{index}" for index in range(6)]
        cluster.apply(
            [
                deployment(name, rng.randint(1, 8), cpu=rng.choice(["500m", "1", "3"]))
                for name in names
            ]
        )
        for _ in range(20):
            await asyncio.sleep(rng.uniform(5, 90))
            cluster.scale(DEPLOYMENTS, rng.choice(names), rng.randint(0, 8))
        await harness.settle(lambda: not pending(harness), seconds=1200)
        assert watched.breaches == []
        for name in names:
            cluster.scale(DEPLOYMENTS, name, 0)
        await harness.settle(lambda: not harness.nodes() and not harness.claims(), seconds=1800)

        assert running.is_alive
        account = cloud(harness, tmp_path)
        assert account["instances"] == []
        assert set(account["launches"].values()) == {1}
        assert watched.breaches == []
        assert sum(each.done["hold"] for each in transports) > 0

    run_controller(tmp_path, story)


def pending(harness):
    return [pod for pod in harness.pods() if not pod["spec"].get("nodeName")]
