"""Static NodePools (`spec.replicas`) are reported and left alone."""

from __future__ import annotations

import pytest

from tests.controllers.whole_controller import (
    GROUP,
    NODE_CLASS,
    deployment,
    node_pool,
    run_controller,
)

ARGUMENTS = ("--disable-leader-election", "--feature-gates=NodeRepair=true")
CONSOLIDATING = {
    "consolidationPolicy": "WhenEmptyOrUnderutilized",
    "consolidateAfter": "0s",
    "budgets": [{"nodes": "100%"}],
}
NEVER = {**CONSOLIDATING, "consolidateAfter": "Never"}
STATIC_OR_NOT = pytest.mark.parametrize("spec", [{"replicas": 1}, {}], ids=["static", "dynamic"])


def condition(pool, kind):
    results = [c for c in pool.get("status", {}).get("conditions", []) if c["type"] == kind]
    return results[0] if results else None


def claim_of_the_pool(*, expire_after: str):
    """A NodeClaim as another controller, which knows static pools, has left it."""
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "kept", "labels": {"karpenter.sh/nodepool": "general"}},
        "spec": {
            "requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
            ],
            "expireAfter": expire_after,
            "nodeClassRef": {"group": GROUP, "kind": "KWOKNodeClass", "name": "default"},
        },
    }


async def grown(scene, spec, *, expire_after: str = "Never", disruption=None):
    """Start with a pool and a claim of it, and wait for the claim's node."""
    pool = node_pool(disruption=disruption or NEVER, **spec)
    scene.cluster.apply([NODE_CLASS, pool, claim_of_the_pool(expire_after=expire_after)])
    scene.start(*ARGUMENTS)
    await scene.settle(
        lambda: any(
            (condition(claim, "Ready") or {}).get("status") == "True" for claim in scene.claims()
        )
    )


def claim_names(scene):
    return [claim["metadata"]["name"] for claim in scene.claims()]


@STATIC_OR_NOT
def test_claims_of_a_static_pool_do_not_expire(tmp_path, spec):
    async def scenario(scene):
        await grown(scene, spec, expire_after="10m")
        await scene.cluster.clock.sleep(30 * 60)

        assert claim_names(scene) == (["kept"] if spec else [])

    run_controller(tmp_path, scenario)


@STATIC_OR_NOT
def test_nodes_of_a_static_pool_are_not_repaired(tmp_path, spec):
    async def scenario(scene):
        await grown(scene, spec)
        (node,) = scene.nodes()
        scene.cluster.kubelets.fail(node["metadata"]["name"])
        await scene.cluster.clock.sleep(30 * 60)

        assert claim_names(scene) == (["kept"] if spec else [])

    run_controller(tmp_path, scenario)


@STATIC_OR_NOT
def test_empty_nodes_of_a_static_pool_are_not_consolidated(tmp_path, spec):
    async def scenario(scene):
        await grown(scene, spec, disruption=CONSOLIDATING)
        await scene.cluster.clock.sleep(10 * 60)

        assert claim_names(scene) == (["kept"] if spec else [])

    run_controller(tmp_path, scenario)


def test_a_static_pool_says_that_its_replicas_are_ignored(tmp_path):
    """By a condition and an Event; nothing is launched for it as if it were dynamic."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(replicas=2), deployment("web", 1)])
        scene.start(*ARGUMENTS)
        await scene.settle(lambda: condition(scene.pool("general"), "ReplicasIgnored"), seconds=60)
        await scene.cluster.clock.sleep(60)

        told = condition(scene.pool("general"), "ReplicasIgnored")
        assert (told["status"], told["reason"]) == ("True", "StaticCapacityNotBuilt")
        (event,) = scene.events("StaticCapacityNotBuilt")
        assert (event["type"], event["involvedObject"]["name"]) == ("Warning", "general")
        assert event["message"] == told["message"]
        assert "spec.replicas is ignored" in told["message"]
        assert not scene.claims()

    run_controller(tmp_path, scenario)


def test_a_dynamic_pool_says_nothing_of_replicas(tmp_path):
    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool()])
        scene.start(*ARGUMENTS)
        await scene.settle(lambda: condition(scene.pool("general"), "Ready"), seconds=60)

        assert condition(scene.pool("general"), "ReplicasIgnored") is None
        assert not scene.events("StaticCapacityNotBuilt")

    run_controller(tmp_path, scenario)
