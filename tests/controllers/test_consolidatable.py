"""Nodes become consolidatable in time although the wall clock is wrong."""

from __future__ import annotations

from datetime import timedelta

from karpenter_core.kube.resources import DEPLOYMENTS
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS
from tests.controllers.injected_faults import ControllerClock
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

AN_HOUR = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1h"}
MINUTE = 60.0


class Scene:
    """One node, and a controller whose wall clock may be wrong."""

    def __init__(self, scene):
        self.scene, self.cluster = scene, scene.cluster
        self.clock = ControllerClock(scene.cluster.clock)
        self._pass_count = 0

    async def begin(self):
        pool = node_pool(
            disruption=AN_HOUR, template={"requirements": [{
                "key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["8"],
            }]},
        )  # fmt: skip
        self.cluster.apply([NODE_CLASS, pool, deployment("web", 1)])
        self.scene.start("--disable-leader-election", clock=self.clock)
        await self.scene.settle(lambda: len(self.scene.pods("Running")) == 1, seconds=60)
        await self.passes(30 * MINUTE)

    async def passes(self, seconds):
        await self.cluster.clock.sleep(seconds)

    async def have_pods(self, count):
        self.cluster.scale(DEPLOYMENTS, "web", count)
        await self.scene.settle(lambda: len(self.scene.pods("Running")) == count, seconds=30)
        await self.passes(1)

    async def set_clock(self, **lead):
        """Set the clock, and reconcile every claim."""
        self.clock.lead = timedelta(**lead)
        self._pass_count += 1
        self.cluster.patch(NODE_POOLS, "general", {"spec": {"weight": self._pass_count}})
        await self.passes(1)

    def note_pod_event(self, *, ahead):
        """Write a pod event that lies in the future, and return its time."""
        (claim,) = self.scene.claims()
        at = f"{self.cluster.clock.now() + ahead:%Y-%m-%dT%H:%M:%SZ}"
        registry = self.cluster.server.registry
        status = {"status": {"lastPodEventTime": at}}
        registry.patch(NODE_CLAIMS, status, claim["metadata"]["name"], "", part="status")
        return at

    @property
    def status(self):
        (claim,) = self.scene.claims()
        return claim["status"]

    @property
    def is_consolidatable(self):
        return any(each["type"] == "Consolidatable" for each in self.status["conditions"])


def test_a_clock_behind_for_a_minute_makes_no_node_consolidatable_too_early(tmp_path):
    async def scenario(scene):
        seen = Scene(scene)
        await seen.begin()
        await seen.have_pods(2)
        noted = seen.status["lastPodEventTime"]
        await seen.set_clock(hours=-5)
        await seen.passes(MINUTE)
        await seen.set_clock()
        assert seen.status["lastPodEventTime"] == noted
        await seen.passes(58 * MINUTE)
        assert not seen.is_consolidatable
        await seen.passes(MINUTE)
        assert seen.is_consolidatable

    run_controller(tmp_path, scenario)


def test_a_clock_once_ahead_keeps_no_node_from_being_consolidatable(tmp_path):
    """A pod event that is too soon to be noted again begins the quiet anew all the same.

    The process before, which had no answer of the API server yet, noted the time by its own clock.
    """

    async def scenario(scene):
        seen = Scene(scene)
        await seen.begin()
        await seen.have_pods(2)
        noted = seen.note_pod_event(ahead=timedelta(hours=5))
        await seen.passes(30 * MINUTE)
        await seen.have_pods(3)
        assert seen.status["lastPodEventTime"] == noted
        await seen.passes(59 * MINUTE)
        assert not seen.is_consolidatable
        await seen.passes(MINUTE)
        assert seen.is_consolidatable

    run_controller(tmp_path, scenario)
