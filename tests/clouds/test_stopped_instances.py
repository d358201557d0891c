"""An instance that somebody stops in the cloud's console is replaced, and ended, on each cloud.

No message tells of it. The cloud describes the instance on; kubelet and cloud controller manager, which the
test plays, write that its Node is not Ready and shut down.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.kube.resources import NODES
from karpenter_core.provider.kit.simulated.instances import InstancePhase
from karpenter_core.testing.provider_cluster import node_pool_manifest
from tests.clouds.stages import STAGES
from tests.controllers.whole_controller import deployment

if TYPE_CHECKING:
    from pathlib import Path

    from karpenter_core.provider.kit.simulated.cloud import SimulatedCloud
    from karpenter_core.testing.provider_cluster import ProviderCluster

pytestmark = [pytest.mark.timeout(300)]

SHUTDOWN = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}
KEEP = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}


async def register_nodes(cloud: SimulatedCloud[Any], cluster: ProviderCluster) -> None:
    """Register the Node of each instance once, and let it be Ready."""
    embedded = cluster.harness.cluster
    registered, announced = set[str](), set[str]()
    while True:
        for provider_id, node in dict(cloud.nodes()).items():
            name, conditions = node["metadata"]["name"], node["status"].get("conditions")
            if provider_id not in registered:
                registered.add(provider_id)
                embedded.apply([node])
            elif conditions and provider_id not in announced:
                announced.add(provider_id)
                current = embedded.find(NODES, name)["status"].get("conditions", ())
                body = {"status": {"conditions": [*current, *conditions]}}
                embedded.server.registry.patch(NODES, body, name, part="status")
        await embedded.clock.sleep(1)


def stop(cloud: SimulatedCloud[Any], instance_id: str) -> None:
    """Stop an instance; Azure describes a machine that is deallocated like one that runs."""
    if hasattr(cloud, "stop_instance"):
        cloud.stop_instance(instance_id)


def ready_pods(cluster: ProviderCluster) -> int:
    return len(cluster.harness.pods("Running"))


@pytest.mark.parametrize("provider", sorted(STAGES))
def test_a_stopped_instance_is_replaced_and_ended(provider: str, tmp_path: Path) -> None:
    stage = STAGES[provider]()
    cloud = stage.cloud

    async def story(cluster: ProviderCluster) -> None:
        harness = cluster.harness
        kubelets = asyncio.create_task(register_nodes(cloud, cluster))
        try:
            pool = node_pool_manifest(
                stage.model,
                requirements={"karpenter.sh/capacity-type": ["on-demand"]},
                disruption=KEEP,
            )
            cluster.apply(stage.node_class(), pool, deployment("web", 1))
            await harness.settle(lambda: ready_pods(cluster) == 1, seconds=900)
            await cluster.advance_minutes(1)
            (node,) = harness.nodes()
            name, provider_id = node["metadata"]["name"], node["spec"]["providerID"]
            (stopped,) = (each for each in cloud.living() if cloud.provider_id(each) == provider_id)

            stop(cloud, stopped.id)
            harness.cluster.kubelets.fail(name)
            taints = harness.cluster.find(NODES, name)["spec"].get("taints") or []
            harness.cluster.patch(NODES, name, {"spec": {"taints": [*taints, SHUTDOWN]}})

            def is_replaced() -> bool:
                names = {each["metadata"]["name"] for each in harness.nodes()}
                return name not in names and ready_pods(cluster) == 1

            await harness.settle(is_replaced, seconds=1800)
            await harness.settle(lambda: not lives(stopped), seconds=900)
            assert len(harness.claims()) == 1
        finally:
            kubelets.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await kubelets

    def lives(instance: Any) -> bool:
        living = {each.id for each in cloud.living()}
        return instance.id in living and cloud.phase_of(instance) is not InstancePhase.FAILED

    with stage.open():
        stage.play(tmp_path, story)
