"""A process that only observes plans, records and compares prices, and changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import generate_latest

from karpenter_core.api.conditions import Condition
from karpenter_core.kube.resources import DEPLOYMENTS, LEASES, NODES
from karpenter_core.kube.transport import ApiRequest
from karpenter_core.kube.wire.codecs import NODE_POOLS
from karpenter_core.provider.contract import NodeClassResolution
from karpenter_core.provider.markers import hookimpl
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.testing.harness import ControllerHarness
from karpenter_provider_kwok.plugin import KwokProvider
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

ALL_STAY = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}


def recorded_requests(running):
    """Return the list to which every request of a process is added as (method, path)."""
    requests = []
    for cable in running._cables:
        send, stream = cable.request, cable.stream

        async def noted(request, send=send):
            requests.append((request.method, request.path))
            return await send(request)

        def noted_stream(request, stream=stream):
            requests.append((request.method, request.path))
            return stream(request)

        cable.request, cable.stream = noted, noted_stream
    return requests


def decisions(running, kind):
    return running.process.runtime.journal.latest(kind=kind)


def observed(running, name):
    return running.metric(f'karpenter_observed_{name}{{currency="USD"}}')


def test_an_observer_beside_a_controller_reports_the_savings_of_a_fresh_plan(tmp_path):
    """Most of the pods are gone and their nodes stay: a fresh plan costs less, and says so."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=ALL_STAY), deployment("web", 12)])
        leader = scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 12, seconds=60)
        scene.cluster.scale(DEPLOYMENTS, "web", 2)
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=60)
        nodes = {node["metadata"]["name"]: node["spec"] for node in scene.nodes()}

        observer = scene.start("--observe")
        requests = recorded_requests(observer)
        await scene.cluster.clock.sleep(605)

        decision = decisions(observer, "observe")[0]
        assert decision.method == "fresh-plan"
        assert {item.node for item in decision.candidates} == set(nodes)
        assert sum(item.pods for item in decision.candidates) == 2
        assert decision.price_per_hour_after.amount < 0.5 * decision.price_per_hour_before.amount
        before, after = (
            observed(observer, "price_per_hour"),
            observed(observer, "planned_price_per_hour"),
        )
        assert before == pytest.approx(
            leader.metric('karpenter_nodepools_cost_total{nodepool="general"}')
        )
        assert observed(observer, "savings_total") == pytest.approx((before - after) / 6, rel=0.05)
        assert {method for method, _ in requests} == {"GET"}
        assert {node["metadata"]["name"]: node["spec"] for node in scene.nodes()} == nodes

    run_controller(tmp_path, scenario)


def test_an_observer_records_the_same_estimate_once(tmp_path):
    """A quiet cluster is compared every minute, and recorded when something has changed."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=ALL_STAY), deployment("web", 4)])
        leader = scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 4, seconds=60)
        await leader.stop()
        observer = scene.start("--observe")
        await scene.cluster.clock.sleep(400)
        assert len(decisions(observer, "observe")) == 1

    run_controller(tmp_path, scenario)


def test_savings_are_not_counted_while_nothing_can_be_compared(tmp_path, monkeypatch):
    """The last difference says nothing about a time for which there is no plan."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=ALL_STAY), deployment("web", 12)])
        scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 12, seconds=60)
        scene.cluster.scale(DEPLOYMENTS, "web", 2)
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=60)
        observer = scene.start("--observe")
        await scene.cluster.clock.sleep(605)
        before, price = observed(observer, "savings_total"), observed(observer, "price_per_hour")
        assert before > 0

        with monkeypatch.context() as patch:
            patch.setattr("karpenter_core.controllers.observation.controller.MAX_ROUNDS", 0)
            await scene.cluster.clock.sleep(3600)
            assert observed(observer, "savings_total") == pytest.approx(before, rel=0.15)
            exported = generate_latest(observer.process.metrics.registry).decode()
            assert "karpenter_observed_price_per_hour{" not in exported
        at_the_end = observed(observer, "savings_total")
        await scene.cluster.clock.sleep(600)

        assert observed(observer, "price_per_hour") == pytest.approx(price)
        assert 0 < observed(observer, "savings_total") - at_the_end <= before * 1.1

    run_controller(tmp_path, scenario)


def test_nodes_of_static_pools_are_kept(tmp_path):
    async def scenario(scene):
        static = node_pool("fixed", disruption=ALL_STAY, replicas=2)
        scene.cluster.apply([NODE_CLASS, static])
        scene.start("--feature-gates=StaticCapacity=true")
        await scene.settle(lambda: len(scene.nodes()) == 2, seconds=60)
        observer = scene.start("--observe", "--feature-gates=StaticCapacity=true")
        await scene.cluster.clock.sleep(200)

        decision = decisions(observer, "observe")[0]
        assert not decision.candidates
        (obstacle,) = decision.obstacles
        assert obstacle.message == "its NodePool has a fixed number of nodes"
        assert len(obstacle.names) == 2
        assert observed(observer, "savings_total") == 0

    run_controller(tmp_path, scenario)


