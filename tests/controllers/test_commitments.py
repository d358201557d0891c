"""Commitments on a cluster: nodes are launched as far as the amount goes, and the metrics show it."""

from __future__ import annotations

import json

import pytest

from karpenter_core.kube.resources import DEPLOYMENTS
from karpenter_core.kube.wire.codecs import NODE_POOLS
from tests.controllers.whole_controller import (
    NODE_CLASS,
    cloud,
    deployment,
    node_pool,
    run_controller,
)

ALONE = "--disable-leader-election"
DEAR = "mem2a.4xlarge"
SIXTEEN = {
    "requirements": [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["16"]},
    ]
}


def commitments(amount):
    requirement = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [DEAR]}
    row = {
        "name": "paid",
        "requirements": [requirement],
        "resource": "nodes",
        "amount": amount,
        "price": 0,
    }
    return f"--commitments={json.dumps([row])}"


def types(scene):
    return sorted(
        claim["metadata"]["labels"]["node.kubernetes.io/instance-type"]
        for claim in scene.claims()
        if claim.get("status", {}).get("providerID")
    )


def running(scene):
    return scene.pods() and all(pod["spec"].get("nodeName") for pod in scene.pods())


@pytest.mark.parametrize(("amount", "expected"), [(0, 0), (1, 1), (5, 3)])
def test_committed_nodes_are_launched_up_to_the_commitment(tmp_path, amount, expected):
    """Also after a restart, when only the nodes tell what is used; one pod fills a node."""

    async def scenario(scene):
        consolidating = {
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": "0s",
            "budgets": [{"nodes": "100%"}],
        }
        scene.cluster.apply(
            [
                NODE_CLASS,
                node_pool(disruption=consolidating, template=SIXTEEN),
                deployment("web", 2, cpu="9"),
            ]
        )
        running_process = scene.start(ALONE, commitments(amount))
        await scene.settle(lambda: running(scene))
        await running_process.stop()
        scene.start(ALONE, commitments(amount))
        scene.cluster.apply([deployment("more", 1, cpu="9")])
        await scene.settle(lambda: running(scene) and len(scene.pods()) == 3)

        assert types(scene).count(DEAR) == expected
        await scene.cluster.clock.sleep(600)
        assert types(scene).count(DEAR) == expected  # consolidation leaves them

    run_controller(tmp_path, scenario)


CONSOLIDATING = {
    "consolidationPolicy": "WhenEmptyOrUnderutilized",
    "consolidateAfter": "0s",
    "budgets": [{"nodes": "100%"}],
}
HALF_FULL = 10
"""Cores of a pod, one of which fits on an instance of sixteen cores."""


@pytest.mark.parametrize(("amount", "moved"), [(0, 0), (1, 1), (2, 2), (9, 3)])
def test_nodes_are_replaced_by_committed_ones_up_to_the_commitment(tmp_path, amount, moved):
    """Each once: afterwards nothing moves any more, also after a restart."""

    async def scenario(scene):
        scene.cluster.apply(
            [
                NODE_CLASS,
                node_pool(disruption=CONSOLIDATING, template=SIXTEEN),
                deployment("web", 3, cpu=str(HALF_FULL)),
            ]
        )
        before = scene.start(ALONE)
        await scene.settle(lambda: running(scene) and len(scene.pods()) == 3)
        assert DEAR not in types(scene)
        await before.stop()
        first = scene.start(ALONE, commitments(amount))
        await scene.cluster.clock.sleep(900)

        assert types(scene).count(DEAR) == moved
        assert len(types(scene)) == 3
        assert running(scene)
        launches = cloud(scene, tmp_path)["launches"]
        assert len(launches) == 3 + moved
        await first.stop()
        scene.start(ALONE, commitments(amount))
        await scene.cluster.clock.sleep(900)
        assert cloud(scene, tmp_path)["launches"] == launches

    run_controller(tmp_path, scenario)


def test_commitments_move_no_node_beyond_the_budgets(tmp_path):
    async def scenario(scene):
        closed = {**CONSOLIDATING, "budgets": [{"nodes": "0"}]}
        scene.cluster.apply(
            [
                NODE_CLASS,
                node_pool(disruption=closed, template=SIXTEEN),
                deployment("web", 2, cpu=str(HALF_FULL)),
            ]
        )
        before = scene.start(ALONE)
        await scene.settle(lambda: running(scene) and len(scene.pods()) == 2)
        await before.stop()
        scene.start(ALONE, commitments(2))
        await scene.cluster.clock.sleep(600)
        assert DEAR not in types(scene)

        one = [{"nodes": "1"}]
        patch = {"spec": {"disruption": {"budgets": one}}}
        scene.cluster.patch(NODE_POOLS, "general", patch)
        leaving = []
        for _ in range(600):
            await scene.cluster.clock.sleep(1)
            tainted = [node for node in scene.nodes() if node["metadata"].get("deletionTimestamp")]
            leaving.append(len(tainted))
        assert types(scene).count(DEAR) == 2
        assert max(leaving) == 1

    run_controller(tmp_path, scenario)


def test_metrics_show_usage_and_cost(tmp_path):
    """The node's own price is the list price."""

    async def scenario(scene):
        scene.cluster.apply(
            [
                NODE_CLASS,
                node_pool(disruption=CONSOLIDATING, template=SIXTEEN),
                deployment("web", 1, cpu="9"),
            ]
        )
        started = scene.start(ALONE, commitments(2))
        process = started.process
        await scene.settle(lambda: running(scene))
        await scene.cluster.clock.sleep(30)

        def value(name, **labels):
            return process.metrics.registry.get_sample_value(
                f"karpenter_commitments_{name}", {"commitment": "paid", **labels}
            )

        assert value("amount", resource_type="nodes") == 2
        assert value("usage", resource_type="nodes") == 1
        assert value("price", currency="USD") == 0
        assert value("list_price", currency="USD") > 0
        (name,) = [node["metadata"]["name"] for node in scene.nodes()]
        savings = "commitment_savings_per_hour"
        of = 'commitment="paid",currency="USD"'
        listed = value("list_price", currency="USD")
        node = f'karpenter_nodes_{savings}{{{of},node_name="{name}",nodeclaim="{name}",nodepool="general"}}'
        assert started.metric(node) == pytest.approx(listed)
        pool = f'karpenter_nodepools_{savings}{{{of},nodepool="general"}}'
        assert started.metric(pool) == pytest.approx(listed)
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: not scene.nodes(), seconds=300)
        await scene.cluster.clock.sleep(30)
        assert value("list_price", currency="USD") == 0
        assert started.metric(pool) == 0

    run_controller(tmp_path, scenario)
