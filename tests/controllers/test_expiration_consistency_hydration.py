"""Expiry, consistency, pod events and hydration in a whole process (acceptance cases 122-125)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.controllers.nodeclaim.label_restorer import LabelRestorer
from karpenter_core.kube.resources import DEPLOYMENTS, NODES
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.sim.faults import RequestFault, matching
from karpenter_core.testing.state_builders import node, node_claim
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

WITHOUT_ELECTION = "--disable-leader-election"
KEPT = {"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]}
LABEL = "karpenter.kwok.sh/kwoknodeclass"


def expired(running, metric="nodeclaims_disrupted"):
    labels = (
        'capacity_type="on-demand",consolidation_policy="",nodepool="general",reason="expired",'
        'termination_mode="graceful"'
    )
    return running.metric(f"karpenter_{metric}_total{{{labels}}}")


def test_an_expired_node_is_replaced_regardless_of_budgets(tmp_path):
    """Counted once, with its two pods."""
    pool = node_pool(disruption=KEPT, template={"expireAfter": "5m"})

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, pool, deployment("web", 2, cpu="100m")])
        running = scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=60)
        first = [claim["metadata"]["name"] for claim in scene.claims()]
        assert len(first) == 1

        await scene.cluster.clock.sleep(270)
        assert [claim["metadata"]["name"] for claim in scene.claims()] == first
        await scene.settle(
            lambda: (
                first[0] not in {claim["metadata"]["name"] for claim in scene.claims()}
                and len(scene.pods("Running")) == 2
            ),
            seconds=120,
        )
        assert expired(running) == 1
        assert expired(running, "pods_disruption_initiated") == 2

    run_controller(tmp_path, scenario)


def test_labels_and_conditions_are_restored_with_few_writes(tmp_path):
    """The NodeClass label is restored on claim and node; a shrunk node gets an event."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEPT), deployment("web", 1)])
        running = scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        await scene.cluster.clock.sleep(20)
        registry = scene.cluster.server.registry
        name = scene.claims()[0]["metadata"]["name"]
        node = scene.nodes()[0]
        assert consistency(scene) == "True"
        writes = sum(running.process.kube_writer.counts.values())

        bare = {"metadata": {"labels": {LABEL: None}}}
        registry.patch(NODE_CLAIMS, bare, name, "")
        registry.patch(NODES, bare, node["metadata"]["name"], "")
        await scene.settle(
            lambda: all(
                item["metadata"]["labels"].get(LABEL) == "default"
                for item in (*scene.claims(), *scene.nodes())
            ),
            seconds=5,
        )
        assert sum(running.process.kube_writer.counts.values()) == writes + 2

        half = {"status": {"capacity": {"cpu": "1"}}}
        registry.patch(NODES, half, node["metadata"]["name"], "", part="status")
        await scene.settle(lambda: consistency(scene) == "False", seconds=5)
        await scene.cluster.clock.sleep(5)
        (event,) = scene.events("FailedConsistencyCheck")
        assert event["message"] == "expected 2 of resource cpu, but found 1 (50.0% of expected)"

    run_controller(tmp_path, scenario)


def consistency(scene) -> str:
    (claim,) = scene.claims()
    results = [c for c in claim["status"]["conditions"] if c["type"] == "ConsistentStateFound"]
    return results[0]["status"] if results else ""


def test_a_claim_notes_when_pods_come_and_go_every_ten_seconds_at_most(tmp_path):
    """Case 124: pods of DaemonSets do not count, and neither do the first pods of a node."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption={**KEPT, "consolidateAfter": "1h"})])
        scene.cluster.apply([deployment("web", 1, cpu="100m", memory="10Mi")])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        await scene.cluster.clock.sleep(60)
        assert len(scene.claims()) == 1

        async def noted_after(replicas):
            """Scale to so many pods, wait for them, return what the claim notes."""
            scene.cluster.scale(DEPLOYMENTS, "web", replicas)
            await scene.cluster.clock.sleep(4)
            assert len(scene.pods()) == replicas
            return scene.claims()[0]["status"]["lastPodEventTime"]

        assert "lastPodEventTime" not in scene.claims()[0]["status"]
        second = await noted_after(2)
        assert await noted_after(3) == second
        await scene.cluster.clock.sleep(10)
        third = await noted_after(1)
        assert third > second

        await scene.cluster.clock.sleep(60)
        scene.cluster.apply([daemon_set()])
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=30)
        await scene.cluster.clock.sleep(20)
        assert scene.claims()[0]["status"]["lastPodEventTime"] == third

    run_controller(tmp_path, scenario)


def test_a_pod_created_during_a_claim_write_is_recorded(tmp_path):
    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption={**KEPT, "consolidateAfter": "1h"})])
        scene.cluster.apply([deployment("web", 1, cpu="100m", memory="10Mi")])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        await scene.cluster.clock.sleep(60)
        name = scene.claims()[0]["metadata"]["name"]

        scene.cluster.frontend.faults.add(
            RequestFault(matches=matching("PATCH", f"nodeclaims/{name}"), latency_seconds=4.0)
        )
        bare = {"metadata": {"labels": {LABEL: None}}}
        scene.cluster.server.registry.patch(NODE_CLAIMS, bare, name, "")
        await scene.cluster.clock.sleep(1)
        scene.cluster.scale(DEPLOYMENTS, "web", 2)
        await scene.cluster.clock.sleep(10)

        assert len(scene.pods("Running")) == 2
        assert "lastPodEventTime" in scene.claims()[0]["status"]

    run_controller(tmp_path, scenario)


def daemon_set():
    """A small DaemonSet."""
    manifest = deployment("log", 1, cpu="10m", memory="10Mi")
    del manifest["spec"]["replicas"]
    return {**manifest, "kind": "DaemonSet"}


class SetClock:
    """A clock whose monotonic time is set."""

    def __init__(self):
        self.seconds = 0.0

    def monotonic(self):
        return self.seconds


@pytest.mark.parametrize("later", [59.9999999, 60.0])
def test_a_restored_label_never_asks_for_a_wait_of_nothing(later):
    """A rounded wait of zero would have the claim reconciled again and again."""
    clock = SetClock()
    restorer = LabelRestorer(clock)
    claim = node_claim(stage="Initialized")
    bare = node(provider_id=claim.status.provider_id)
    first = restorer.step(claim, (bare,))
    assert first.node is not None
    assert first.requeue_after == timedelta(minutes=1)
    clock.seconds = 59.0
    assert restorer.step(claim, (bare,)).requeue_after == timedelta(seconds=1)
    clock.seconds = later
    assert restorer.step(claim, (bare,)).node is not None
