"""Limits are checked again at creation, because plans may be old."""

from __future__ import annotations

import asyncio

from karpenter_core.controllers.provisioning.claim_creator import ClaimCreator
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS
from tests.controllers.whole_controller import (
    GROUP,
    NODE_CLASS,
    deployment,
    node_pool,
    run_controller,
)

KEEP = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
LABEL = {"karpenter.sh/nodepool": "general"}
FOUR = {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"]}


def by_hand(name):
    """A claim of the pool that another client creates."""
    ref = {"group": GROUP, "kind": "KWOKNodeClass", "name": "default"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name, "labels": LABEL},
        "spec": {"nodeClassRef": ref, "requirements": [FOUR], "expireAfter": "Never"},
    }


def between_plan_and_creation(monkeypatch, act):
    """Have something happen once a plan is made, in time for the watch to show it."""
    create, done = ClaimCreator.create, []

    async def later(creator, planned, **options):
        if not done:
            act()
            await asyncio.sleep(5)
        creation = await create(creator, planned, **options)
        done.append(creation)
        return creation

    monkeypatch.setattr(ClaimCreator, "create", later)
    return done


def test_capacity_created_since_the_plan_counts_against_limits(tmp_path, monkeypatch):
    """Two claims of four cores came in between, where five were allowed."""

    async def scenario(scene):
        pool = node_pool(disruption=KEEP, template={"requirements": [FOUR]}, limits={"cpu": "5"})
        scene.cluster.apply([NODE_CLASS, pool])
        creations = between_plan_and_creation(
            monkeypatch, lambda: scene.cluster.apply([by_hand("one"), by_hand("two")])
        )
        scene.start()
        await scene.cluster.clock.sleep(20)
        scene.cluster.apply([deployment("web", 1)])
        await scene.settle(lambda: bool(creations), seconds=60)

        assert creations[0].names == (None,)
        assert "exceeds limit (cpu)" in creations[0].refused[0]
        assert {claim["metadata"]["name"] for claim in scene.claims()} == {"one", "two"}

    run_controller(tmp_path, scenario)


def test_limits_that_were_raised_since_let_the_pods_be_placed(tmp_path, monkeypatch):
    """Refused pods are planned again, with the nodes created meanwhile."""

    async def scenario(scene):
        pool = node_pool(disruption=KEEP, template={"requirements": [FOUR]}, limits={"cpu": "5"})
        scene.cluster.apply([NODE_CLASS, pool])
        creations = between_plan_and_creation(
            monkeypatch, lambda: scene.cluster.apply([by_hand("one"), by_hand("two")])
        )
        scene.start()
        await scene.cluster.clock.sleep(20)
        scene.cluster.apply([deployment("web", 3, cpu="3")])
        await scene.settle(lambda: bool(creations), seconds=60)
        patch = {"spec": {"limits": {"cpu": "40"}}}
        scene.cluster.server.registry.patch(NODE_POOLS, patch, "general")

        await scene.settle(lambda: len(scene.pods("Running")) == 3, seconds=120)

        assert len(scene.cluster.list(NODE_CLAIMS)) == 3

    run_controller(tmp_path, scenario)
