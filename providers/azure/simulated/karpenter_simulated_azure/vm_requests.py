"""Reads the body of a PUT of a virtual machine."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from karpenter_simulated_azure.arm_api import ArmFault
from karpenter_simulated_azure.vm_members import unknown_members

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.json_objects import JsonObject

__all__ = ["InlineInterface", "VmRequest", "read_vm_request"]

_LONGEST_CUSTOM_DATA: Final = 87380
_MOST_TAGS: Final = 50
_LONGEST_COMPUTER_NAME: Final = 64
_NETWORK_VERSIONS: Final = frozenset({"2020-11-01", "2022-11-01"})
_USER_NAME: Final = re.compile(r"[a-z_][a-z0-9_-]{0,63}", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineInterface:
    """A network interface that is created with its virtual machine."""

    name: str
    properties: JsonObject
    tags: JsonObject
    deleted_with_vm: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VmRequest:
    """The parts of a body that its checks need."""

    name: str
    body: JsonObject
    location: str
    zone: str
    """Empty without a zone."""
    size: str
    is_spot: bool
    image_id: str
    """An id of a gallery, of a shared or of a community gallery."""
    os_disk_gb: int | None
    """None for the size of the image."""
    ephemeral_placement: str | None
    """The placement of an ephemeral OS disk, empty for the default one; None for a managed disk."""
    encryption_set_id: str
    """The disk encryption set of the OS disk; empty without one."""
    encryption_at_host: bool
    trusted_launch: bool
    ultra_ssd: bool
    inline: Sequence[InlineInterface]
    identity_ids: Sequence[str]

    @property
    def accelerated(self) -> bool:
        """Whether an inline network interface has accelerated networking."""
        return any(
            each.properties.get("enableAcceleratedNetworking") is True for each in self.inline
        )


def read_vm_request(name: str, body: JsonObject, api_version: str) -> VmRequest:
    """Return what a body asks for.

    Raises:
        ArmFault: a member is missing, unknown or of another type.
    """
    if unknown := next(unknown_members(body, api_version), ""):
        parent, _, member = unknown.rpartition(".")
        raise ArmFault(
            "InvalidRequestContent",
            f"Could not find member '{member}' on object at '{parent}'. Path '{unknown}'.",
        )
    if not body.get("location"):
        raise ArmFault("LocationRequired", "The location property is required for this definition.")
    properties = _object(body, "properties")
    _check_os_profile(_object(properties, "osProfile"))
    storage = _object(properties, "storageProfile")
    disk = _object(storage, "osDisk")
    network = _object(properties, "networkProfile")
    security = _optional(properties, "securityProfile")
    priority = str(properties.get("priority") or "Regular")
    _check_priority(properties, priority)
    tags = _optional(body, "tags")
    if len(tags) > _MOST_TAGS:
        raise ArmFault(
            "InvalidTags", f"A resource has at most {_MOST_TAGS} tags, and not {len(tags)}."
        )
    inline = [_inline(each) for each in _items(network, "networkInterfaceConfigurations")]
    if not inline:  # Azure takes existing interfaces, too; the simulation does not
        raise _missing("networkProfile.networkInterfaceConfigurations")
    if network.get("networkApiVersion") not in _NETWORK_VERSIONS:
        raise _invalid("networkProfile.networkApiVersion", str(network.get("networkApiVersion")))
    return VmRequest(
        name=name,
        body=body,
        location=str(body["location"]),
        zone=_zone(body),
        size=str(_object(properties, "hardwareProfile").get("vmSize") or ""),
        is_spot=priority == "Spot",
        image_id=_image_id(storage),
        os_disk_gb=_disk_gb(disk),
        ephemeral_placement=_placement(disk),
        encryption_set_id=str(
            _optional(_optional(disk, "managedDisk"), "diskEncryptionSet").get("id") or ""
        ),
        encryption_at_host=_flag(security, "encryptionAtHost"),
        trusted_launch=security.get("securityType") == "TrustedLaunch",
        ultra_ssd=_flag(_optional(properties, "additionalCapabilities"), "ultraSSDEnabled"),
        inline=inline,
        identity_ids=list(_optional(_optional(body, "identity"), "userAssignedIdentities")),
    )


def _check_os_profile(profile: JsonObject) -> None:
    for member in ("computerName", "adminUsername"):
        if not profile.get(member):
            raise _missing(f"osProfile.{member}")
    if len(str(profile["computerName"])) > _LONGEST_COMPUTER_NAME:
        raise _invalid("osProfile.computerName", str(profile["computerName"]))
    if not _USER_NAME.fullmatch(str(profile["adminUsername"])):
        raise _invalid("osProfile.adminUsername", str(profile["adminUsername"]))
    linux = _optional(profile, "linuxConfiguration")
    keys = _items(_optional(linux, "ssh"), "publicKeys")
    if not profile.get("adminPassword") and not any(each.get("keyData") for each in keys):
        raise ArmFault(
            "InvalidParameter",
            "Authentication using either SSH or by user name and password must be enabled in"
            " Linux profile.",
            target="linuxConfiguration",
        )
    data = profile.get("customData")
    if data is not None:
        _check_custom_data(data)


def _check_custom_data(data: object) -> None:
    if not isinstance(data, str) or len(data) > _LONGEST_CUSTOM_DATA or not _is_base64(data):
        raise ArmFault(
            "InvalidParameter",
            "Custom data in OSProfile must be in Base64 encoding and with a maximum length of"
            f" {_LONGEST_CUSTOM_DATA} characters.",
            target="customData",
        )


def _is_base64(text: str) -> bool:
    try:
        b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _check_priority(properties: JsonObject, priority: str) -> None:
    if priority not in {"Regular", "Spot", "Low"}:
        raise _invalid("priority", priority)
    spot_only = [each for each in ("evictionPolicy", "billingProfile") if properties.get(each)]
    if priority == "Regular" and spot_only:
        raise ArmFault(
            "InvalidParameter",
            f"{spot_only[0]} can be set only on Azure Spot Virtual Machines.",
            target=spot_only[0],
        )


def _zone(body: JsonObject) -> str:
    zones: object = body.get("zones") or []
    if not isinstance(zones, list):
        raise _invalid("zones", str(zones))
    named = [str(each) for each in cast("list[object]", zones)]
    if len(named) > 1:
        raise ArmFault(
            "InvalidParameter", "A virtual machine is in one zone at most.", target="zones"
        )
    return named[0] if named else ""


def _image_id(storage: JsonObject) -> str:
    reference = _object(storage, "imageReference")
    for member in ("communityGalleryImageId", "sharedGalleryImageId", "id"):
        if reference.get(member):
            return str(reference[member])
    raise _missing("storageProfile.imageReference.id")


def _disk_gb(disk: JsonObject) -> int | None:
    if disk.get("createOption") != "FromImage":
        raise _invalid("osDisk.createOption", str(disk.get("createOption")))
    found = disk.get("diskSizeGB")
    if found is None:
        return None
    if not isinstance(found, int) or not 1 <= found <= 4095:  # noqa: PLR2004 - limit of OS disks
        raise _invalid("osDisk.diskSizeGB", str(found))
    return found


def _placement(disk: JsonObject) -> str | None:
    settings = _optional(disk, "diffDiskSettings")
    if not settings:
        return None
    if settings.get("option") != "Local":
        raise _invalid("osDisk.diffDiskSettings.option", str(settings.get("option")))
    if disk.get("caching") != "ReadOnly":
        raise ArmFault(
            "InvalidParameter",
            "Ephemeral OS disks need the caching 'ReadOnly'.",
            target="osDisk.caching",
        )
    return str(settings.get("placement") or "")


def _inline(item: JsonObject) -> InlineInterface:
    properties = _object(item, "properties")
    if not item.get("name"):
        raise _missing("networkProfile.networkInterfaceConfigurations.name")
    if not _items(properties, "ipConfigurations"):
        raise _missing("networkProfile.networkInterfaceConfigurations.ipConfigurations")
    # An inline interface is deleted with its virtual machine unless the body says otherwise.
    option = properties.get("deleteOption") or "Delete"
    return InlineInterface(
        name=str(item["name"]),
        properties={key: value for key, value in properties.items() if key != "deleteOption"},
        tags=_optional(item, "tags"),
        deleted_with_vm=option == "Delete",
    )


def _object(parent: JsonObject, member: str) -> JsonObject:
    found = _optional(parent, member)
    if not found:
        raise _missing(member)
    return found


def _optional(parent: JsonObject, member: str) -> JsonObject:
    found: object = parent.get(member)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise _invalid(member, str(found))
    return cast("JsonObject", found)


def _items(parent: JsonObject, member: str) -> list[JsonObject]:
    found: object = parent.get(member)
    if found is None:
        return []
    if not isinstance(found, list) or not all(
        isinstance(each, dict) for each in cast("list[object]", found)
    ):
        raise _invalid(member, str(cast("object", found)))
    return cast("list[JsonObject]", found)


def _flag(parent: JsonObject, member: str) -> bool:
    found = parent.get(member, False)
    if found is None:
        return False
    if not isinstance(found, bool):
        raise _invalid(member, str(found))
    return found


def _missing(member: str) -> ArmFault:
    return ArmFault(
        "InvalidParameter", f"Required parameter '{member}' is missing (null).", target=member
    )


def _invalid(member: str, value: str) -> ArmFault:
    return ArmFault(
        "InvalidParameter",
        f"The value '{value}' of parameter '{member}' is invalid.",
        target=member,
    )
