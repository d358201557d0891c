"""Tests mistakes of users and operators on Azure, end to end.

A whole process of the controller runs against an embedded API server in simulated time, with the real
SDK against the simulated cloud. Whatever is wrong is a condition of the AKSNodeClass that names field and
cause, and a finding of `karpenter doctor`; nothing is launched for it, others are served, calls stay
few, and once it is corrected nodes come by themselves.
"""

from __future__ import annotations

from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from karpenter_core.testing.provider_cluster import node_pool_manifest
from karpenter_core.testing.user_mistakes import UserMistake
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_provider_azure.labels import NODE_POOL_TAG
from karpenter_simulated_azure.world import AzureWorld
from providers.azure.tests.stages import CloudStage
from tests.support.cloud_scenarios import in_pool, pod_manifest
from tests.support.user_mistake_runs import as_cluster_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from karpenter_core.testing.provider_cluster import ProviderCluster
    from karpenter_simulated_azure.cloud import SimulatedAzure

PUT = "virtualMachines:put"
MINUTES = 12
"""Duration of each fault."""
CALLS_A_MINUTE = 16
CALLS_AT_FIRST = 80
"""A failed call is retried soon at first, and later with longer waits."""
LAUNCHES_A_MINUTE = 3
"""Of two NodeClasses: a claim is tried again soon, until its NodeClass is known to be refused."""
LONGEST_RECOVERY_SECONDS = 1000
"""A refused launch is retried after five minutes; quotas are read every ten."""
WORLD = AzureWorld()
FOREIGN_SUBNET = WORLD.subnet_id.replace(WORLD.vnet_name, "vnet-of-others")
DES = WORLD.resource_id("Microsoft.Compute/diskEncryptionSets", "keys")
OTHER_GROUP = "aks-agentpool-87654321-nsg"
GALLERY_READ = "Microsoft.Compute/locations/communityGalleries/images/versions/read"


def without(
    action: str, scope: str = "*"
) -> Callable[[SimulatedAzure], AbstractContextManager[object]]:
    return lambda cloud: cloud.permissions.take(action, scope=scope)


def no_token(cloud: SimulatedAzure) -> AbstractContextManager[object]:
    return cloud.fail(
        "tokens:post",
        code="unauthorized_client",
        message="AADSTS700016: Application with identifier 'x' was not found in the directory.",
        status=400,
        times=None,
    )


@contextmanager
def no_images(cloud: SimulatedAzure) -> Iterator[None]:
    """Withdraw the images of Ubuntu."""
    names = [f"2404{kind}containerd" for kind in ("gen2", "", "gen2arm64")]
    for name in names:
        cloud.galleries.withdraw(name)
    yield
    for name in names:
        cloud.galleries.publish("AKSUbuntu", name, "202512.01.0")


@contextmanager
def no_role_on_encryption_set(cloud: SimulatedAzure) -> Iterator[None]:
    cloud.manager.cluster.add_disk_encryption_set("keys")
    with cloud.permissions.take("Microsoft.Compute/diskEncryptionSets/read"):
        yield


@contextmanager
def no_subnet(cloud: SimulatedAzure) -> Iterator[None]:
    """Remove the subnet of the cluster for a while."""
    world = cloud.world
    cloud.networks.remove(world.subnet_id)
    yield
    cloud.networks.add_subnet(world.vnet_id, world.subnet_name, world.subnet_prefix)


@contextmanager
def two_security_groups(cloud: SimulatedAzure) -> Iterator[None]:
    made = cloud.networks.add_security_group(OTHER_GROUP)
    yield
    cloud.networks.remove(made.id)


