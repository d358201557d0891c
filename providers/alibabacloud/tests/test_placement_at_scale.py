"""A whole controller plans, launches and ends a thousand instances on Alibaba Cloud.

`launch/test_thousand.py` has what goes wrong on the way (acceptance cases 67 and 68).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.kube.resources import PODS
from karpenter_core.kube.wire.codecs import NODE_POOLS
from karpenter_core.provider.kit.simulated.faults import CloudFault, CloudFaultKind
from karpenter_core.provider.kit.simulated.pools import InstancePool
from karpenter_core.testing.provider_cluster import node_pool_manifest
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_simulated_alibabacloud.types import realistic_types
from karpenter_simulated_alibabacloud.world import WorldPlan
from providers.alibabacloud.tests.stages import CloudStage
from tests.support.cloud_scenarios import pod_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from karpenter_core.testing.provider_cluster import ProviderCluster
    from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud

pytestmark = [pytest.mark.timeout(240), pytest.mark.cluster_runs]

GROUP = "CreateAutoProvisioningGroup"
LARGE = "ecs.g7.large"
MANY = 1000
FEW = 300
"""Of what goes wrong; a thousand are no other matter (`launch/test_thousand.py`)."""
LONGEST_SHORTAGE_MINUTES = 9
"""A sold-out offering is masked for three minutes, and planned with when types are listed anew."""
MOST_LAUNCHES = 30
"""For a thousand claims, which the core brings in portions."""
POOL = node_pool_manifest(
    ECSNodeClass,
    requirements={
        "node.kubernetes.io/instance-type": [LARGE],
        "karpenter.sh/capacity-type": ["on-demand"],
    },
    disruption={"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"},
)
ALONE = "1500m"
"""Of CPU: no two such pods share a machine of two cores."""


@pytest.fixture(scope="module")
def opened() -> Iterator[CloudStage]:
    types = [it for it in realistic_types() if it.name == LARGE]
    with CloudStage(types, WorldPlan(vswitch_prefix=16)).open() as made:
        yield made


@pytest.fixture
def cloud_stage(opened: CloudStage) -> CloudStage:
    """A cloud with addresses for the pods of a thousand instances."""
    opened.cloud.reset()
    return opened


def launched(stage: ProviderCluster) -> dict[str, dict[str, Any]]:
    """Return the NodeClaims that have an instance, by provider ID."""
    claims = stage.harness.claims()
    there = [each for each in claims if each.get("status", {}).get("providerID")]
    claims_by_id = {each["status"]["providerID"]: each for each in there}
    assert len(claims_by_id) == len(there)
    return claims_by_id


def pods(number: int) -> list[dict[str, Any]]:
    return [pod_manifest(f"web-{each:04}", cpu=ALONE) for each in range(number)]


def living_ids(cloud: SimulatedAlibabaCloud) -> set[str]:
    """Return the provider IDs of all instances."""
    return {cloud.instances.provider_id(each) for each in cloud.living()}


async def until_nothing_is_left(cloud_stage: CloudStage, stage: ProviderCluster) -> None:
    """Delete everything that needs instances, and wait until there are none."""
    cluster = stage.harness.cluster
    for pod in stage.harness.pods():
        cluster.delete(PODS, pod["metadata"]["name"], namespace="default")
    cluster.delete(NODE_POOLS, "general")
    await stage.harness.settle(
        lambda: not stage.harness.claims() and not cloud_stage.cloud.living(), seconds=300
    )
    assert not cloud_stage.cloud.held().all


def test_a_thousand_anti_affine_pods_get_a_thousand_instances(cloud_stage, tmp_path):
    """Each instance has one claim, by few calls; after deletion nothing remains."""
    cloud = cloud_stage.cloud

    async def scenario(stage: ProviderCluster) -> None:
        stage.apply(cloud_stage.node_class(), POOL)
        await stage.until_ready("True")
        cloud.calls.clear()
        stage.apply(*pods(MANY))
        await stage.harness.settle(lambda: len(launched(stage)) == MANY)

        found = launched(stage)
        assert living_ids(cloud) == found.keys()
        assert cloud.calls.count(GROUP) <= MOST_LAUNCHES
        for provider_id, claim in found.items():
            instance = cloud.instance(provider_id)
            labels = claim["metadata"]["labels"]
            assert labels["topology.kubernetes.io/zone"] == instance.pool.zone
            assert instance.tags["karpenter.sh/nodepool"] == "general"
            assert instance.tags[f"kubernetes.io/cluster/{cloud.world.cluster}"] == "owned"

        await until_nothing_is_left(cloud_stage, stage)
        assert cloud.calls.count("DeleteInstances") <= MANY / 50

    cloud_stage.play(tmp_path, scenario)


def test_lost_replies_and_short_stock_leave_no_instance_without_a_claim(cloud_stage, tmp_path):
    """Those that got none get theirs when there is stock again."""
    cloud = cloud_stage.cloud
    order: dict[str, int] = {}

    def is_every_other_token(parameters: Mapping[str, object]) -> bool:
        return order.setdefault(str(parameters["ClientToken"]), len(order)) % 2 == 0

    lost = CloudFault(kind=CloudFaultKind.LOST_REPLY, action=GROUP, where=is_every_other_token)

    async def scenario(stage: ProviderCluster) -> None:
        for zone in cloud.world.zones:
            cloud.capacity.stock(
                InstancePool(capacity_type="on-demand", instance_type=LARGE, zone=zone), FEW // 5
            )
        stage.apply(cloud_stage.node_class(), POOL)
        await stage.until_ready("True")
        with cloud.faults.add(lost):
            stage.apply(*pods(FEW))
            await stage.advance_minutes(1)
        assert lost.struck
        await stage.advance_minutes(2)
        assert len(cloud.living()) == 3 * (FEW // 5)
        assert living_ids(cloud) == launched(stage).keys()

        cloud.capacity.clear()
        for _ in range(LONGEST_SHORTAGE_MINUTES):
            await stage.advance_minutes(1)
            if len(cloud.living()) == FEW:
                break
        assert len(launched(stage)) == FEW
        assert living_ids(cloud) == launched(stage).keys()
        await until_nothing_is_left(cloud_stage, stage)

    cloud_stage.play(tmp_path, scenario)
