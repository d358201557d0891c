"""Tests the zones of launched instances through the whole controller.

Pods are placed, instances join and pods run, in simulated time (acceptance cases 48, 50, 57, 62 and 64).
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.kube.resources import NODES
from karpenter_core.testing.provider_cluster import node_pool_manifest
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_simulated_alibabacloud.types import realistic_types
from providers.alibabacloud.tests.stages import CloudStage
from tests.support.cloud_scenarios import joining, pod_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from karpenter_core.testing.provider_cluster import ProviderCluster
    from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud

GROUP = "CreateAutoProvisioningGroup"
LARGE, ARM = "ecs.g7.large", "ecs.g8y.large"
ZONE_B, ZONE_G, ZONE_H = (f"cn-hangzhou-{letter}" for letter in "bgh")
NEVER = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
ALONE = "1500m"
"""Of CPU: no two such pods share a machine of two cores."""
LISTED_MINUTES = 5
"""Longest time between listings: offerings that are available again are used then."""
CSI_ZONE = "topology.diskplugin.csi.alibabacloud.com/zone"


@pytest.fixture(scope="module")
def opened() -> Iterator[CloudStage]:
    cloud_stage = CloudStage([it for it in realistic_types() if it.name in {LARGE, ARM}])
    with cloud_stage.open():
        yield cloud_stage


@pytest.fixture
def cloud_stage(opened: CloudStage) -> CloudStage:
    """A cloud where zone b is the cheapest for spot by far."""
    opened.cloud.reset()
    for name in (LARGE, ARM):
        opened.cloud.prices.set_spot(name, ZONE_B, 0.01)
    return opened


def pool(**requirements: Sequence[str]) -> dict[str, Any]:
    """Return a NodePool of large instances unless it is said otherwise; its nodes stay."""
    wanted = {
        "node.kubernetes.io/instance-type": requirements.get("types", [LARGE]),
        "karpenter.sh/capacity-type": requirements.get("capacity", ["spot"]),
        "kubernetes.io/arch": requirements.get("arch", ["amd64"]),
    }
    return node_pool_manifest(ECSNodeClass, requirements=wanted, disruption=NEVER)


def zones(cloud: SimulatedAlibabaCloud) -> dict[str, int]:
    """Count the instances by zone."""
    return dict(Counter(each.pool.zone for each in cloud.living()))


def asked_for(cloud: SimulatedAlibabaCloud) -> set[str]:
    """Return the vSwitches that any launch could have gone into."""
    configs = [call.parameters["LaunchTemplateConfig"] for call in cloud.calls.of(GROUP)]
    read = [json.loads(each) if isinstance(each, str) else each for each in configs]
    return {config["VSwitchId"] for each in read for config in each}


async def until_running(stage: ProviderCluster, count: int, *, seconds: float = 120) -> None:
    await stage.harness.settle(lambda: len(stage.harness.pods("Running")) == count, seconds=seconds)


def nothing_is_leaked(cloud: SimulatedAlibabaCloud, stage: ProviderCluster) -> bool:
    """Whether instances and claims are one to one."""
    claimed = [claim["status"]["providerID"] for claim in stage.harness.claims()]
    living_ids = [cloud.instances.provider_id(each) for each in cloud.living()]
    return sorted(claimed) == sorted(living_ids) == sorted(set(living_ids))


def sell_out_zone_b(cloud: SimulatedAlibabaCloud, left: int) -> Callable[[], None]:
    from karpenter_core.provider.kit.simulated.pools import InstancePool

    cloud.capacity.stock(InstancePool(capacity_type="*", instance_type="*", zone=ZONE_B), left)
    return cloud.capacity.clear


def fill_vswitch_of_zone_b(cloud: SimulatedAlibabaCloud, left: int) -> Callable[[], None]:
    vswitch = cloud.world.vswitches[ZONE_B]
    cloud.networks.leave_addresses(vswitch, left)
    return lambda: cloud.networks.leave_addresses(vswitch, 1000)


@pytest.mark.parametrize("left", [0, 2])
@pytest.mark.parametrize(
    ("exhaust", "minutes"),
    [(sell_out_zone_b, 3), (fill_vswitch_of_zone_b, 5)],
    ids=["no stock", "no addresses"],
)
def test_an_exhausted_zone_is_replaced_until_it_has_stock(
    cloud_stage, tmp_path, exhaust, minutes, left
):
    """In the same launch, though the cheapest zone counted as free when it was made."""
    cloud = cloud_stage.cloud

    async def scenario(stage: ProviderCluster) -> None:
        async with joining(cloud_stage.cloud, stage):
            stage.apply(cloud_stage.node_class(), pool())
            await stage.until_ready("True")
            mend = exhaust(cloud, left)
            cloud.calls.clear()
            stage.apply(*(pod_manifest(f"first-{n}", cpu=ALONE) for n in range(5)))
            await until_running(stage, 5)
            # Zone h has no spot.
            assert zones(cloud) == {ZONE_G: 5 - left, **({ZONE_B: left} if left else {})}
            assert cloud.calls.count(GROUP) == 1

            # For a while it is not even asked for.
            cloud.calls.clear()
            stage.apply(pod_manifest("second", cpu=ALONE))
            await until_running(stage, 6)
            assert asked_for(cloud) == {cloud.world.vswitches[ZONE_G]}
            assert nothing_is_leaked(cloud, stage)

            mend()
            await stage.advance_minutes(minutes + LISTED_MINUTES)
            stage.apply(pod_manifest("third", cpu=ALONE))
            await until_running(stage, 7)
            assert zones(cloud) == {ZONE_B: left + 1, ZONE_G: 6 - left}
            assert nothing_is_leaked(cloud, stage)

    cloud_stage.play(tmp_path, scenario)


def bound_to_zone_g(bound_by: str) -> list[dict[str, Any]]:
    """Return a pod that can run in one zone only, with what says so."""
    if bound_by == "requirement":
        selector = {"topology.kubernetes.io/zone": ZONE_G}
        return [pod_manifest("bound", nodeSelector=selector)]
    metadata = {"name": "data", "namespace": "default"}
    term = {"matchExpressions": [{"key": CSI_ZONE, "operator": "In", "values": [ZONE_G]}]}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "disk"},
        "spec": {
            "capacity": {"storage": "20Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": metadata,
            "csi": {"driver": "diskplugin.csi.alibabacloud.com", "volumeHandle": "d-1"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {**metadata, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "20Gi"}},
            "volumeName": "disk",
            "storageClassName": "",
        },
    }
    mounted = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    return [volume, claim, pod_manifest("bound", volumes=mounted)]


@pytest.mark.parametrize(
    ("capacity_type", "bound_by", "policy", "exhaust"),
    [
        ("on-demand", "requirement", "balanced", "stock"),
        ("on-demand", "volume", "cheapest", "addresses"),
        ("spot", "requirement", "cheapest", "addresses"),
        ("spot", "volume", "balanced", "stock"),
    ],
)
def test_zone_bound_pods_launch_in_their_zone_or_wait(
    cloud_stage, tmp_path, capacity_type, bound_by, policy, exhaust
):
    """Case 48: though another zone has more, and is cheaper."""
    cloud = cloud_stage.cloud
    vswitch = cloud.world.vswitches[ZONE_G]

    async def scenario(stage: ProviderCluster) -> None:
        async with joining(cloud_stage.cloud, stage):
            stage.apply(
                cloud_stage.node_class(vSwitchSelectionPolicy=policy),
                pool(capacity=[capacity_type]),
            )
            await stage.until_ready("True")
            if exhaust == "stock":
                cloud.capacity.sell_out(zone=ZONE_G)
            else:
                cloud.networks.leave_addresses(vswitch, 0)
            cloud.calls.clear()
            stage.apply(*bound_to_zone_g(bound_by))
            await stage.advance_minutes(8)
            assert asked_for(cloud) == {vswitch}
            assert cloud.calls.count(GROUP) <= 4
            assert not cloud.living()

            cloud.capacity.clear()
            cloud.networks.leave_addresses(vswitch, 1000)
            await until_running(stage, 1, seconds=60 * (5 + LISTED_MINUTES))
            assert zones(cloud) == {ZONE_G: 1}
            assert asked_for(cloud) == {vswitch}
            assert nothing_is_leaked(cloud, stage)

    cloud_stage.play(tmp_path, scenario)


@pytest.mark.parametrize("sold_out", ["", LARGE, ARM])
def test_each_instance_boots_an_image_of_its_architecture(cloud_stage, tmp_path, sold_out):
    """Case 57: also what comes instead of the other architecture, which is sold out."""
    cloud = cloud_stage.cloud
    both = pool(types=[LARGE, ARM], arch=["amd64", "arm64"])

    async def scenario(stage: ProviderCluster) -> None:
        async with joining(cloud_stage.cloud, stage):
            stage.apply(
                cloud_stage.node_class(imageSelectorTerms=[{"alias": "AlibabaCloudLinux3"}]), both
            )
            await stage.until_ready("True")
            if sold_out:
                cloud.capacity.sell_out(instance_type=sold_out)
            pinned = [] if sold_out else ["amd64", "arm64"]
            for arch in pinned:
                selector = {"kubernetes.io/arch": arch}
                stage.apply(
                    *(pod_manifest(f"{arch}-{n}", cpu=ALONE, nodeSelector=selector) for n in (1, 2))
                )
            stage.apply(*(pod_manifest(f"any-{n}", cpu=ALONE) for n in (1, 2)))
            await until_running(stage, 2 * len(pinned) + 2)

            found = {name: "arm64" if name == ARM else "x86_64" for name in (LARGE, ARM)}
            for each in cloud.living():
                image = cloud.images.get(each.image_id)
                assert image is not None
                assert image.architecture == found[each.pool.instance_type]
            nodes = {
                node["metadata"]["name"]: node["metadata"]["labels"]["kubernetes.io/arch"]
                for node in stage.harness.cluster.list(NODES)
            }
            for pod in stage.harness.pods():
                arch = pod["metadata"]["name"].rpartition("-")[0]
                assert arch in {"any", nodes[pod["spec"]["nodeName"]]}
            assert sold_out not in {each.pool.instance_type for each in cloud.living()}
            assert nothing_is_leaked(cloud, stage)

    cloud_stage.play(tmp_path, scenario)