WRONG: tuple[UserMistake[SimulatedAzure], ...] = (
    UserMistake(
        name="wrong credentials",
        condition="SubnetsReady",
        reason="SubnetUnknownError",
        must_name=("setting vnet-subnet-id", "AADSTS700016"),
        trouble=no_token,
        cloud_check_names="AADSTS700016",
    ),
    UserMistake(
        name="no permission to read the subnet",
        condition="SubnetsReady",
        reason="SubnetUnknownError",
        must_name=("setting vnet-subnet-id", "Microsoft.Network/virtualNetworks/subnets/read"),
        trouble=without("Microsoft.Network/virtualNetworks/subnets/read"),
        cloud_check_names="Microsoft.Network/virtualNetworks/subnets/read",
    ),
    UserMistake(
        name="no permission to read images",
        condition="ImagesReady",
        reason="AuthorizationFailed",
        must_name=('spec.imageFamily "Ubuntu"', GALLERY_READ),
        trouble=without(GALLERY_READ),
        cloud_check_names=GALLERY_READ,
    ),
    UserMistake(
        name="no permission to create virtual machines",
        condition="ValidationSucceeded",
        reason="AuthorizationFailed",
        must_name=("launches were refused", "Microsoft.Compute/virtualMachines/write"),
        trouble=without("Microsoft.Compute/virtualMachines/write"),
        cloud_check_names="Microsoft.Compute/virtualMachines/write",
    ),
    UserMistake(
        name="no permission to join the subnet",
        condition="ValidationSucceeded",
        reason="LinkedAuthorizationFailed",
        must_name=("launches were refused", "Microsoft.Network/virtualNetworks/subnets/join"),
        trouble=without("Microsoft.Network/virtualNetworks/subnets/join/action"),
        cloud_check_names="Microsoft.Network/virtualNetworks/subnets/join/action",
    ),
    UserMistake(
        name="a subnet of another virtual network",
        condition="SubnetsReady",
        reason="SubnetIDInvalid",
        must_name=("spec.vnetSubnetID", FOREIGN_SUBNET, "not in the virtual network"),
        spec={"vnetSubnetID": FOREIGN_SUBNET},
    ),
    UserMistake(
        name="a subnet that does not exist",
        condition="SubnetsReady",
        reason="SubnetNotFound",
        must_name=("setting vnet-subnet-id", WORLD.subnet_name),
        trouble=no_subnet,
        cloud_check_names="--vnet-subnet-id",
    ),
    UserMistake(
        name="two security groups of AKS",
        condition="SubnetsReady",
        reason="SeveralSecurityGroups",
        must_name=(WORLD.node_group, WORLD.network_security_group, OTHER_GROUP),
        trouble=two_security_groups,
        cloud_check_names=OTHER_GROUP,
    ),
    UserMistake(
        name="no version of the images",
        condition="ImagesReady",
        reason="ImagesNotFound",
        must_name=('spec.imageFamily "Ubuntu"', "2404gen2containerd", WORLD.location),
        trouble=no_images,
    ),
    UserMistake(
        name="FIPS without shared galleries",
        condition="ImagesReady",
        reason="SIGRequiredForFIPS",
        must_name=('spec.fipsMode "FIPS"', "use-sig"),
        spec={"fipsMode": "FIPS"},
    ),
    UserMistake(
        name="no role on the disk encryption set",
        condition="ValidationSucceeded",
        reason="DiskEncryptionSetRBACMissing",
        must_name=("node-osdisk-diskencryptionset-id", DES, "diskEncryptionSets/read"),
        trouble=no_role_on_encryption_set,
        settings={"node_osdisk_diskencryptionset_id": DES},
        cloud_check_names="diskEncryptionSets/read",
    ),
)

SIZES = ("Standard_D2s_v5", "Standard_D4s_v5", "Standard_D4pds_v5")
SPARE = "spare"
"""NodePool and NodeClass with which nothing is wrong."""
GENERAL = "general"
POOL = node_pool_manifest(AKSNodeClass, GENERAL)
SPARE_POOL = node_pool_manifest(AKSNodeClass, SPARE, node_class=SPARE)
POD = pod_manifest("web", **in_pool(GENERAL))
SPARE_POD = pod_manifest("spare", **in_pool(SPARE))


@pytest.fixture(scope="module")
def opened() -> Iterator[CloudStage]:
    """One cloud that sells little, as each process reads its catalogue."""
    cloud_stage = CloudStage(SIZES, WORLD)
    with cloud_stage.open():
        yield cloud_stage


@pytest.fixture
def cloud_stage(opened: CloudStage) -> CloudStage:
    """The cloud as it was in the beginning."""
    opened.cloud.reset()
    return opened


def launched_by(cloud: SimulatedAzure) -> list[str]:
    """Return the NodePools of all virtual machines, sorted."""
    return sorted(each.tags[NODE_POOL_TAG] for each in cloud.living())


