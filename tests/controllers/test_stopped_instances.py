"""An instance that somebody has stopped is replaced, unless it is started again soon."""

from __future__ import annotations

import pytest

from karpenter_core.kube.resources import NODES
from tests.controllers.whole_controller import (
    NODE_CLASS,
    cloud,
    deployment,
    node_pool,
    run_controller,
)

KEEP = {
    "consolidationPolicy": "WhenEmpty",
    "consolidateAfter": "Never",
    "budgets": [{"nodes": "0"}],
}
SHUTDOWN = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}


def stop_instance(scene, node):
    """Stop a node; the cloud controller manager says so, and the cloud lists the instance on."""
    scene.cluster.kubelets.fail(node)
    taints = scene.cluster.find(NODES, node)["spec"].get("taints") or []
    scene.cluster.patch(NODES, node, {"spec": {"taints": [*taints, SHUTDOWN]}})


def start_instance(scene, node):
    scene.cluster.kubelets.heal(node)
    scene.cluster.patch(NODES, node, {"spec": {"taints": None}})


def names(objects):
    return {each["metadata"]["name"] for each in objects}


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_stopped_instance_is_replaced_unless_it_is_started_soon(tmp_path, is_restarted):
    """No cloud lists it as gone: its claim would be kept, and paid for, for ever."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), deployment("web", 1)])
        running = scene.start("--disable-leader-election")
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        await scene.cluster.clock.sleep(60)
        (node,) = names(scene.nodes())
        stop_instance(scene, node)
        await scene.cluster.clock.sleep(200)
        assert names(scene.nodes()) == {node}
        if is_restarted:
            start_instance(scene, node)
            await scene.cluster.clock.sleep(900)
            assert names(scene.nodes()) == {node}
            return

        await scene.settle(lambda: node not in names(scene.nodes()), seconds=900)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        assert len(cloud(scene, tmp_path)["instances"]) == 1
        assert {each["involvedObject"]["kind"] for each in scene.events("InstanceStopping")} == {
            "Node",
            "NodeClaim",
        }
        (entry,) = running.process.runtime.journal.latest(kind="disrupt")
        assert (entry.method, entry.reason) == ("garbage-collection", "GarbageCollected")
        assert entry.cause.endswith("has stopped")

    run_controller(tmp_path, scenario)
