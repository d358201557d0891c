"""Virtual machines through the whole controller, in simulated time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.testing.provider_cluster import node_pool_manifest
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_provider_azure.instance_tags import instance_tags
from karpenter_simulated_azure.invariants import broken_invariants, leftovers
from providers.azure.tests.stages import CloudStage
from tests.support.cloud_scenarios import joining, pod_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_core.testing.provider_cluster import ProviderCluster

SIZE = "Standard_D2s_v5"


@pytest.fixture(scope="module")
def opened() -> Iterator[CloudStage]:
    made = CloudStage({SIZE, "Standard_D4s_v5"})
    with made.open():
        yield made


@pytest.fixture
def cloud_stage(opened: CloudStage) -> CloudStage:
    opened.cloud.reset()
    return opened


def pool(**disruption: Any) -> dict[str, Any]:
    requirements = {
        "node.kubernetes.io/instance-type": [SIZE],
        "karpenter.sh/capacity-type": ["on-demand"],
    }
    kept = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never", **disruption}
    return node_pool_manifest(AKSNodeClass, requirements=requirements, disruption=kept)


def test_tags_of_a_node_class_change_in_place(cloud_stage, tmp_path):
    """# case 107: the node has not drifted"""
    cloud = cloud_stage.cloud

    async def scenario(stage: ProviderCluster) -> None:
        async with joining(cloud, stage):
            harness = stage.harness
            stage.apply(cloud_stage.node_class(tags={"team": "sea"}), pool())
            await stage.until_ready("True")
            stage.apply(pod_manifest("web", cpu="500m"))
            await harness.settle(lambda: len(harness.pods("Running")) == 1, seconds=300)
            (machine,), (interface,) = cloud.living(), cloud.interfaces.all
            assert (machine.tags["team"], interface.tags["team"]) == ("sea", "sea")
            cloud.calls.clear()

            stage.apply(cloud_stage.node_class(tags={"team": "air"}))

            await harness.settle(lambda: machine.tags["team"] == "air", seconds=300)
            (interface,) = cloud.interfaces.all
            assert interface.tags["team"] == "air"
            assert cloud.calls.count("virtualMachines:patch") == 1
            await stage.advance_minutes(15)
            assert cloud.calls.count("virtualMachines:patch") == 1
            assert cloud.living() == [machine]
            (claim,) = harness.claims()
            assert "Drifted" not in {each["type"] for each in claim["status"]["conditions"]}

    cloud_stage.play(tmp_path, scenario)


def test_a_virtual_machine_without_a_claim_is_deleted_after_a_while(cloud_stage, tmp_path):
    """# case 118: after the core's own grace, with disk and interface; those of others stay"""
    cloud = cloud_stage.cloud
    tags = instance_tags(
        {},
        additional_tags={},
        cluster=cloud.world.cluster_name,
        claim_uid="uid-of-gone",
        node_pool="general",
    )

    async def scenario(stage: ProviderCluster) -> None:
        stage.apply(cloud_stage.node_class(), pool())
        await stage.until_ready("True")
        cloud.create_vm("aks-gone", tags=tags)
        cloud.create_foreign_vm()
        await stage.advance_minutes(0.9)
        assert len(cloud.living()) == 2
        await stage.advance_minutes(5)
        (foreign,) = cloud.living()
        assert foreign.name == "aks-other-abcde"
        assert len(list(leftovers(cloud))) == 3
        assert not broken_invariants(cloud)

    cloud_stage.play(tmp_path, scenario)
