"""The order and the codes of the checks of a request for a virtual machine."""

from __future__ import annotations

import pytest

STORAGE = "properties.storageProfile"
UNKNOWN_IMAGE = (
    "/CommunityGalleries/AKSUbuntu-38d80f77-467a-481f-a8d4-09b6d4220bd2/images/x/versions/1.0.0"
)


@pytest.mark.parametrize(
    ("path", "value", "status", "code"),
    [
        ("location", None, 400, "LocationRequired"),
        ("properties.osProfile", None, 400, "InvalidParameter"),
        ("properties.osProfile.customData", "not base64!", 400, "InvalidParameter"),
        ("properties.osProfile.linuxConfiguration", {}, 400, "InvalidParameter"),
        ("properties.networkProfile.networkApiVersion", None, 400, "InvalidParameter"),
        ("properties.networkProfile", {"networkInterfaces": []}, 400, "InvalidParameter"),
        ("properties.priority", "Cheap", 400, "InvalidParameter"),
        ("properties.evictionPolicy", "Delete", 400, "InvalidParameter"),
        ("zones", ["1", "2"], 400, "InvalidParameter"),
        ("location", "eastus", 400, "LocationNotAvailableForResourceType"),
        ("zones", ["7"], 400, "InvalidAvailabilityZone"),
        ("properties.hardwareProfile.vmSize", "Standard_X1", 400, "InvalidParameter"),
        (
            f"{STORAGE}.imageReference",
            {"communityGalleryImageId": UNKNOWN_IMAGE},
            404,
            "ImageNotFound",
        ),
        (f"{STORAGE}.osDisk.diskSizeGB", 20, 400, "InvalidParameter"),
        (
            "identity",
            {"type": "UserAssigned", "userAssignedIdentities": {"/subscriptions/x": {}}},
            400,
            "FailedIdentityOperation",
        ),
        (
            f"{STORAGE}.osDisk.managedDisk",
            {"diskEncryptionSet": {"id": "/subscriptions/x"}},
            400,
            "InvalidResourceReference",
        ),
    ],
)
def test_a_request_that_cannot_be_is_refused(azure, cloud, path, value, status, code):
    answer = azure.put(body=azure.changed(path, value))
    assert (answer.status, answer.code) == (status, code)
    assert not cloud.living()
    assert not cloud.interfaces.all


@pytest.mark.parametrize(
    "path",
    [
        "zone",
        "properties.spotPriority",
        "properties.osProfile.sshKeys",
        "properties.storageProfile.osDisk.diskSizeGb",
        "properties.networkProfile.networkInterfaceConfiguration",
    ],
)
def test_an_unknown_member_of_a_request_is_refused(azure, path):
    answer = azure.put(body=azure.changed(path, "x"))
    assert (answer.status, answer.code) == (400, "InvalidRequestContent")
    assert path in answer.message


def test_a_mistyped_member_inside_of_a_list_is_reported(azure):
    body = azure.body()
    (interface,) = body["properties"]["networkProfile"]["networkInterfaceConfigurations"]
    interface["properties"]["ipConfigurations"][0]["properties"]["subnetId"] = "x"
    assert "ipConfigurations[0].properties.subnetId" in azure.put(body=body).message


@pytest.mark.parametrize(
    ("size", "image", "code", "text"),
    [
        ("Standard_D2_v3", "2204gen2containerd", "BadRequest", "Hypervisor Generation '2'"),
        ("Standard_D4s_v5", "2204gen2arm64containerd", "BadRequest", "'x64'"),
        ("Standard_D4pls_v6", "2204gen2containerd", "BadRequest", "'Arm64'"),
    ],
)
def test_an_image_must_fit_the_size(azure, size, image, code, text):
    answer = azure.put(size=size, image=image, zone="1")
    assert (answer.status, answer.code) == (400, code)
    assert text in answer.message


def test_trusted_launch_needs_its_image(azure):
    properties = {"securityProfile": {"securityType": "TrustedLaunch"}}
    assert azure.put(properties=properties).code == "BadRequest"
    assert azure.put(properties=properties, image="2204gen2TLcontainerd").status == 201


def test_an_ephemeral_disk_must_fit_its_placement(azure, cloud):
    # Standard_D4s_v5 has no local disk; a cache disk of D4s_v3 has 100 GiB.
    settings = {"option": "Local", "placement": "CacheDisk"}
    disk = {"createOption": "FromImage", "deleteOption": "Delete", "caching": "ReadOnly"}

    def put(size, disk_gb):
        written = {**disk, "diffDiskSettings": settings, "diskSizeGB": disk_gb, "name": "aks-a"}
        return azure.put(size=size, body=azure.changed(f"{STORAGE}.osDisk", written, size=size))

    answer = put("Standard_D4s_v5", 64)
    assert (answer.status, answer.code) == (409, "NotSupported")
    assert "CacheDisk" in answer.message
    assert put("Standard_D4s_v3", 101).code == "NotSupported"
    assert put("Standard_D4s_v3", 100).status == 201
    assert not cloud.disks.ids


