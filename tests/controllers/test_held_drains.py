"""A node that is launched for the pods of a leaving node waits for them, however long that takes."""

from __future__ import annotations

import pytest

from karpenter_core.kube.resources import DEPLOYMENTS, POD_DISRUPTION_BUDGETS, PODS
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS
from tests.controllers.test_disruption_queue import ALONE, CPU
from tests.controllers.test_termination import budget
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

BUSY_MINUTES = 10
AT_ONCE = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}
"""Empty nodes go as soon as possible."""


def names(objects):
    return {each["metadata"]["name"] for each in objects}


def leaving_pool(policy, *, cpu="2", **options):
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {**CPU, "values": [cpu]},
    ]
    disruption = {**AT_ONCE, "consolidationPolicy": policy}
    return node_pool(disruption=disruption, template={"requirements": requirements}, **options)


async def start(scene, *objects, pods, arguments=()):
    """Start with these objects; return the names of their claims once all is quiet."""
    scene.cluster.apply([NODE_CLASS, *objects])
    scene.start("--disable-leader-election", *arguments)
    await scene.settle(lambda: len(scene.pods("Running")) == pods, seconds=120)
    await scene.cluster.clock.sleep(60)
    return names(scene.claims())


async def claims_during(scene, seconds):
    """Return every claim that there was at some moment of the next while."""
    seen = names(scene.claims())
    for _ in range(seconds):
        await scene.cluster.clock.sleep(1)
        seen |= names(scene.claims())
    return seen


@pytest.mark.parametrize("policy", ["WhenEmpty", "WhenEmptyOrUnderutilized"])
@pytest.mark.parametrize("pods", [1, 3])
def test_an_exhausted_budget_holds_the_node_of_the_pods_to_come(tmp_path, policy, pods):
    """One node is launched; when the budget allows it, the pods move there."""

    async def scenario(scene):
        held = budget("held", "web", minAvailable=pods)
        pool = leaving_pool(policy, cpu="8")
        (old,) = await start(scene, pool, deployment("web", pods), held, pods=pods)
        scene.cluster.delete(NODE_CLAIMS, old)

        seen = await claims_during(scene, 60 * BUSY_MINUTES)

        (new,) = seen - {old}
        assert names(scene.claims()) == {old, new}
        scene.cluster.delete(POD_DISRUPTION_BUDGETS, "held", namespace="default")
        await scene.settle(lambda: names(scene.claims()) == {new}, seconds=120)
        assert {pod["spec"]["nodeName"] for pod in scene.pods("Running")} == {new}

    run_controller(tmp_path, scenario)


def test_a_node_is_removed_when_its_pods_to_come_are_gone(tmp_path):
    """Nothing is expected any more: the node is empty, like every other."""

    async def scenario(scene):
        held = budget("held", "web", minAvailable=1)
        (old,) = await start(scene, leaving_pool("WhenEmpty"), deployment("web", 1), held, pods=1)
        scene.cluster.delete(NODE_CLAIMS, old)
        assert len(await claims_during(scene, 120)) == 2

        scene.cluster.scale(DEPLOYMENTS, "web", 0)

        await scene.settle(lambda: not scene.claims(), seconds=120)

    run_controller(tmp_path, scenario)


def test_no_node_waits_for_pods_that_may_not_leave(tmp_path):
    """They were protected after their node was launched: it is removed, and none follows."""

    async def scenario(scene):
        (old,) = await start(scene, leaving_pool("WhenEmpty"), deployment("web", 1), pods=1)
        scene.cluster.apply([budget("held", "web", minAvailable=1)])
        scene.cluster.delete(NODE_CLAIMS, old)
        await scene.settle(lambda: len(scene.claims()) == 2, seconds=30)
        (pod,) = scene.pods()
        protected = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}
        scene.cluster.server.registry.patch(PODS, protected, pod["metadata"]["name"], "default")

        seen = await claims_during(scene, 60 * BUSY_MINUTES)

        assert len(seen) == 2
        assert names(scene.claims()) == {old}

    run_controller(tmp_path, scenario)


def test_nodes_wait_while_a_rolling_drain_moves_pod_after_pod(tmp_path):
    """Each pod needs a node of its own, and the budget allows one pod at a time."""

    async def scenario(scene):
        held = budget("held", "web", minAvailable=3)
        web = deployment("web", 3, affinity=ALONE)
        old = await start(scene, leaving_pool("WhenEmpty"), web, held, pods=3)
        assert len(old) == 3
        for name in old:
            scene.cluster.delete(NODE_CLAIMS, name)
        seen = await claims_during(scene, 120)
        for minimum in (2, 3, 2, 3, 2):
            spec = {"spec": {"minAvailable": minimum}}
            scene.cluster.server.registry.patch(POD_DISRUPTION_BUDGETS, spec, "held", "default")
            seen |= await claims_during(scene, 60)

        assert len(seen - old) == 3
        assert names(scene.claims()) == seen - old

    run_controller(tmp_path, scenario)


