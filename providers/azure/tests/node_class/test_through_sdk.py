"""NodeClasses over the simulated Azure, through the real SDK."""

from __future__ import annotations

import pytest

from karpenter_core.errors import CloudProviderError
from karpenter_provider_azure.images.discovery import SharedGalleries
from karpenter_provider_azure.images.families import (
    EffectiveFamily,
    ImageVariant,
    image_definitions,
)
from karpenter_provider_azure.network.cluster_network import (
    SecurityGroupReader,
    VnetGuidReader,
    backend_pools,
)
from karpenter_simulated_azure.galleries import SIG_SUBSCRIPTION
from karpenter_simulated_azure.world import AzureWorld
from providers.azure.tests.fake_arm import HandClock
from providers.azure.tests.node_class.worlds import Process, node_class_of, said, short_ids

VERSIONS = "communityGalleryImageVersions:list"


@pytest.fixture
def process_of(settings, arm_of):
    """Return a process with some settings."""

    def made(*, version="v1.34.2", **changes):
        own = settings(**changes)
        return Process(version=version, arm=arm_of(own), settings=own)

    return made


@pytest.fixture
def readers(cloud, settings, arm_of):
    """Return a reader by its class."""
    own = settings()
    arm = arm_of(own)

    def made(kind):
        return kind(arm, HandClock(), node_resource_group=own.node_resource_group)

    return made


def test_a_node_class_becomes_ready(cloud, process_of):
    found = process_of().resolve(node_class_of())

    assert said(found, "Ready")[0] == "True", found.status
    assert found.status.kubernetes_version == "1.34.2"
    assert short_ids(found) == [
        "2404gen2containerd 202511.07.0",
        "2404containerd 202511.07.0",
        "2404gen2arm64containerd 202511.07.0",
    ]
    assert [image.id for image in found.status.images] == [
        cloud.galleries.community_id(short_id.split()[0]) for short_id in short_ids(found)
    ]


def test_the_version_that_was_published_last_counts_and_comes_in_the_window(cloud, process_of):
    process = process_of()  # cases 61, 63
    process.set_window(1, 3)
    found = process.resolve(node_class_of())
    cloud.galleries.publish_all("202401.01.0")
    process.restart()

    assert short_ids(process.resolve(found)) == short_ids(found)
    process.later(hours=2)
    assert {it.split()[1] for it in short_ids(process.resolve(found))} == {"202401.01.0"}


def test_many_versions_are_read_from_all_pages(cloud, process_of):
    cloud.galleries.page_size = 1

    assert {it.split()[1] for it in short_ids(process_of().resolve(node_class_of()))} == {
        "202511.07.0"
    }


def test_definitions_that_are_withdrawn_are_skipped_and_none_is_a_condition(cloud, process_of):
    cloud.galleries.withdraw("2404gen2arm64containerd")
    process = process_of()
    found = process.resolve(node_class_of())
    assert len(found.status.images) == 2
    for name in ("2404gen2containerd", "2404containerd"):
        cloud.galleries.withdraw(name)
    process.restart()

    found = process.resolve(found)

    status, reason, message = said(found, "ImagesReady")
    assert (status, reason) == ("False", "ImagesNotFound")
    assert 'spec.imageFamily "Ubuntu"' in message
    assert cloud.world.location in message


@pytest.mark.parametrize("code", ["", "SubscriptionNotFound", "InvalidResourceType"])
def test_another_404_than_that_of_an_image_keeps_images_and_the_window(cloud, process_of, code):
    """Of a proxy, say: images that are cleared come back in their newest version, and nodes drift."""
    process = process_of()
    process.set_window(1, 3)
    found = process.resolve(node_class_of())
    cloud.galleries.publish_all("209901.01.0")
    process.restart()

    with cloud.fail(VERSIONS, code=code, status=404, times=None):
        failed = process.resolve(found)
    assert short_ids(failed) == short_ids(found)
    assert said(failed, "ImagesReady")[1] != "ImagesNotFound"

    process.restart()
    assert short_ids(process.resolve(failed)) == short_ids(found)


