"""The body of a virtual machine has what its claim, size, NodeClass and the settings say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_provider_azure.catalogue.vm_sizes import LocalDisk
from karpenter_provider_azure.launch.node_network import (
    NetworkInterface,
    address_count,
    network_profile,
)
from karpenter_provider_azure.launch.virtual_machines import VirtualMachine, vm_body
from providers.azure.tests.launch.launch_world import (
    IMAGE,
    LOCATION,
    MANAGED_SUBNET,
    POOLS,
    node_class,
    settings,
    vm_size,
)


def interface(**changes):
    fields = {"name": "aks-web-1", "subnet_id": MANAGED_SUBNET, "backend_pool_ids": POOLS}
    return NetworkInterface(**fields | changes)


def size(**fields):
    return vm_size("Standard_D4s_v5", cpus=4, family="f", **fields)


def machine(**changes):
    fields = {
        "name": "aks-web-1",
        "size": size(),
        "zone": "westus2-2",
        "capacity_type": ON_DEMAND,
        "image_id": IMAGE,
        "custom_data": "Ym9vdA==",
        "interface": interface(),
        "tags": {"team": "sea"},
    }
    return VirtualMachine(**fields | changes)


def body(*, spec=None, own_settings=None, **changes):
    return vm_body(machine(**changes), node_class(**spec or {}), own_settings or settings())


def addresses(profile):
    (configuration,) = profile["networkInterfaceConfigurations"]
    return configuration["properties"]["ipConfigurations"]


def test_a_machine_in_a_log_shows_nothing_that_has_the_bootstrap_token():
    shown = repr(machine(custom_data="c2VjcmV0", custom_script="join --token secret"))
    assert "c2VjcmV0" not in shown
    assert "secret" not in shown


def test_disk_and_interface_have_the_name_of_the_machine_and_go_with_it():
    made = body()["properties"]
    (configuration,) = made["networkProfile"]["networkInterfaceConfigurations"]
    disk = made["storageProfile"]["osDisk"]
    assert configuration["name"] == disk["name"] == "aks-web-1"  # case 74
    assert configuration["properties"]["deleteOption"] == disk["deleteOption"] == "Delete"
    assert configuration["tags"] == {"team": "sea"}
    assert made["networkProfile"]["networkApiVersion"] == "2022-11-01"
    assert disk["createOption"] == "FromImage"


def test_spot_is_evicted_by_deletion_and_never_for_its_price():
    made = body(capacity_type=SPOT)["properties"]  # case 75
    assert (made["priority"], made["evictionPolicy"]) == ("Spot", "Delete")
    assert made["billingProfile"] == {"maxPrice": -1}


def test_on_demand_has_no_billing_profile():
    made = body()["properties"]  # case 75
    assert made["priority"] == "Regular"
    assert not {"evictionPolicy", "billingProfile"} & made.keys()


def test_a_zone_label_is_sent_as_the_number_of_the_zone():
    assert body()["zones"] == ["2"]  # case 76
    assert "zones" not in body(zone="0")
    assert body()["location"] == LOCATION


def test_an_overlay_needs_one_address():
    assert address_count(settings(), max_pods=250) == 1  # case 77
    profile = network_profile(interface(), {})
    (only,) = addresses(profile)
    assert (only["name"], only["properties"]["primary"]) == ("aks-web-1", True)


def test_pods_with_addresses_of_the_subnet_get_theirs_from_the_interface():
    count = address_count(settings(network_plugin_mode=""), max_pods=30)
    configurations = addresses(network_profile(interface(addresses=count), {}))
    names = [each["name"] for each in configurations]
    assert names == ["aks-web-1", *(f"ipconfig{n}" for n in range(1, 30))]  # case 77
    with_pools = [
        each["name"]
        for each in configurations
        if "loadBalancerBackendAddressPools" in each["properties"]
    ]
    assert with_pools == ["aks-web-1"]
    assert [each["properties"]["primary"] for each in configurations] == [True] + [False] * 29


def test_other_network_plugins_need_one_address():
    own = settings(network_plugin="none", network_plugin_mode="")
    assert address_count(own, max_pods=250) == 1


def test_a_size_without_accelerated_networking_says_so():
    profile = network_profile(interface(is_accelerated=False), {})
    (configuration,) = profile["networkInterfaceConfigurations"]
    assert configuration["properties"]["enableAcceleratedNetworking"] is False  # case 81


def test_a_security_group_is_sent_only_if_there_is_one():
    (without,) = network_profile(interface(), {})["networkInterfaceConfigurations"]
    (own,) = network_profile(interface(security_group_id="nsg"), {})[
        "networkInterfaceConfigurations"
    ]
    assert "networkSecurityGroup" not in without["properties"]
    assert own["properties"]["networkSecurityGroup"] == {"id": "nsg"}


@pytest.mark.parametrize("value", [True, False])
def test_encryption_at_host_is_sent_as_it_is_set(value):
    made = body(spec={"security": {"encryptionAtHost": value}})["properties"]  # case 87
    assert made["securityProfile"] == {"encryptionAtHost": value}


def test_without_security_settings_there_is_no_security_profile():
    assert "securityProfile" not in body()["properties"]  # case 87


def test_trusted_launch_has_both_switches():
    made = body(spec={"security": {"trustedLaunch": {"vtpm": True}}})["properties"]
    assert made["securityProfile"] == {
        "securityType": "TrustedLaunch",
        "uefiSettings": {"secureBootEnabled": False, "vTpmEnabled": True},
    }


def test_an_ephemeral_disk_is_placed_and_cached():
    own = size(ephemeral_os_disks=(LocalDisk("CacheDisk", 200 * 2**30),))
    disk = body(size=own)["properties"]["storageProfile"]["osDisk"]
    assert disk["diffDiskSettings"] == {"option": "Local", "placement": "CacheDisk"}
    assert (disk["caching"], disk["diskSizeGB"]) == ("ReadOnly", 128)


def test_a_managed_disk_is_neither_placed_nor_cached():
    disk = body()["properties"]["storageProfile"]["osDisk"]
    assert not {"diffDiskSettings", "caching", "managedDisk"} & disk.keys()


def test_a_disk_encryption_set_is_of_the_managed_disk():
    own = settings(node_osdisk_diskencryptionset_id="/des")
    disk = body(own_settings=own)["properties"]["storageProfile"]["osDisk"]
    assert disk["managedDisk"] == {"diskEncryptionSet": {"id": "/des"}}


@pytest.mark.parametrize(
    ("image", "field"),
    [(IMAGE, "communityGalleryImageId"), ("/subscriptions/s/resourceGroups/g/providers/i", "id")],
)
def test_images_of_community_galleries_have_a_field_of_their_own(image, field):
    reference = body(image_id=image)["properties"]["storageProfile"]["imageReference"]
    assert reference == {field: image}


def test_identities_and_ultra_disks_are_sent_only_if_wanted():
    plain = body()
    assert "identity" not in plain
    assert "additionalCapabilities" not in plain["properties"]
    own = body(own_settings=settings(node_identities=("/id",)), uses_ultra_ssd=True)
    assert own["identity"] == {"type": "UserAssigned", "userAssignedIdentities": {"/id": {}}}
    assert own["properties"]["additionalCapabilities"] == {"ultraSSDEnabled": True}


def test_people_log_in_with_the_key_alone():
    made = body()["properties"]["osProfile"]
    assert made["adminUsername"] == "azureuser"
    assert made["linuxConfiguration"] == {
        "disablePasswordAuthentication": True,
        "ssh": {
            "publicKeys": [
                {
                    "path": f"/home/{made['adminUsername']}/.ssh/authorized_keys",
                    "keyData": "ssh-rsa AAAA",
                }
            ]
        },
    }
    assert (made["computerName"], made["customData"]) == ("aks-web-1", "Ym9vdA==")


@given(
    st.sampled_from(["0", "westus2-1", "westus2-3"]),
    st.sampled_from([SPOT, ON_DEMAND]),
    st.integers(1, 250),
)
def test_equal_machines_have_equal_bodies(zone, capacity_type, count):
    """A repeated request must be the same request, and no secret is shown in a log."""
    fields = {"zone": zone, "capacity_type": capacity_type, "interface": interface(addresses=count)}
    assert body(**fields) == body(**fields)
    (configuration,) = body(**fields)["properties"]["networkProfile"][
        "networkInterfaceConfigurations"
    ]
    assert len({each["name"] for each in configuration["properties"]["ipConfigurations"]}) == count


def test_a_machine_hides_its_custom_data_from_logs():
    vm = VirtualMachine(
        name="n",
        size=size(),
        zone="0",
        capacity_type=SPOT,
        image_id=IMAGE,
        custom_data="c2VjcmV0",
        interface=interface(),
        tags={},
        custom_script="join secret",
    )
    assert "c2VjcmV0" not in repr(vm)
    assert "secret" not in repr(vm)
