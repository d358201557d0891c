"""Builds the body of a virtual machine. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import SPOT
from karpenter_provider_azure.catalogue.capacity import os_disk_of
from karpenter_provider_azure.labels import zone_number
from karpenter_provider_azure.launch.node_network import network_profile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.catalogue.vm_sizes import VmSize
    from karpenter_provider_azure.launch.node_network import NetworkInterface
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["VirtualMachine", "vm_body"]

_COMMUNITY_GALLERY: Final = "/communitygalleries/"
_ANY_PRICE: Final = -1
"""A spot virtual machine is never evicted for its price, which does not exceed that of on-demand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualMachine:
    """All that one virtual machine has of its own."""

    name: str
    size: VmSize
    zone: str
    """The zone label: `westus2-1`, or `0` for none."""
    capacity_type: str
    image_id: str
    custom_data: str = field(repr=False)
    """In base64; has the bootstrap token in it."""
    interface: NetworkInterface
    tags: Mapping[str, str]
    uses_ultra_ssd: bool = False
    custom_script: str = field(default="", repr=False)
    """The command of the extension that makes the node join; empty for none."""


def vm_body(vm: VirtualMachine, node_class: AKSNodeClass, settings: AzureSettings) -> JsonObject:
    """Return the body of the request that creates a virtual machine, its disk and its interface."""
    properties: JsonObject = {
        "hardwareProfile": {"vmSize": vm.size.name},
        "storageProfile": {
            "osDisk": _os_disk(vm, node_class, settings),
            "imageReference": _image_reference(vm.image_id),
        },
        "networkProfile": network_profile(vm.interface, vm.tags),
        "osProfile": _os_profile(vm, settings),
        "priority": "Spot" if vm.capacity_type == SPOT else "Regular",
    }
    if vm.capacity_type == SPOT:
        properties["evictionPolicy"] = "Delete"
        properties["billingProfile"] = {"maxPrice": _ANY_PRICE}
    if security := _security_profile(node_class):
        properties["securityProfile"] = security
    if vm.uses_ultra_ssd:
        properties["additionalCapabilities"] = {"ultraSSDEnabled": True}
    body: JsonObject = {
        "location": settings.location,
        "tags": dict(vm.tags),
        "properties": properties,
    }
    if number := zone_number(vm.zone):
        body["zones"] = [number]
    if settings.node_identities:
        body["identity"] = {
            "type": "UserAssigned",
            "userAssignedIdentities": {each: {} for each in settings.node_identities},
        }
    return body


def _os_disk(vm: VirtualMachine, node_class: AKSNodeClass, settings: AzureSettings) -> JsonObject:
    disk = os_disk_of(vm.size, node_class)
    body: JsonObject = {
        "name": vm.name,
        "diskSizeGB": disk.size_gb,
        "createOption": "FromImage",
        "deleteOption": "Delete",
    }
    if disk.is_ephemeral:
        body["diffDiskSettings"] = {"option": "Local", "placement": disk.placement}
        body["caching"] = "ReadOnly"
    if settings.node_osdisk_diskencryptionset_id:
        encryption = {"id": settings.node_osdisk_diskencryptionset_id}
        body["managedDisk"] = {"diskEncryptionSet": encryption}
    return body


def _image_reference(image_id: str) -> JsonObject:
    """Return the reference of an image of a community gallery, or of a shared one."""
    is_community = image_id.lower().startswith(_COMMUNITY_GALLERY)
    return {"communityGalleryImageId" if is_community else "id": image_id}


def _os_profile(vm: VirtualMachine, settings: AzureSettings) -> JsonObject:
    admin = settings.linux_admin_username
    key = {"path": f"/home/{admin}/.ssh/authorized_keys", "keyData": settings.ssh_public_key}
    return {
        "adminUsername": admin,
        "computerName": vm.name,
        "customData": vm.custom_data,
        "linuxConfiguration": {
            "disablePasswordAuthentication": True,
            "ssh": {"publicKeys": [key]},
        },
    }


def _security_profile(node_class: AKSNodeClass) -> JsonObject:
    """Return what the NodeClass says of security; empty if it leaves it to the subscription."""
    spec = node_class.spec
    profile: JsonObject = {}
    if spec.encryption_at_host is not None:
        profile["encryptionAtHost"] = spec.encryption_at_host
    if spec.uses_trusted_launch:
        profile["securityType"] = "TrustedLaunch"
        profile["uefiSettings"] = {
            "secureBootEnabled": spec.uses_secure_boot,
            "vTpmEnabled": spec.uses_vtpm,
        }
    return profile
