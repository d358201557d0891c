"""Builds the content of launch templates.

Pure functions of values. A template is named after its content, so an equal launch finds the
template of an earlier one, and different content never hides under a known name.
"""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.api.labels import RESERVED, SPOT
from karpenter_provider_aws.families.traits import TRAITS
from karpenter_provider_aws.instance_tags import to_tag_list
from karpenter_provider_aws.labels import GROUP
from karpenter_provider_aws.launch.interfaces import network_interfaces

if TYPE_CHECKING:
    from collections.abc import Mapping

    from types_boto3_ec2.literals import NestedVirtualizationSpecificationType, TenancyType
    from types_boto3_ec2.type_defs import (
        LaunchTemplateBlockDeviceMappingRequestTypeDef,
        LaunchTemplateEbsBlockDeviceRequestTypeDef,
        LaunchTemplateInstanceMetadataOptionsRequestTypeDef,
        LaunchTemplatePlacementRequestTypeDef,
        LaunchTemplateTagSpecificationRequestTypeDef,
        RequestLaunchTemplateDataTypeDef,
    )

    from karpenter_provider_aws.api.nodeclass import BlockDevice, EC2NodeClass
    from karpenter_provider_aws.instance_type_info import InterfacePlace

__all__ = [
    "CAPACITY_BLOCK",
    "NAME_PREFIX",
    "USER_DATA_LIMIT_BYTES",
    "TemplateContent",
    "TemplateReservation",
    "block_devices",
    "template_data",
    "template_name",
]

NAME_PREFIX: Final = f"{GROUP}/"
USER_DATA_LIMIT_BYTES: Final = 16_384
"""Limit of EC2, before the encoding."""
CAPACITY_BLOCK: Final = "capacity-block"
"""The type of reservation that is paid for as a block of time."""

_GIB: Final = 2**30
_NAME_DIGITS: Final = 20
_NO_METADATA_IPV6: Final = frozenset(
    {
        "us-iso-east-1",
        "us-iso-west-1",
        "us-isob-east-1",
        "us-isob-west-1",
        "us-isof-south-1",
        "us-isof-east-1",
    }
)
"""Regions that do not know the option `HttpProtocolIpv6`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateReservation:
    """A capacity reservation that instances of a template go into."""

    id: str
    reservation_type: str
    interruptible: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateContent:
    """All that a template says beside what its NodeClass says."""

    node_class: EC2NodeClass
    image_id: str
    user_data: str
    """As text."""
    tags: Mapping[str, str]
    """Of everything that is made."""
    capacity_type: str
    tenancy: str
    region: str
    is_ipv6: bool
    efa_places: tuple[InterfacePlace, ...]
    """The interfaces of an instance with EFAs; empty for one without."""
    has_enclaves: bool
    uses_reservations: bool
    """The feature gate ReservedCapacity: open reservations are used by reserved launches alone."""
    reservation: TemplateReservation | None
    placement_group_id: str
    placement_partition: int
    """0 lets EC2 choose."""


def template_name(
    data: RequestLaunchTemplateDataTypeDef, tags: Mapping[str, str], *, cluster: str
) -> str:
    """Return a template's name: a digest of what it says, and of the tags that say whose it is."""
    whole = {"cluster": cluster, "tags": dict(tags), "data": data}
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    return f"{NAME_PREFIX}{sha256(text.encode()).hexdigest()[:_NAME_DIGITS]}"


def template_data(content: TemplateContent) -> RequestLaunchTemplateDataTypeDef:
    """Return the template as EC2 takes it."""
    spec = content.node_class.spec
    data: RequestLaunchTemplateDataTypeDef = {
        "ImageId": content.image_id,
        "IamInstanceProfile": {"Name": content.node_class.status.instance_profile},
        "Monitoring": {"Enabled": bool(spec.detailed_monitoring)},
        "MetadataOptions": _metadata_options(content),
        "NetworkInterfaces": network_interfaces(
            content.node_class, efa_places=content.efa_places, is_ipv6=content.is_ipv6
        ),
        "Placement": _placement(content),
        "EnclaveOptions": {"Enabled": content.has_enclaves},
        "TagSpecifications": _tag_specifications(content),
    }
    if content.user_data:
        data["UserData"] = b64encode(content.user_data.encode()).decode()
    devices = block_devices(content.node_class)
    if devices:  # EC2 refuses an empty list
        data["BlockDeviceMappings"] = devices
    if spec.cpu_options is not None and spec.cpu_options.nested_virtualization:
        nested = spec.cpu_options.nested_virtualization
        data["CpuOptions"] = {
            "NestedVirtualization": cast("NestedVirtualizationSpecificationType", nested)
        }
    if content.uses_reservations:
        _add_reservation(data, content)
    return data


