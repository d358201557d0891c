"""With late answers to renewals two leaders never write at the same time.

To the other candidates a lease is as old as the request that renewed it, not as its answer.
"""

from __future__ import annotations

import json

import pytest

from karpenter_core.kube.resources import LEASES
from karpenter_core.sim.faults import RequestFault
from tests.controllers.cluster_runs import ClusterRun, budget, pool, watch_invariants
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

pytestmark = pytest.mark.timeout(300)
DEADLINE_SECONDS, LEASE_SECONDS = 10.0, 15.0


class Writers:
    """Two candidates, and when each of them sent its writes."""

    def __init__(self, harness, watch):
        self.harness, self.clock = harness, harness.cluster.clock
        self.sent = {"old": [], "new": []}
        self._watch = watch

    async def begin(self):
        """Start the leader, then the other one."""
        self.old = self._start("old")
        await self.harness.settle(lambda: self.old.process.is_leading)
        self.new = self._start("new")

    def _start(self, name):
        async def note(op):
            await self._watch.note_write(op)
            if op.stage == "request":
                self.sent[name].append(self.clock.monotonic())

        return self.harness.start(name=name, faults=note)

    def disturb(self, **fault):
        """Disturb the renewals of the old leader from now on."""
        self.harness.cluster.frontend.faults.add(
            RequestFault(matches=is_renewal_of_old, times=None, **fault)
        )

    @property
    def renewed(self):
        """Time of the lease's last renewal, as text."""
        (lease,) = self.harness.cluster.list(LEASES)
        return lease["spec"]["renewTime"]


def is_renewal_of_old(request):
    if request.method != "PATCH" or "/leases/" not in request.path:
        return False
    return json.loads(request.body)["spec"].get("holderIdentity") == "old"


def two_candidates(folder, scenario):
    """Run a scenario of two candidates, with constant writes."""

    async def told(harness):
        with watch_invariants(harness) as watch:
            writers, scene = Writers(harness, watch), ClusterRun(harness, folder)
            harness.cluster.apply([NODE_CLASS, pool(), budget(), deployment("web", 2)])
            await writers.begin()
            await scene.settle(lambda: scene.is_whole(1))
            await scenario(writers, scene)
            await scene.settle(lambda: scene.is_whole(1))
        assert watch.breaches == []
        assert writers.sent["new"]
        assert max(writers.sent["old"]) < min(writers.sent["new"])

    run_controller(folder, told)


async def keep_busy(writers, *, seconds):
    """Give the leader something to write each second: the status of one more NodePool."""
    for number in range(seconds):
        writers.harness.cluster.apply([node_pool(f"other-{number}", limits={"cpu": "0"})])
        await writers.clock.sleep(1)


def test_an_answer_later_than_the_deadline_does_not_open_the_fence(tmp_path):
    """Each renewal arrives, so that the lease never expires; yet its answer comes too late."""

    async def scenario(writers, _scene):
        writers.disturb(reply_latency_seconds=DEADLINE_SECONDS + 2)
        began = writers.clock.monotonic()
        await keep_busy(writers, seconds=60)
        assert await writers.old.wait() == 1
        assert writers.new.process.is_leading
        closed = began + DEADLINE_SECONDS
        assert closed - 3 < max(writers.sent["old"]) < closed

    two_candidates(tmp_path, scenario)


@pytest.mark.parametrize(("seconds", "lasts"), [(4.0, DEADLINE_SECONDS), (6.0, 8.0), (9.0, 8.0)])
def test_a_slow_answer_and_then_none_ends_the_writes_in_time(tmp_path, seconds, lasts):
    """The last renewal that arrived was sent so long before its answer came.

    The renewal before it was sent two seconds earlier, and is what counts where the answer takes longer
    than half of the deadline: it is not waited for, so that another renewal can be sent.
    """

    async def scenario(writers, scene):
        writers.disturb(reply_latency_seconds=seconds)
        before = writers.renewed
        await scene.settle(lambda: writers.renewed != before)
        sent = writers.clock.monotonic()
        writers.disturb(drop_request=True)
        await keep_busy(writers, seconds=60)
        assert await writers.old.wait() == 1
        closed = sent + lasts
        assert closed - 2 < max(writers.sent["old"]) <= closed
        assert min(writers.sent["new"]) >= sent + LEASE_SECONDS - 0.5

    two_candidates(tmp_path, scenario)
