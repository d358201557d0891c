"""Finds mistakes in launch data that EC2 refuses in any region.

EC2 takes a launch template with such mistakes and only warns of them; the launch is what fails.
Limits are those of the API reference (`EbsBlockDevice`, `InstanceMetadataOptionsRequest`,
`RequestLaunchTemplateData`) and of the EBS user guide for ratios.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_simulated_aws.protocol import AwsError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from types_boto3_ec2.type_defs import (
        LaunchTemplateEbsBlockDeviceRequestTypeDef,
        LaunchTemplateInstanceNetworkInterfaceSpecificationRequestTypeDef,
        RequestLaunchTemplateDataTypeDef,
    )

__all__ = ["launch_mistakes"]

_HOP_LIMITS: Final = (1, 64)
_DEVICE_NAME: Final = re.compile(r"/dev/(sd[a-z]([1-9]|1[0-5])?|xvd[a-z]{1,2}[0-9]*)|xvd[a-z]{1,2}")
_METADATA_TAG_KEY: Final = re.compile(r"[a-zA-Z0-9+\-=.,_:@]+")
"""Keys of tags that an instance may read from its metadata; no slash, no space."""
_IDS: Final = {
    "sg": ("InvalidGroupId.Malformed", re.compile(r"sg-([0-9a-f]{8}|[0-9a-f]{17})")),
    "subnet": ("InvalidSubnetID.Malformed", re.compile(r"subnet-([0-9a-f]{8}|[0-9a-f]{17})")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _VolumeLimits:
    sizes_gib: tuple[int, int]
    iops: tuple[int, int] | None = None
    """None where IOPS may not be given."""
    iops_per_gib: int = 0
    needs_iops: bool = False
    throughput_mib: tuple[int, int] | None = None


_VOLUMES: Final[Mapping[str, _VolumeLimits]] = {
    "standard": _VolumeLimits(sizes_gib=(1, 1024)),
    "gp2": _VolumeLimits(sizes_gib=(1, 16_384)),
    "gp3": _VolumeLimits(
        sizes_gib=(1, 65_536),
        iops=(3000, 80_000),
        iops_per_gib=500,
        throughput_mib=(125, 2000),
    ),
    "io1": _VolumeLimits(
        sizes_gib=(4, 16_384), iops=(100, 64_000), iops_per_gib=50, needs_iops=True
    ),
    "io2": _VolumeLimits(
        sizes_gib=(4, 65_536), iops=(100, 256_000), iops_per_gib=1000, needs_iops=True
    ),
    "st1": _VolumeLimits(sizes_gib=(125, 16_384)),
    "sc1": _VolumeLimits(sizes_gib=(125, 16_384)),
}
_THROUGHPUT_PER_IOPS: Final = 0.25
_BASE_IOPS: Final = 3000
"""Of a gp3 volume for which none are asked; any size has them."""


def launch_mistakes(data: RequestLaunchTemplateDataTypeDef) -> Iterator[AwsError]:
    """Return what EC2 refuses in the data of a launch, in the order in which it is said."""
    interfaces = data.get("NetworkInterfaces", ())
    yield from _malformed_ids(data, interfaces)
    yield from _wrong_interfaces(data, interfaces)
    hops = data.get("MetadataOptions", {}).get("HttpPutResponseHopLimit")
    if hops is not None and not _HOP_LIMITS[0] <= hops <= _HOP_LIMITS[1]:
        yield _out_of_range("HttpPutResponseHopLimit", hops, _HOP_LIMITS)
    yield from _wrong_metadata_tags(data)
    yield from _wrong_devices(data)


def _malformed_ids(
    data: RequestLaunchTemplateDataTypeDef,
    interfaces: Iterable[LaunchTemplateInstanceNetworkInterfaceSpecificationRequestTypeDef],
) -> Iterator[AwsError]:
    named = [("sg", each) for each in data.get("SecurityGroupIds", ())]
    for interface in interfaces:
        named += [("sg", each) for each in interface.get("Groups", ())]
        if subnet_id := interface.get("SubnetId"):
            named.append(("subnet", subnet_id))
    for kind, name in named:
        code, pattern = _IDS[kind]
        if not pattern.fullmatch(name):
            yield AwsError(code, f'Invalid id: "{name}" (expecting "{kind}-...")')


def _wrong_interfaces(
    data: RequestLaunchTemplateDataTypeDef,
    interfaces: Sequence[LaunchTemplateInstanceNetworkInterfaceSpecificationRequestTypeDef],
) -> Iterator[AwsError]:
    if interfaces and (data.get("SecurityGroupIds") or data.get("SecurityGroups")):
        yield AwsError(
            "InvalidParameterCombination",
            "Network interfaces and an instance-level security groups may not be specified on the"
            " same request",
        )
    places = [(each.get("NetworkCardIndex", 0), each.get("DeviceIndex", 0)) for each in interfaces]
    if len(set(places)) < len(places):
        yield AwsError(
            "InvalidParameterValue",
            "Each network interface requires a unique device index on its network card.",
        )


def _wrong_metadata_tags(data: RequestLaunchTemplateDataTypeDef) -> Iterator[AwsError]:
    if data.get("MetadataOptions", {}).get("InstanceMetadataTags") != "enabled":
        return
    for specification in data.get("TagSpecifications", ()):
        if specification.get("ResourceType") != "instance":
            continue
        for tag in specification.get("Tags", ()):
            key = tag.get("Key", "")
            if not _METADATA_TAG_KEY.fullmatch(key):
                yield AwsError(
                    "InvalidParameterValue",
                    f"'{key}' is not a valid tag key. Tag keys must match pattern"
                    " ([0-9a-zA-Z\\-_+=,.@:]{1,255}), and must not be a reserved name",
                )


def _wrong_devices(data: RequestLaunchTemplateDataTypeDef) -> Iterator[AwsError]:
    seen: set[str] = set()
    for mapping in data.get("BlockDeviceMappings", ()):
        name = mapping.get("DeviceName", "")
        if not _DEVICE_NAME.fullmatch(name):
            yield AwsError("InvalidBlockDeviceMapping", f"Invalid device name {name}")
        if name in seen:
            yield AwsError(
                "InvalidBlockDeviceMapping", f"The device '{name}' is used in more than one mapping"
            )
        seen.add(name)
        if volume := mapping.get("Ebs"):
            yield from _wrong_volume(volume)


def _wrong_volume(volume: LaunchTemplateEbsBlockDeviceRequestTypeDef) -> Iterator[AwsError]:
    kind = volume.get("VolumeType", "gp2")
    limits = _VOLUMES.get(kind)
    if limits is None:
        yield AwsError("UnknownVolumeType", f"Unsupported volume type '{kind}' for volume creation")
        return
    size, iops = volume.get("VolumeSize"), volume.get("Iops")
    if size is not None and not limits.sizes_gib[0] <= size <= limits.sizes_gib[1]:
        yield _out_of_range(f"volume size ({kind})", size, limits.sizes_gib)
    if iops is None:
        if limits.needs_iops:
            yield AwsError(
                "MissingParameter", f"The parameter iops must be specified for {kind} volumes."
            )
    elif limits.iops is None:
        yield AwsError(
            "InvalidParameterCombination",
            f"The parameter iops is not supported for {kind} volumes.",
        )
    elif not limits.iops[0] <= iops <= limits.iops[1]:
        yield _out_of_range(f"iops ({kind})", iops, limits.iops)
    elif size is not None and iops > max(limits.iops[0], limits.iops_per_gib * size):
        yield AwsError(
            "InvalidParameterValue",
            f"Iops to volume size ratio of {iops / size:.0f} is too high; the maximum is"
            f" {limits.iops_per_gib}.",
        )
    yield from _wrong_throughput(volume, kind, limits)


def _wrong_throughput(
    volume: LaunchTemplateEbsBlockDeviceRequestTypeDef, kind: str, limits: _VolumeLimits
) -> Iterator[AwsError]:
    throughput = volume.get("Throughput")
    if throughput is None:
        return
    if limits.throughput_mib is None:
        yield AwsError(
            "InvalidParameterCombination",
            f"The parameter throughput is not supported for {kind} volumes.",
        )
    elif not limits.throughput_mib[0] <= throughput <= limits.throughput_mib[1]:
        yield _out_of_range(f"throughput ({kind})", throughput, limits.throughput_mib)
    elif throughput > _THROUGHPUT_PER_IOPS * (volume.get("Iops") or _BASE_IOPS):
        yield AwsError(
            "InvalidParameterValue",
            f"Throughput (MiBps) to iops ratio of {throughput / (volume.get('Iops') or _BASE_IOPS):.2f}"
            f" is too high; maximum is {_THROUGHPUT_PER_IOPS} MiBps per iops.",
        )


def _out_of_range(what: str, value: int, limits: tuple[int, int]) -> AwsError:
    return AwsError(
        "InvalidParameterValue",
        f"Value ({value}) for {what} is invalid. Expecting a value between {limits[0]} and"
        f" {limits[1]}.",
    )
