"""Reads the instance types of a region from EC2, with a cache on disk.

EC2 takes seconds and megabytes to describe its types, page after page. A new process reads the
cache of an earlier one, whatever its age, and refreshes it in the background: types are added to a
region every few weeks, and none ever changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from sys import intern
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.provider.kit.cached_response import (
    CachedResponse,
    Fetched,
    decode_as,
    fetched_items,
)
from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_provider_aws.discovery.call_errors import core_errors_of
from karpenter_provider_aws.instance_type_info import InstanceTypeInfo, read_instance_type
from karpenter_provider_aws.paging import ending_pages

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from types_boto3_ec2.type_defs import InstanceTypeOfferingTypeDef

    from karpenter_core.clock import Clock
    from karpenter_provider_aws.sdk import CloudClients

__all__ = [
    "REFRESH_PERIOD",
    "RegionTypeReader",
    "RegionTypes",
    "fetch_region_types",
    "read_offerings",
    "share_values",
]

REFRESH_PERIOD: Final = timedelta(hours=12)
DISK_LIFE: Final = timedelta(days=30)
"""Largest age of a catalogue that a start uses instead of waiting for EC2."""
_DISK_VERSION: Final = "2"
_TYPES_PAGE: Final = 100
_TYPE_NAME: Final = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+")
"""`m5.large`, `u-6tb1.metal`."""
_LARGEST_NUMBER: Final = 2**31
_MOST_TEXT: Final = 80
"""Characters of an unreadable value that a message shows."""
_OFFERINGS_PAGE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionTypes:
    """The instance types of a region and the zones in which each is sold."""

    types: Mapping[str, InstanceTypeInfo]
    """By name, sorted."""
    zones: Mapping[str, tuple[str, ...]]
    """Zones by type name, sorted."""


def _type_name(text: str) -> str:
    """Return the name of an instance type; empty if it is none."""
    return text if _TYPE_NAME.fullmatch(text) else ""


def impossible_field(info: InstanceTypeInfo) -> str:
    """Return the first field, with its value, that no instance type can have; empty if there is none.

    Without a name, processors or memory a type was not described, and negative numbers are damaged.
    """
    if not _type_name(info.name):
        return f'InstanceType is "{info.name[:_MOST_TEXT]}"'
    numbers = {
        "DefaultVCpus": (info.vcpus, 1),
        "SizeInMiB": (info.memory_mib, 1),
        "TotalSizeInGB": (info.storage_gb or 0, 0),
        "Ipv4AddressesPerInterface": (info.ipv4_per_interface, 1),
        "MaximumNetworkInterfaces": (
            min((card.max_interfaces for card in info.network_cards), default=1),
            1,
        ),
    }
    for field, (value, least) in numbers.items():
        if not least <= value < _LARGEST_NUMBER:
            return f'{field} is "{value}"'
    if not info.architectures:
        return "SupportedArchitectures is missing"
    return ""


def read_offerings(items: Iterable[InstanceTypeOfferingTypeDef]) -> dict[str, tuple[str, ...]]:
    """Return the zones by type name, from items of DescribeInstanceTypeOfferings."""
    zones: dict[str, set[str]] = {}
    for item in items:
        name, zone = item.get("InstanceType", ""), item.get("Location", "")
        if name and zone:
            zones.setdefault(name, set()).add(zone)
    return {name: tuple(sorted(zones[name])) for name in sorted(zones)}


def share_values(region: RegionTypes) -> RegionTypes:
    """Return an equal value in which equal names, texts and parts are one object.

    An answer has texts of its own for each of a thousand types, which differ in few of them.
    """
    seen: dict[object, object] = {}

    def one(value: object) -> object:
        # With its type: 1, 1.0 and True are equal.
        return (
            intern(value)
            if isinstance(value, str)
            else seen.setdefault((type(value), value), value)
        )

    return RegionTypes(
        types={
            intern(name): replace(
                info, **{each.name: one(getattr(info, each.name)) for each in fields(info)}
            )
            for name, info in region.types.items()
        },
        zones={
            intern(name): cast("tuple[str, ...]", one(zones))
            for name, zones in region.zones.items()
        },
    )


def fetch_region_types(
    clients: CloudClients, last: RegionTypes | None = None
) -> Fetched[RegionTypes]:
    """Ask EC2 for types and their zones, both at once; of those that cannot be read, `last` stays.

    Raises:
        CloudProviderError: it refused, did not answer, or says that it sells nothing.
    """
    with ThreadPoolExecutor(2, thread_name_prefix="aws-catalogue") as pool:
        fetching_types = pool.submit(_fetch_types, clients, None if last is None else last.types)
        fetching_zones = pool.submit(_fetch_zones, clients, None if last is None else last.zones)
        types, zones = fetching_types.result(), fetching_zones.result()
    problems = [problem for problem in (types.problem, zones.problem) if problem]
    region = RegionTypes(types=types.value, zones=zones.value)
    return Fetched(share_values(region), "; ".join(problems))


def _fetch_types(
    clients: CloudClients, last: Mapping[str, InstanceTypeInfo] | None
) -> Fetched[Mapping[str, InstanceTypeInfo]]:
    action = "ec2:DescribeInstanceTypes"
    with core_errors_of(action):
        pages = clients.ec2.get_paginator("describe_instance_types").paginate(
            Filters=[
                {"Name": "supported-virtualization-type", "Values": ["hvm"]},
                {
                    "Name": "processor-info.supported-architecture",
                    "Values": ["x86_64", "arm64"],
                },
            ],
            PaginationConfig={"PageSize": _TYPES_PAGE},
        )
        described = [
            read_instance_type(item)
            for page in ending_pages(pages)
            for item in page["InstanceTypes"]
        ]
    types: dict[str, InstanceTypeInfo] = {}
    unreadable: dict[str, str] = {}
    for info in described:
        if reason := impossible_field(info):
            name = _type_name(info.name)
            unreadable[name] = f"{name}: {reason}" if name else reason
        else:
            types[info.name] = info
    none_found = "no instance types found"
    return fetched_items(action, types, unreadable=unreadable, last=last, none_found=none_found)


def _fetch_zones(
    clients: CloudClients, last: Mapping[str, tuple[str, ...]] | None
) -> Fetched[Mapping[str, tuple[str, ...]]]:
    action = "ec2:DescribeInstanceTypeOfferings"
    with core_errors_of(action):
        pages = clients.ec2.get_paginator("describe_instance_type_offerings").paginate(
            LocationType="availability-zone", PaginationConfig={"PageSize": _OFFERINGS_PAGE}
        )
        items = [item for page in ending_pages(pages) for item in page["InstanceTypeOfferings"]]
    readable: list[InstanceTypeOfferingTypeDef] = []
    unreadable: dict[str, str] = {}
    for item in items:
        name, zone = item.get("InstanceType", ""), item.get("Location", "")
        if not _type_name(name):
            unreadable[""] = f'InstanceType is "{name[:_MOST_TEXT]}"'
        elif not zone.startswith(clients.region):
            unreadable[name] = f'{name}: Location is "{zone[:_MOST_TEXT]}"'
        else:
            readable.append(item)
    zones = read_offerings(readable)
    for name, known in (last or {}).items():
        if name in unreadable or "" in unreadable:
            zones[name] = tuple(sorted({*known, *zones.get(name, ())}))
    none_found = "no instance types offerings found"
    return fetched_items(action, zones, unreadable=unreadable, last=last, none_found=none_found)


_decode_any: Final = decode_as(RegionTypes, is_usable=lambda it: it.types and it.zones)


def _decode(value: object) -> RegionTypes | None:
    region = _decode_any(value)
    return None if region is None else share_values(region)


@final
class RegionTypeReader:
    """The region as last read; callable from any thread."""

    def __init__(self, clients: CloudClients, clock: Clock, cache_folder: Path) -> None:
        name = f"aws-catalogue-{clients.region}"
        self._answer: Final = CachedResponse[RegionTypes](
            clock,
            DiskCache(cache_folder, name, version=_DISK_VERSION),
            fetch=lambda last: fetch_region_types(clients, last),
            decode=_decode,
            life=DISK_LIFE,
        )

    def current(self) -> tuple[RegionTypes, int]:
        """Return the region and a number that grows when another one was read.

        Raises:
            CloudProviderError: nothing is known yet, and EC2 refused or did not answer.
        """
        return self._answer.current()

    def refresh(self) -> bool:
        """Ask EC2 again, unless it was asked lately; True if it sells something else now.

        Raises:
            CloudProviderError: it refused or did not answer, and what was known stays; or a type or a
                zone cannot be read.
        """
        return self._answer.refresh(unless_within=REFRESH_PERIOD / 2)
