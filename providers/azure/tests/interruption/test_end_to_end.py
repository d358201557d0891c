"""Evictions through the whole controller, in simulated time."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.api.labels import TERMINATION_TIMESTAMP
from karpenter_core.testing.provider_cluster import node_pool_manifest
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_simulated_azure.invariants import broken_invariants
from providers.azure.tests.stages import CloudStage
from tests.support.cloud_scenarios import joining, pod_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_core.testing.provider_cluster import ProviderCluster

SIZE = "Standard_D2s_v5"
NEVER = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}


@pytest.fixture
def cloud_stage() -> Iterator[CloudStage]:
    made = CloudStage({SIZE})
    with made.open():
        yield made


def spot_pool() -> dict[str, Any]:
    requirements = {
        "node.kubernetes.io/instance-type": [SIZE],
        "karpenter.sh/capacity-type": ["spot"],
    }
    return node_pool_manifest(AKSNodeClass, requirements=requirements, disruption=NEVER)


def deployment() -> dict[str, Any]:
    pod = pod_manifest("web", cpu="500m")
    labels = {"app": "web"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
        },
    }


def test_an_evicted_node_is_replaced_elsewhere_before_its_end(cloud_stage, tmp_path):
    """# case 129"""
    cloud = cloud_stage.cloud

    async def scenario(stage: ProviderCluster) -> None:
        async with joining(cloud, stage):
            harness = stage.harness
            stage.apply(cloud_stage.node_class(), spot_pool())
            await stage.until_ready("True")
            stage.apply(deployment())
            await harness.settle(lambda: len(harness.pods("Running")) == 1, seconds=300)
            (claim,) = harness.claims()
            (machine,) = cloud.living()
            name, zone = claim["metadata"]["name"], machine.pool.zone

            ends_at = cloud.reclaim(claim["status"]["providerID"])

            def evicted():
                return next((it for it in harness.claims() if it["metadata"]["name"] == name), None)

            await harness.settle(
                lambda: "deletionTimestamp" in evicted()["metadata"],
                seconds=1,
            )
            told = evicted()["metadata"]["annotations"][TERMINATION_TIMESTAMP]
            assert abs((datetime.fromisoformat(told) - ends_at).total_seconds()) < 1

            # The replacement is launched before the deadline, and not where the eviction was.
            await harness.settle(lambda: len(cloud.launches.all) == 2, seconds=25)
            assert cloud.time() < ends_at
            (second,) = (it for it in cloud.living() if it is not machine)
            assert second.pool.zone != zone
            await harness.settle(
                lambda: evicted() is None and len(harness.pods("Running")) == 1, seconds=300
            )
            assert [it.name for it in cloud.living()] == [second.name]
            assert not broken_invariants(cloud)

    cloud_stage.play(tmp_path, scenario)