def test_an_observer_plans_pending_pods_and_creates_nothing(tmp_path):
    """With the NodePool judged by a controller that has ended since, pods are only planned."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool()])
        leader = scene.start()
        await scene.settle(
            lambda: any(
                item["type"] == "Ready" and item["status"] == "True"
                for pool in scene.cluster.list(NODE_POOLS)
                for item in pool.get("status", {}).get("conditions", ())
            ),
            seconds=30,
        )
        await leader.stop()
        scene.cluster.apply([deployment("web", 3)])
        observer = scene.start("--observe")
        requests = recorded_requests(observer)
        await scene.cluster.clock.sleep(300)

        (decision,) = decisions(observer, "provision")
        assert sum(launch.pods for launch in decision.launches) == 3
        assert {launch.node_claim for launch in decision.launches} == {""}
        assert scene.claims() == []
        assert {method for method, _ in requests} == {"GET"}
        assert not any(LEASES.plural in path for _, path in requests)

    run_controller(tmp_path, scenario)


def test_nodes_of_another_autoscaler_are_compared_by_their_labels(tmp_path):
    """They have no NodeClaim; type, zone and capacity type price them."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=ALL_STAY), deployment("web", 12)])
        leader = scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 12, seconds=60)
        template = scene.nodes()[0]
        await leader.stop()
        labels = {
            key: value
            for key, value in template["metadata"]["labels"].items()
            if not key.startswith("karpenter.sh/") and key != "kubernetes.io/hostname"
        }
        scene.cluster.apply(
            [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {
                        "name": "group-1",
                        "labels": {**labels, "example.com/group": "a"},
                    },
                    "spec": {"providerID": "other://1"},
                    "status": template["status"],
                }
            ]
        )
        without = scene.start("--observe", name="without")
        with_groups = scene.start("--observe", "--observe-nodes=example.com/group", name="with")
        others = scene.start("--observe", "--observe-nodes=example.com/group=b", name="others")
        await scene.cluster.clock.sleep(120)

        def candidates(running):
            return {item.node for item in decisions(running, "observe")[0].candidates}

        assert candidates(with_groups) - candidates(without) == {"group-1"}
        assert candidates(others) == candidates(without)
        assert observed(with_groups, "price_per_hour") > observed(without, "price_per_hour")
        assert "group-1" in {node["metadata"]["name"] for node in scene.cluster.list(NODES)}

    run_controller(tmp_path, scenario)


def test_a_cluster_without_nodes_of_node_pools_is_told_how_to_compare_others(tmp_path):
    """The first run beside Cluster Autoscaler has no NodePool: the result names what is missing."""

    async def scenario(scene):
        scene.cluster.apply(
            [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": "group-1", "labels": {"example.com/group": "a"}},
                    "spec": {"providerID": "other://1"},
                }
            ]
        )
        without = scene.start("--observe", name="without")
        with_groups = scene.start("--observe", "--observe-nodes=example.com/group", name="with")
        await scene.cluster.clock.sleep(120)

        assert "--observe-nodes" in decisions(without, "observe")[0].summary
        (obstacle,) = decisions(with_groups, "observe")[0].obstacles
        assert obstacle.message == (
            "its price is not known, because no NodePool has instance types"
        )

    run_controller(tmp_path, scenario)


def test_a_node_with_a_protected_pod_is_kept_and_named(tmp_path):
    """The estimate promises nothing that the controller would not do."""

    async def scenario(scene):
        pods = deployment("web", 2, cpu="3")
        annotations = {"karpenter.sh/do-not-disrupt": "true"}
        pods["spec"]["template"]["metadata"]["annotations"] = annotations
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=ALL_STAY), pods])
        leader = scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=60)
        await leader.stop()
        observer = scene.start("--observe")
        await scene.cluster.clock.sleep(120)

        decision = decisions(observer, "observe")[0]
        assert decision.candidates == ()
        assert [(item.message, item.count) for item in decision.obstacles] == [
            ("a pod on it may not be moved", len(scene.nodes()))
        ]
        assert observed(observer, "savings_total") == 0

    run_controller(tmp_path, scenario)


class ResolvingKwok(KwokProvider):
    """A provider whose NodeClasses have to be resolved."""

    def __init__(self, *, observes):
        super().__init__()
        self.info = replace(self.info, observes=observes)
        self.resolved = []

    @hookimpl
    def karpenter_resolve_node_class(self, node_class):
        self.resolved.append(node_class.name)
        ready = Condition(type="Ready", status="True", reason="Ready")
        return NodeClassResolution(conditions=(ready,))


@pytest.mark.parametrize("observes", [True, False])
def test_beside_cluster_autoscaler_node_classes_are_resolved_in_memory(tmp_path, observes):
    """Nobody writes statuses there; a provider that does not ask the fence itself is not called."""
    kwok = ResolvingKwok(observes=observes)

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 3)])
        await scene.cluster.transport().request(
            ApiRequest(  # by default kwok's have no status that needs a resolution
                method="PATCH",
                path=f"/apis/{NODE_CLASS['apiVersion']}/kwoknodeclasses/default/status",
                body=b'{"status":{"conditions":[]}}',
                content_type="application/merge-patch+json",
            )
        )
        observer = scene.start("--observe")
        requests = recorded_requests(observer)
        await scene.cluster.clock.sleep(200)

        plans = decisions(observer, "provision")
        if observes:
            assert kwok.resolved == ["default"]
            assert sum(launch.pods for launch in plans[0].launches) == 3
        else:
            assert kwok.resolved == []
            assert all(plan.launches == () for plan in plans)
        assert {method for method, _ in requests} == {"GET"}
        (pool,) = scene.cluster.list(NODE_POOLS)
        assert "conditions" not in pool.get("status", {})

    async def run() -> None:
        async with ControllerHarness(lambda: {"kwok": kwok}, folder=tmp_path) as harness:
            await scenario(harness)

    run_virtual(run())