def test_trusted_launch_takes_a_gib_of_an_ephemeral_disk(azure):
    def put(disk_gb):
        disk = {
            "caching": "ReadOnly",
            "createOption": "FromImage",
            "diffDiskSettings": {"option": "Local", "placement": "CacheDisk"},
            "diskSizeGB": disk_gb,
        }
        body = azure.changed(
            f"{STORAGE}.osDisk", disk, size="Standard_D4s_v3", image="2204gen2TLcontainerd"
        )
        body["properties"]["securityProfile"] = {"securityType": "TrustedLaunch"}
        return azure.put(size="Standard_D4s_v3", body=body)

    assert "greater than 99 GB" in put(100).message
    assert put(99).status == 201


def test_a_size_that_the_subscription_may_not_use_is_not_available(azure, cloud):
    (row,) = [each for each in cloud.sizes.all if each.name == "Standard_D4s_v5"]
    assert azure.put("aks-a", zone=min(row.zones)).status == 201
    restricted = next(each for each in cloud.sizes.all if each.restricted_zones)
    zone = min(restricted.restricted_zones)
    image = "2204gen2containerd" if "V2" in restricted.generations else "2204containerd"
    answer = azure.put("aks-b", size=restricted.name, zone=zone, image=image)
    assert (answer.status, answer.code) == (409, "SkuNotAvailable")
    assert restricted.name in answer.message


def test_a_size_without_spot_is_not_available_as_spot(azure, cloud):
    size = next(each for each in cloud.sizes.all if not each.can("LowPriorityCapable"))
    answer = azure.put(size=size.name, zone="", spot=True)
    assert (answer.status, answer.code) == (409, "SkuNotAvailable")


def test_accelerated_networking_needs_a_size_that_has_it(azure, cloud):
    size = next(
        each
        for each in cloud.sizes.all
        if not each.can("AcceleratedNetworkingEnabled")
        and "V2" in each.generations
        and each.architecture == "x64"
    )
    body = azure.body(size=size.name, zone="")
    (interface,) = body["properties"]["networkProfile"]["networkInterfaceConfigurations"]
    interface["properties"]["enableAcceleratedNetworking"] = True
    assert azure.put(body=body).code == "VMSizeIsNotPermittedToEnableAcceleratedNetworking"
    interface["properties"]["enableAcceleratedNetworking"] = False
    assert azure.put(body=body).status == 201


def test_encryption_at_host_needs_a_size_that_has_it(azure, cloud):
    size = next(
        each
        for each in cloud.sizes.all
        if not each.can("EncryptionAtHostSupported")
        and "V2" in each.generations
        and each.architecture == "x64"
    )
    properties = {"securityProfile": {"encryptionAtHost": True}}
    assert azure.put(size=size.name, zone="", properties=properties).code == "InvalidParameter"
    properties["securityProfile"]["encryptionAtHost"] = False
    assert azure.put(size=size.name, zone="", properties=properties).status == 201


def test_ultra_disks_need_a_zone_that_has_them(azure, cloud):
    size = next(
        each
        for each in cloud.sizes.all
        if each.ultra_ssd_zones and each.zones - each.ultra_ssd_zones - each.restricted_zones
    )
    properties = {"additionalCapabilities": {"ultraSSDEnabled": True}}
    without = min(size.zones - size.ultra_ssd_zones)
    answer = azure.put(size=size.name, zone=without, properties=properties)
    assert answer.code == "InvalidParameter"
    zone = min(size.ultra_ssd_zones)
    assert azure.put(size=size.name, zone=zone, properties=properties).status == 201


def test_the_first_check_that_fails_words_the_refusal(azure, cloud):
    cloud.usages.set_limit("cores", 0)
    body = azure.changed("zones", ["7"], size="Standard_X1")
    assert azure.put(body=body).code == "InvalidAvailabilityZone"
    body["zones"] = ["1"]
    assert azure.put(body=body).code == "InvalidParameter"
    assert azure.put().code == "OperationNotAllowed"


def test_a_caller_needs_the_permission_to_join_the_subnet(azure, cloud):
    with cloud.permissions.take("Microsoft.Network/virtualNetworks/subnets/join/action"):
        answer = azure.put()
    assert (answer.status, answer.code) == (403, "LinkedAuthorizationFailed")
    assert not cloud.living()
    assert azure.put().status == 201


def test_a_caller_needs_the_permission_to_assign_an_identity(azure, cloud):
    named = {cloud.world.identity_ids[0]: {}}
    body = azure.changed("identity", {"type": "UserAssigned", "userAssignedIdentities": named})
    with cloud.permissions.take("Microsoft.ManagedIdentity/*"):
        assert azure.put(body=body).code == "LinkedAuthorizationFailed"
    assert azure.put(body=body).status == 201


def test_inline_interfaces_have_tags_since_an_api_version(azure, cloud):
    body = azure.body()
    (interface,) = body["properties"]["networkProfile"]["networkInterfaceConfigurations"]
    interface["tags"] = {"karpenter.sh_nodepool": "default"}
    answer = azure.put(body=body)
    assert (answer.status, answer.code) == (400, "InvalidRequestContent")
    assert "networkInterfaceConfigurations[0].tags" in answer.message
    assert azure.send("PUT", azure.path("aks-a"), body, version="2025-04-01").status == 201
    assert cloud.interfaces.all[0].tags == interface["tags"]