def test_galleries_that_name_no_version_for_a_while_move_no_image(cloud, process_of):
    process = process_of()
    process.set_window(1, 3)
    found = process.resolve(node_class_of())
    definitions = [short_id.split()[0] for short_id in short_ids(found)]
    for name in definitions:
        cloud.galleries.withdraw(name)
    process.restart()

    without = process.resolve(found)
    assert said(without, "ImagesReady")[:2] == ("False", "ImagesNotFound")
    assert short_ids(without) == short_ids(found)

    for name in definitions:
        cloud.galleries.publish("AKSUbuntu", name, "209901.01.0")
    process.restart()
    after = process.resolve(without)
    assert said(after, "ImagesReady")[0] == "True"
    assert short_ids(after) == short_ids(found), "the window is closed"


@pytest.mark.parametrize("code", ["NotFound", "ResourceNotFound", "GalleryImageNotFound"])
def test_an_image_that_a_gallery_does_not_have_is_skipped(cloud, process_of, code):
    with cloud.fail(VERSIONS, code=code, status=404, times=1):
        found = process_of().resolve(node_class_of())

    assert said(found, "ImagesReady")[0] == "True"
    assert len(found.status.images) == 2


def test_shared_galleries_have_fips_images(cloud, settings, arm_of):  # cases 59, 62
    source = SharedGalleries(arm_of(settings()), gallery_subscription_id=SIG_SUBSCRIPTION)
    cloud.galleries.publish("AKSUbuntu", "2004fipscontainerd", "202509.1.0")
    definitions = image_definitions(
        EffectiveFamily.UBUNTU_2004, ImageVariant(fips=True, trusted_launch=False)
    )

    assert source.newest_ids(definitions) == {
        it.name: cloud.galleries.shared_id(it.name, "202511.07.0") for it in definitions
    }


@pytest.mark.parametrize(  # cases 68, 69
    ("subnet", "reason"),
    [
        (f"{AzureWorld().vnet_id}/subnets", "SubnetIDInvalid"),
        (f"{AzureWorld().vnet_id}/subnets/mine", "SubnetIDInvalid"),
        (f"{AzureWorld().vnet_id.replace('12345678', '87654321')}/subnets/x", "SubnetIDInvalid"),
        (AzureWorld().subnet_id.upper().replace("/SUBSCRIPTIONS", "/subscriptions"), ""),
    ],
)
def test_subnets_are_compared_with_that_of_the_managed_network(process_of, subnet, reason):
    status, shown, message = said(
        process_of().resolve(node_class_of(vnetSubnetID=subnet)), "SubnetsReady"
    )

    assert status == ("False" if reason else "True")
    if reason:
        assert shown == reason
        assert subnet in message


def test_a_subnet_that_is_missing_or_forbidden_is_named(cloud, process_of):  # case 68
    process = process_of()
    with cloud.permissions.take("Microsoft.Network/virtualNetworks/subnets/read"):
        found = process.resolve(node_class_of())
    status, reason, message = said(found, "SubnetsReady")
    assert (status, reason) == ("False", "SubnetUnknownError")
    assert "Microsoft.Network/virtualNetworks/subnets/read" in message
    assert said(process.resolve(found), "SubnetsReady")[0] == "True"

    cloud.networks.remove(cloud.world.subnet_id)
    process.later(minutes=2)
    assert said(process.resolve(found), "SubnetsReady")[:2] == ("False", "SubnetNotFound")


def test_a_disk_encryption_set_needs_a_role(cloud, process_of):  # case 70
    set_id = cloud.manager.cluster.add_disk_encryption_set("des")
    process = process_of(node_osdisk_diskencryptionset_id=set_id)
    with cloud.permissions.take("Microsoft.Compute/diskEncryptionSets/read"):
        found = process.resolve(node_class_of())
    assert said(found, "ValidationSucceeded")[:2] == ("False", "DiskEncryptionSetRBACMissing")

    ready = process.resolve(found)
    assert said(ready, "ValidationSucceeded")[0] == "True"
    with cloud.fail("diskEncryptionSets:get", code="InternalServerError", status=500, times=None):
        after = process.resolve(ready)
    assert said(after, "ValidationSucceeded") == said(ready, "ValidationSucceeded")