@pytest.mark.parametrize(
    "case",
    as_cluster_runs(WRONG, but=("wrong credentials", "no permission to create virtual machines")),
)
def test_a_mistake_is_reported_and_nodes_launch_once_it_is_corrected(cloud_stage, tmp_path, case):
    """Conditions, findings, and the number of calls over minutes of simulated time."""
    cloud = cloud_stage.cloud
    is_everybodys = case.trouble is not None and not case.spec

    async def scenario(stage: ProviderCluster) -> None:
        controller = stage.running
        with case.applied_to(cloud):
            cloud.calls.clear()
            stage.apply(cloud_stage.node_class(**case.spec), POOL, POD)
            stage.apply(cloud_stage.node_class(SPARE), SPARE_POOL, SPARE_POD)
            # A refused launch is shown when the NodeClass is resolved the next time.
            await stage.until_ready("False", seconds=400)
            await stage.advance_minutes(MINUTES)
            # The refused launches are tried again from time to time.
            await stage.until_ready("False", seconds=400)
            calls, launches = len(cloud.calls.all), cloud.calls.count(PUT)
            user_messages = await stage.user_messages()

        assert controller.is_alive
        assert launched_by(cloud) == ([] if is_everybodys else [SPARE])
        assert case.missing_messages(user_messages) == []
        assert calls <= CALLS_A_MINUTE * MINUTES + CALLS_AT_FIRST
        assert launches <= LAUNCHES_A_MINUTE * (MINUTES + 2)

        if case.spec:
            right = cloud_stage.node_class()
            stage.apply({**right, "spec": {**dict.fromkeys(case.spec), **right["spec"]}})
        await stage.harness.settle(
            lambda: launched_by(cloud) == [GENERAL, SPARE], seconds=LONGEST_RECOVERY_SECONDS
        )
        assert stage.running is controller
        await stage.until_ready("True")
        assert await stage.doctor_object_errors() == ""

    cloud_stage.play(tmp_path, scenario, **case.settings)


def without_rules(schema: Any) -> Any:
    """Return a schema that lets everything in, as that of an older version might have."""
    if isinstance(schema, list):
        return [without_rules(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_rules(value)
        for key, value in schema.items()
        if key not in {"x-kubernetes-validations", "pattern", "enum"}
    }


@pytest.mark.parametrize(
    ("spec", "condition", "reason", "must_name"),
    [
        (
            {"imageFamily": "Ubuntu1804"},
            "ImagesReady",
            "ImagesNotFound",
            ('spec.imageFamily "Ubuntu1804"', "AzureLinux"),
        ),
        (
            {"vnetSubnetID": "nodes"},
            "SubnetsReady",
            "SubnetIDInvalid",
            ('spec.vnetSubnetID: "nodes"', "is no resource id"),
        ),
    ],
)
def test_a_stored_invalid_field_is_reported(
    cloud_stage, tmp_path, spec, condition, reason, must_name
):
    """An older CRD let it in."""

    async def scenario(stage: ProviderCluster) -> None:
        cluster = stage.harness.cluster
        name = f"{AKSNodeClass.resource.plural}.{AKSNodeClass.resource.group}"
        stored = cluster.find(CUSTOM_RESOURCE_DEFINITIONS, name)
        assert stored is not None
        ours = {**deepcopy(stored), "metadata": {"name": name}}
        stage.apply({**ours, "spec": without_rules(ours["spec"])})
        stage.apply(cloud_stage.node_class(**spec), POOL, POD)
        stage.apply(ours)
        await stage.until_ready("False")
        await stage.advance_minutes(MINUTES)

        shown = stage.conditions()[condition]
        assert (shown["status"], shown["reason"]) == ("False", reason)
        for each in must_name:
            assert each in shown["message"]
            assert each in await stage.doctor_object_errors()
        assert stage.running.is_alive
        assert not cloud_stage.cloud.living()

        stage.apply({**cloud_stage.node_class(), "spec": dict.fromkeys(spec)})
        await stage.harness.settle(lambda: launched_by(cloud_stage.cloud) == [GENERAL])

    cloud_stage.play(tmp_path, scenario)


def test_a_region_without_quota_is_reported_and_nodes_launch_once_there_is_some(
    cloud_stage, tmp_path
):
    cloud = cloud_stage.cloud
    for quota in ("cores", "lowPriorityCores"):
        cloud.usages.set_limit(quota, 0)

    async def scenario(stage: ProviderCluster) -> None:
        stage.apply(cloud_stage.node_class(), POOL, POD)
        await stage.until_ready("True")
        await stage.advance_minutes(MINUTES)

        message = stage.conditions()["ValidationSucceeded"]["message"]
        for each in ('"cores", limit 0', '"lowPriorityCores", limit 0', WORLD.location):
            assert each in message
        assert 'regional vCPUs ("cores", limit 0)' in await stage.doctor_cloud_errors()
        assert not cloud.living()

        for quota in ("cores", "lowPriorityCores"):
            cloud.usages.set_limit(quota, 100)
        await stage.harness.settle(
            lambda: launched_by(cloud) == [GENERAL], seconds=LONGEST_RECOVERY_SECONDS
        )

    cloud_stage.play(tmp_path, scenario)
