"""An outage of the API server, short or long, loses, doubles and ends nothing, and is followed by no storm."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

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
from tests.support.invariants import Invariants
from tests.support.run_selection import others_as_cluster_runs

PODS = 20
MOST_IN_A_SECOND = 150
"""Of both replicas, after the outage; the token bucket gives each writer 200."""


class Kubelet:
    """Keeps two replicas running, as a Deployment's kubelets do: with pauses from 10 s to 5 minutes."""

    def __init__(self, harness):
        self.harness = harness
        self.replicas = {}
        self.starts = Counter()
        self._tasks = [asyncio.create_task(self._keep(name)) for name in ("one", "two")]

    async def _keep(self, name):
        pause = 10
        while True:
            self.starts[name] += 1
            running = self.replicas[name] = self.harness.start(name=f"{name}-{self.starts[name]}")
            await running.wait()
            await asyncio.sleep(pause)
            pause = min(2 * pause, 300)

    def stop(self):
        for task in self._tasks:
            task.cancel()

    @property
    def leaders(self):
        return [
            each.process
            for each in self.replicas.values()
            if each.is_alive and each.process.is_leading
        ]


@pytest.mark.parametrize("seconds", others_as_cluster_runs([120, 4, 3600]))
def test_an_outage_in_a_scale_up_loses_and_doubles_nothing(tmp_path, seconds):
    async def story(harness):
        cluster = harness.cluster
        cluster.apply([NODE_CLASS, node_pool(), deployment("web", PODS)])
        watched = Invariants(harness)
        kubelet = Kubelet(harness)
        await harness.settle(lambda: len(harness.claims()) > 0, seconds=60)

        cluster.frontend.stop()
        await asyncio.sleep(seconds)
        per_second = Counter()
        before = sum(cluster.frontend.requests.values())
        cluster.frontend.start()
        for second in range(60):
            await asyncio.sleep(1)
            now = sum(cluster.frontend.requests.values())
            per_second[second], before = now - before, now
        await harness.settle(lambda: len(harness.pods("Running")) == PODS, seconds=300)

        assert max(per_second.values()) <= MOST_IN_A_SECOND, per_second
        assert len(kubelet.leaders) == 1
        # The leader ends with its lease; the standby, and what was started again, wait in the process.
        assert kubelet.starts.total() <= (2 if seconds < 10 else 3)
        account = cloud(harness, tmp_path)
        assert set(account["launches"].values()) == {1}
        assert len(account["instances"]) == len(harness.claims())
        nodes = {each["metadata"]["name"] for each in harness.nodes()}
        await asyncio.sleep(1200)  # garbage collection and disruption look at it
        assert {each["metadata"]["name"] for each in harness.nodes()} == nodes
        assert len(harness.pods("Running")) == PODS
        cluster.scale(DEPLOYMENTS, "web", 0)
        await harness.settle(lambda: not harness.nodes() and not harness.claims(), seconds=600)
        assert cloud(harness, tmp_path)["instances"] == []
        assert watched.breaches == []
        kubelet.stop()

    run_controller(tmp_path, story)


def test_nothing_ends_and_readiness_says_so_in_an_outage(tmp_path):
    """Empty nodes that are due stay until the API server shows pods again."""

    async def story(harness):
        cluster = harness.cluster
        cluster.apply([NODE_CLASS, node_pool(), deployment("web", 3)])
        running = harness.start("--disable-leader-election")
        await harness.settle(lambda: len(harness.pods("Running")) == 3, seconds=60)
        instances = cloud(harness, tmp_path)["instances"]
        cluster.frontend.stop()
        cluster.scale(DEPLOYMENTS, "web", 0)
        await asyncio.sleep(900)
        assert running.is_alive
        assert cloud(harness, tmp_path)["instances"] == instances
        stale = running.process.informers.stale()
        assert {"pods", "nodes", "nodeclaims"} <= {each.kind.plural for each in stale}
        cluster.frontend.start()
        await harness.settle(lambda: not harness.nodes(), seconds=300)
        assert running.process.informers.stale() == ()

    run_controller(tmp_path, story)


def test_a_proxys_page_in_the_api_servers_place_is_an_outage(tmp_path):
    """Answered with the status 200: no list, and no answer to a write."""

    async def story(harness):
        cluster = harness.cluster
        cluster.apply([NODE_CLASS, node_pool(), deployment("web", 3)])
        running = harness.start("--disable-leader-election")
        await harness.settle(lambda: len(harness.pods("Running")) == 3, seconds=60)
        instances = cloud(harness, tmp_path)["instances"]
        honest = {each: each._transport for each in running._cables}
        for cable in honest:
            cable._transport = SignInPage(cable._transport)
        await asyncio.sleep(600)
        assert running.is_alive
        assert cloud(harness, tmp_path)["instances"] == instances
        for cable, transport in honest.items():
            cable._transport = transport
        cluster.apply([deployment("more", 3)])
        await harness.settle(lambda: len(harness.pods("Running")) == 6, seconds=300)
        await harness.settle(lambda: running.process.informers.stale() == (), seconds=120)

    run_controller(tmp_path, story)


class SignInPage:
    """A proxy that answers every request with a page, and breaks every watch."""

    def __init__(self, transport):
        self._transport = transport

    async def request(self, request):
        from karpenter_core.kube.transport import ApiResponse

        await asyncio.sleep(0.01)
        return ApiResponse(status=200, body=b"<html>sign in</html>")

    def stream(self, request):
        raise ApiError("a page instead of a watch", status=0)

    async def close(self):
        await self._transport.close()


def test_pods_of_a_zone_get_nodes_soon_after_an_hour_without_capacity(tmp_path):
    """No other offering may replace those of their zone, so that each minute of a mask is downtime."""
    faults = tmp_path / "faults.json"
    faults.write_text(json.dumps([{"fault": "stock-out", "zones": ["test-zone-a"]}]))

    async def scenario(scene):
        zone = {"topology.kubernetes.io/zone": "test-zone-a"}
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 4, nodeSelector=zone)])
        scene.start()
        await scene.cluster.clock.sleep(3600)
        attempts = [
            call for call in cloud(scene, tmp_path)["calls"] if call["operation"] == "launch"
        ]
        assert not scene.pods("Running")
        assert len(attempts) <= 60, "a few for each pod"

        faults.write_text("[]")
        await scene.settle(lambda: len(scene.pods("Running")) == 4, seconds=13 * 60)

    run_controller(tmp_path, scenario, arguments=[f"--kwok-faults-file={faults}"])
