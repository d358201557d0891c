"""Tests the end of stopped instances that no NodeClaim uses, through the whole controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.testing.provider_cluster import node_pool_manifest
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_simulated_alibabacloud.types import realistic_types
from providers.alibabacloud.tests.stages import CloudStage
from tests.support.cloud_scenarios import joining, pod_manifest

if TYPE_CHECKING:
    from karpenter_core.testing.provider_cluster import ProviderCluster

LARGE = "ecs.g7.large"


def test_a_stopped_instance_without_a_claim_is_deleted(tmp_path):
    """ECS goes on billing it, and describes it like one that is being deleted."""
    cloud_stage = CloudStage([it for it in realistic_types() if it.name == LARGE])
    cloud = cloud_stage.cloud

    async def scenario(stage: ProviderCluster) -> None:
        harness = stage.harness
        async with joining(cloud_stage.cloud, stage):
            pool = node_pool_manifest(
                ECSNodeClass, requirements={"node.kubernetes.io/instance-type": [LARGE]}
            )
            stage.apply(cloud_stage.node_class(), pool)
            await stage.until_ready("True")
            stage.apply(pod_manifest("web"))
            await harness.settle(lambda: len(harness.claims()) == 1)
        # Before its node has joined, somebody stops the instance and forces the NodeClaim away.
        await harness.settle(lambda: bool(cloud.living()))
        (instance,) = cloud.living()
        await stage.running.stop()
        cloud.stop_instance(instance.id)
        (claim,) = harness.claims()
        name = claim["metadata"]["name"]
        harness.cluster.patch(NODE_CLAIMS, name, {"metadata": {"finalizers": []}})
        harness.cluster.delete(NODE_CLAIMS, name)
        stage.running = harness.start()

        await stage.advance_minutes(15)

        assert instance.id not in {each.id for each in cloud.living()}

    with cloud_stage.open():
        cloud_stage.play(tmp_path, scenario)