def test_the_replacement_of_a_drifted_node_waits_for_pods_that_are_held_up(tmp_path):
    """The budget is exhausted after the decision, while the replacement starts."""

    async def scenario(scene):
        pool = leaving_pool("WhenEmpty")
        (old,) = await start(scene, pool, deployment("web", 1), pods=1)
        drift = {"spec": {"template": {"metadata": {"labels": {"example.com/generation": "2"}}}}}
        scene.cluster.server.registry.patch(NODE_POOLS, drift, "general", "")
        await scene.settle(lambda: len(scene.claims()) == 2, seconds=120)
        scene.cluster.apply([budget("held", "web", minAvailable=1)])

        seen = await claims_during(scene, 60 * BUSY_MINUTES)

        assert len(seen) == 2
        assert names(scene.claims()) == seen
        scene.cluster.delete(POD_DISRUPTION_BUDGETS, "held", namespace="default")
        await scene.settle(lambda: names(scene.claims()) == seen - {old}, seconds=120)

    run_controller(tmp_path, scenario)


def test_the_replacement_of_consolidated_nodes_waits_for_pods_that_are_held_up(tmp_path):
    """The budget is exhausted after the decision, while the replacement starts."""

    async def scenario(scene):
        pool = leaving_pool("WhenEmptyOrUnderutilized")
        pool["spec"]["template"]["spec"]["requirements"][1]["values"] = ["2", "8"]
        large = deployment("large", 1, cpu="6")
        web = deployment("web", 1)
        (old,) = await start(scene, pool, large, web, pods=2)
        scene.cluster.scale(DEPLOYMENTS, "large", 0)
        await scene.settle(lambda: len(scene.claims()) == 2, seconds=120)
        scene.cluster.apply([budget("held", "web", minAvailable=1)])

        seen = await claims_during(scene, 60 * BUSY_MINUTES)

        assert len(seen) == 2
        assert names(scene.claims()) == seen
        scene.cluster.delete(POD_DISRUPTION_BUDGETS, "held", namespace="default")
        await scene.settle(lambda: names(scene.claims()) == seen - {old}, seconds=120)

    run_controller(tmp_path, scenario)


def test_nodes_wait_for_the_held_up_pods_of_a_static_pool_that_shrinks(tmp_path):
    """The pods move to a dynamic pool, which launches one node for them."""

    async def scenario(scene):
        static = leaving_pool("WhenEmpty", cpu="8", replicas=1)
        static["metadata"]["name"] = "static"
        held = budget("held", "web", minAvailable=1)
        gate = ("--feature-gates=StaticCapacity=true",)
        (old,) = await start(scene, static, deployment("web", 1), held, pods=1, arguments=gate)
        scene.cluster.apply([leaving_pool("WhenEmpty")])
        await scene.cluster.clock.sleep(30)
        scene.cluster.server.registry.patch(NODE_POOLS, {"spec": {"replicas": 0}}, "static", "")

        seen = await claims_during(scene, 60 * BUSY_MINUTES)

        (new,) = seen - {old}
        assert names(scene.claims()) == {old, new}
        scene.cluster.delete(POD_DISRUPTION_BUDGETS, "held", namespace="default")
        await scene.settle(lambda: names(scene.claims()) == {new}, seconds=120)

    run_controller(tmp_path, scenario)


def test_a_new_leader_keeps_the_node_of_held_up_pods(tmp_path):
    """It knows no placements: its first pass places the pods on the node that is there."""

    async def scenario(scene):
        held = budget("held", "web", minAvailable=1)
        scene.cluster.apply([NODE_CLASS, leaving_pool("WhenEmpty"), deployment("web", 1), held])
        running = scene.start("--disable-leader-election")
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=120)
        (old,) = names(scene.claims())
        scene.cluster.delete(NODE_CLAIMS, old)
        seen = await claims_during(scene, 60)
        for pause in (7, 13, 31):
            await running.kill()
            running = scene.start("--disable-leader-election")
            seen |= await claims_during(scene, pause)

        seen |= await claims_during(scene, 120)
        assert len(seen) == 2
        assert names(scene.claims()) == seen

    run_controller(tmp_path, scenario)
