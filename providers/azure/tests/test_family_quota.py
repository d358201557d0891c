"""Tests end to end that the quota of a VM family blocks that family and nothing else.

A whole process of the controller runs in simulated time, with the real SDK against the simulated cloud.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from karpenter_core.testing.provider_cluster import node_pool_manifest
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_simulated_azure.invariants import broken_invariants
from providers.azure.tests.stages import CloudStage
from tests.support.cloud_scenarios import in_pool, joining, pod_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_core.testing.provider_cluster import ProviderCluster

CHEAP, OTHER = "Standard_D4s_v5", "Standard_D4ds_v5"
FAMILY = "standardDSv5Family"
PUT = "virtualMachines:put"


@pytest.fixture(scope="module")
def cloud_stage() -> Iterator[CloudStage]:
    stage = CloudStage({CHEAP, OTHER})
    with stage.open():
        yield stage


@pytest.mark.parametrize("is_read_before", [True, False], ids=["known", "met by a launch"])
def test_a_familys_quota_blocks_that_family_and_nothing_else(
    cloud_stage, tmp_path, *, is_read_before
):
    cloud = cloud_stage.cloud
    cloud.reset()
    pools = {
        capacity_type: node_pool_manifest(
            AKSNodeClass,
            capacity_type,
            requirements={"karpenter.sh/capacity-type": [capacity_type]},
        )
        for capacity_type in ("on-demand", "spot")
    }
    pods = {  # one fills a node
        capacity_type: [
            pod_manifest(f"{capacity_type}-{number}", cpu="3", **in_pool(capacity_type))
            for number in range(count)
        ]
        for capacity_type, count in (("on-demand", 4), ("spot", 2))
    }

    def launched() -> Counter[tuple[str, str]]:
        return Counter((it.pool.instance_type, it.pool.capacity_type) for it in cloud.living())

    async def scenario(stage: ProviderCluster) -> None:
        async with joining(cloud, stage):
            if is_read_before:
                cloud.usages.set_limit(FAMILY, 7)  # room for one
            stage.apply(cloud_stage.node_class(), *pools.values())
            await stage.until_ready("True")
            await stage.advance_minutes(1)
            cloud.usages.set_limit(FAMILY, 7)
            stage.apply(*pods["on-demand"], *pods["spot"])
            await stage.harness.settle(lambda: len(stage.harness.pods("Running")) == 6, seconds=600)

        assert launched() == {
            (CHEAP, "on-demand"): 1,
            (OTHER, "on-demand"): 3,
            (CHEAP, "spot"): 2,
        }
        refused = cloud.calls.count(PUT) - 6
        assert refused == 0 if is_read_before else refused >= 1
        assert broken_invariants(cloud) == []

    cloud_stage.play(tmp_path, scenario)