def test_missing_permissions_for_galleries_are_named(cloud, process_of):
    action = "Microsoft.Compute/locations/communityGalleries/images/versions/read"
    with cloud.permissions.take(action):
        found = process_of().resolve(node_class_of())

    status, reason, message = said(found, "ImagesReady")
    assert (status, reason) == ("False", "AuthorizationFailed")
    assert action in message
    assert 'spec.imageFamily "Ubuntu"' in message


def test_wrong_credentials_are_conditions_with_field_and_cause(process_of, monkeypatch, tmp_path):
    token = tmp_path / "token"
    token.write_text("of nobody")
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(token))
    process = process_of()

    found = process.resolve(node_class_of())

    for condition, field in (("ImagesReady", "spec.imageFamily"), ("SubnetsReady", "setting")):
        status, _, message = said(found, condition)
        assert status == "False"
        assert message.startswith(field)
    again = process.resolve(found)
    for condition in ("ImagesReady", "SubnetsReady"):
        message = said(again, condition)[2]
        assert message == said(found, condition)[2], "a text that varies is written in each pass"
        assert "AADSTS50027: JWT token is invalid or malformed." in message
        assert "http" not in message.partition("AADSTS50027")[2]


def test_an_outage_keeps_conditions_and_a_whole_one_resolves_nothing(cloud, process_of):
    process = process_of()
    found = process.resolve(node_class_of())
    process.later(days=4)
    with cloud.fail(VERSIONS, code="InternalServerError", status=500, times=None):
        after = process.resolve(found)
    assert said(after, "ImagesReady") == said(found, "ImagesReady")
    assert said(after, "Ready")[0] == "True"

    process.later(days=4)
    with (
        cloud.fail("*", code="ServiceUnavailable", status=503, times=None),
        pytest.raises(CloudProviderError, match="ServiceUnavailable"),
    ):
        process.answer(found)


def test_a_refused_launch_action_is_named_by_the_error_that_azure_gives(cloud, process_of):
    process = process_of()
    path = cloud.world.resource_id("Microsoft.Compute/virtualMachines", "aks-x")
    with (
        cloud.permissions.take("Microsoft.Compute/virtualMachines/write"),
        pytest.raises(CloudProviderError) as raised,
    ):
        process.arm.send(
            "PUT",
            path,
            api_version="2024-07-01",
            action="virtualMachines:put",
            body={},
        )

    node_class = node_class_of()
    request = type("Request", (), {"node_class": node_class})
    process.refused_launches.note([request], [raised.value])

    status, reason, message = said(process.resolve(node_class), "ValidationSucceeded")
    assert (status, reason) == ("False", "AuthorizationFailed")
    assert "Microsoft.Compute/virtualMachines/write" in message


def test_the_security_group_of_the_cluster_is_discovered(cloud, readers):
    reader = readers(SecurityGroupReader)
    assert reader.current().id == cloud.world.network_security_group_id

    cloud.networks.add_security_group("aks-agentpool-87654321-nsg")
    with pytest.raises(CloudProviderError, match="aks-agentpool-12345678-nsg, aks-agentpool-8"):
        readers(SecurityGroupReader).current()  # case 78
    for digits in ("12345678", "87654321"):
        name = f"aks-agentpool-{digits}-nsg"
        cloud.networks.remove(
            cloud.world.resource_id("Microsoft.Network/networkSecurityGroups", name)
        )
    assert readers(SecurityGroupReader).current() is None


def test_backend_pools_of_interfaces_are_discovered(cloud, readers):  # case 79
    internal = cloud.networks.add_load_balancer(
        "kubernetes-internal", {"kubernetes": (), "kubernetes-ipv6": (), "ip": ("10.224.0.9",)}
    )
    cloud.networks.add_load_balancer("mine", {"kubernetes": ()})

    found = readers(backend_pools).current().value

    assert [it.rpartition("/loadBalancers/")[2] for it in found] == [
        "kubernetes-internal/backendAddressPools/kubernetes",
        "kubernetes/backendAddressPools/aksOutboundBackendPool",
        "kubernetes/backendAddressPools/kubernetes",
    ]
    assert found[0] == internal.pool_id("kubernetes")


def test_the_guid_of_the_virtual_network_is_discovered(cloud, settings, arm_of):
    own = settings()

    assert VnetGuidReader(arm_of(own), HandClock(), own).current() == cloud.world.vnet_guid