def block_devices(
    node_class: EC2NodeClass,
) -> list[LaunchTemplateBlockDeviceMappingRequestTypeDef]:
    """Return the volumes of an instance: the NodeClass's, else its family's, else the image's own.

    Sizes are in GiB, rounded up.
    """
    if node_class.spec.block_device_mappings:
        return [
            {"DeviceName": mapping.device_name, "Ebs": _volume(mapping.ebs)}
            if mapping.ebs is not None
            else {"DeviceName": mapping.device_name}
            for mapping in node_class.spec.block_device_mappings
        ]
    return [
        {
            "DeviceName": device.device_name,
            "Ebs": {"Encrypted": True, "VolumeType": "gp3", "VolumeSize": device.size_gib},
        }
        for device in TRAITS[node_class.ami_family].default_devices
    ]


def _volume(device: BlockDevice) -> LaunchTemplateEbsBlockDeviceRequestTypeDef:
    size = device.size_bytes
    wanted = {
        "DeleteOnTermination": device.delete_on_termination,
        "Encrypted": device.encrypted,
        "VolumeType": device.volume_type or None,
        "Iops": device.iops or None,  # 0 is what the original writes for "unset"
        "Throughput": device.throughput or None,
        "KmsKeyId": device.kms_key_id or None,
        "SnapshotId": device.snapshot_id or None,
        "VolumeInitializationRate": device.volume_initialization_rate,
        "VolumeSize": None if size is None else -(-size // _GIB),
    }
    volume = {key: value for key, value in wanted.items() if value is not None}
    return cast("LaunchTemplateEbsBlockDeviceRequestTypeDef", volume)


def _metadata_options(
    content: TemplateContent,
) -> LaunchTemplateInstanceMetadataOptionsRequestTypeDef:
    options = content.node_class.spec.metadata_options
    wanted: dict[str, object] = {
        "HttpEndpoint": options.http_endpoint,
        "HttpTokens": options.http_tokens,
        "HttpPutResponseHopLimit": options.http_put_response_hop_limit,
        # Keys of our tags have a slash, which EC2 refuses where tags are shown to the instance;
        # unless it is said here, an account's default may ask for that.
        "InstanceMetadataTags": "disabled",
    }
    if content.region not in _NO_METADATA_IPV6:
        wanted["HttpProtocolIpv6"] = options.http_protocol_ipv6
    return cast("LaunchTemplateInstanceMetadataOptionsRequestTypeDef", wanted)


def _placement(content: TemplateContent) -> LaunchTemplatePlacementRequestTypeDef:
    placement: LaunchTemplatePlacementRequestTypeDef = {
        "Tenancy": cast("TenancyType", content.tenancy)
    }
    if content.placement_group_id:
        placement["GroupId"] = content.placement_group_id
    if content.placement_partition:
        placement["PartitionNumber"] = content.placement_partition
    return placement


def _tag_specifications(
    content: TemplateContent,
) -> list[LaunchTemplateTagSpecificationRequestTypeDef]:
    """Tag what CreateFleet itself cannot: interfaces, and requests for spot instances."""
    tags = to_tag_list(content.tags)
    specifications: list[LaunchTemplateTagSpecificationRequestTypeDef] = [
        {"ResourceType": "network-interface", "Tags": tags}
    ]
    if content.capacity_type == SPOT:
        specifications.append({"ResourceType": "spot-instances-request", "Tags": tags})
    return specifications


def _add_reservation(data: RequestLaunchTemplateDataTypeDef, content: TemplateContent) -> None:
    """Say which reservation is used; by default EC2 fills open ones with any instance."""
    reservation = content.reservation
    if content.capacity_type != RESERVED or reservation is None:
        data["CapacityReservationSpecification"] = {"CapacityReservationPreference": "none"}
        return
    data["CapacityReservationSpecification"] = {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": reservation.id},
    }
    if reservation.reservation_type == CAPACITY_BLOCK:
        data["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
    elif reservation.interruptible:
        data["InstanceMarketOptions"] = {"MarketType": "interruptible-capacity-reservation"}
