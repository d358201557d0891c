"""Parses VM sizes from the answer of Microsoft.Compute/skus.

An answer has several megabytes, of which a size keeps some hundred bytes. Capabilities are texts; one
that is missing means that the size does not have it, and one that cannot be read makes the size
unreadable.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar, cast

from karpenter_provider_azure.catalogue.size_names import SizeName, read_size_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.json_objects import JsonMapping

__all__ = ["LocalDisk", "ParsedSkus", "VmSize", "parse_skus"]

ARCHITECTURES: Final = {"x64": "amd64", "arm64": "arm64"}
"""`CpuArchitectureType` in lower case to the architecture of Kubernetes."""
CACHE_DISK: Final = "CacheDisk"
NVME_DISK: Final = "NvmeDisk"
RESOURCE_DISK: Final = "ResourceDisk"

_RESOURCE_TYPE: Final = "virtualmachines"
_GENERATIONS: Final = (("V1", "1"), ("V2", "2"))
_NAME_PREFIXES: Final = ("Standard_", "Basic_")
_BOOLEANS: Final = ("true", "false", "")
_MOST_DIGITS: Final = 18
"""Of a number of bytes."""
_MOST_TEXT: Final = 80
"""Characters of an unreadable value that a message shows."""
_MIB: Final = 2**20
_GB: Final = 10**9

T = TypeVar("T")

_Capabilities: TypeAlias = "Mapping[str, str]"
"""Values by name in lower case."""


class LocalDisk(NamedTuple):
    """A disk of the host that an ephemeral OS disk may be on."""

    placement: str
    """`NvmeDisk`, `CacheDisk` or `ResourceDisk`."""
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VmSize:
    """One VM size as a region offers it to the subscription."""

    name: str
    """`Standard_D4s_v5`."""
    family: str
    """Quota family as Azure writes it: `standardDSv5Family`; empty when the answer has none."""
    size_name: SizeName
    cpus: int
    memory_gib: float
    """`MemoryGB` of Azure, which is GiB."""
    arch: str
    """`amd64` or `arm64`."""
    gpus: int
    zones: tuple[str, ...]
    """Availability zones without restrictions: `1`, `2`, `3`; sorted. Empty for a regional size."""
    ultra_ssd_zones: tuple[str, ...]
    """Zones with ultra disks; sorted."""
    regional_ultra_ssd: bool
    """Whether virtual machines without a zone can have ultra disks."""
    hyperv_generations: tuple[str, ...]
    """`1`, `2`."""
    premium_io: bool
    accelerated_networking: bool
    encryption_at_host: bool
    trusted_launch: bool
    """Whether generation 2 is supported and trusted launch is not disabled."""
    low_priority_capable: bool
    """Whether the size is sold as spot."""
    ephemeral_os_disks: tuple[LocalDisk, ...]
    """Disks that an ephemeral OS disk may be on, the best first."""

    @property
    def memory_mib(self) -> int:
        """Memory that the size is sold with, in MiB; the kernel reports less."""
        return int(self.memory_gib * 1024)

    @property
    def max_ephemeral_os_disk_gb(self) -> int:
        """The largest disk for an ephemeral OS disk in decimal GB, as in the label of VM sizes."""
        return max((disk.size_bytes for disk in self.ephemeral_os_disks), default=0) // _GB

    @property
    def quota_group(self) -> str:
        """Quota family in lower case, as shortages name groups; empty when it is unknown."""
        return self.family.lower()


class ParsedSkus(NamedTuple):
    """The sizes of one answer."""

    sizes: dict[str, VmSize]
    """By name, sorted."""
    skipped: dict[str, str]
    """Reasons by the names of sizes that follow no naming convention, which no answer will change; sorted."""
    unreadable: dict[str, str]
    """Reasons by the names of sizes with values that cannot be, which the next answer may mend; sorted."""


def parse_skus(items: Iterable[JsonMapping], location: str) -> ParsedSkus:
    """Parse the virtual machine sizes of a region.

    Sizes that the subscription cannot use there (a restriction of type `Location`) are left out.
    """
    parsed = ParsedSkus({}, {}, {})
    for item in items:
        if str(item.get("resourceType", "")).lower() == _RESOURCE_TYPE:
            _parse_item(item, location, parsed)
    return ParsedSkus(_sorted(parsed.sizes), _sorted(parsed.skipped), _sorted(parsed.unreadable))


def _parse_item(item: JsonMapping, location: str, parsed: ParsedSkus) -> None:
    """Add a size to one part of `parsed`, unless the region or the subscription does not have it."""
    name = item.get("name")
    is_named = isinstance(name, str) and name.startswith(_NAME_PREFIXES)
    key = str(name) if is_named else ""
    try:
        info = _location_info(item, location)
        if info is None or _is_restricted(item, location):
            return
        if not is_named:
            raise _unreadable("name", name)
        try:
            size_name = read_size_name(key)
        except ValueError as error:
            parsed.skipped[key] = str(error)
            return
        parsed.sizes[key] = _read_size(size_name, item, info, location)
    except ValueError as error:
        parsed.unreadable[key] = f'VM size "{key}": {error}'


def _sorted(by_name: dict[str, T]) -> dict[str, T]:
    return {name: by_name[name] for name in sorted(by_name)}


def _read_size(size_name: SizeName, item: JsonMapping, info: JsonMapping, location: str) -> VmSize:
    capabilities = _capabilities(item)
    generations = capabilities.get("hypervgenerations", "")
    hyperv_generations = tuple(short for long, short in _GENERATIONS if long in generations.upper())
    architecture = capabilities.get("cpuarchitecturetype", "")
    if architecture.lower() not in ARCHITECTURES:
        raise _unreadable("CpuArchitectureType", architecture)
    zones = _zones(item, info, location)
    return VmSize(
        name=str(item["name"]),
        family=sys.intern(_text(item, "family")),
        size_name=size_name,
        cpus=_whole(capabilities, "vCPUs", required=True),
        memory_gib=_number(capabilities, "MemoryGB"),
        arch=ARCHITECTURES[architecture.lower()],
        gpus=_whole(capabilities, "GPUs"),
        zones=zones,
        ultra_ssd_zones=tuple(zone for zone in zones if zone in _ultra_ssd_zones(info)),
        regional_ultra_ssd=_is_true(capabilities, "UltraSSDAvailable"),
        hyperv_generations=hyperv_generations,
        premium_io=_is_true(capabilities, "PremiumIO"),
        accelerated_networking=_is_true(capabilities, "AcceleratedNetworkingEnabled"),
        encryption_at_host=_is_true(capabilities, "EncryptionAtHostSupported"),
        trusted_launch="2" in hyperv_generations
        and not _is_true(capabilities, "TrustedLaunchDisabled"),
        low_priority_capable=_is_true(capabilities, "LowPriorityCapable"),
        ephemeral_os_disks=_ephemeral_disks(capabilities),
    )


def _ephemeral_disks(capabilities: _Capabilities) -> tuple[LocalDisk, ...]:
    """Return the disks for an ephemeral OS disk in the order of AKS: NVMe, cache, temporary disk.

    Azure takes no other placements than those that it lists; of sizes without a list it takes cache and
    temporary disk.
    """
    if not _is_true(capabilities, "EphemeralOSDiskSupported"):
        return ()
    listed = capabilities.get("supportedephemeralosdiskplacements", "").lower()
    placements = listed or f"{CACHE_DISK},{RESOURCE_DISK}".lower()
    disks = (
        LocalDisk(NVME_DISK, _whole(capabilities, "NvmeDiskSizeInMiB") * _MIB),
        LocalDisk(CACHE_DISK, _whole(capabilities, "CachedDiskBytes")),
        # Azure's name says MB; the unit is MiB.
        LocalDisk(RESOURCE_DISK, _whole(capabilities, "MaxResourceVolumeMB") * _MIB),
    )
    return tuple(
        disk for disk in disks if disk.size_bytes > 0 and disk.placement.lower() in placements
    )


def _location_info(item: JsonMapping, location: str) -> JsonMapping | None:
    return next(
        (
            info
            for info in _objects(item, "locationInfo")
            if _text(info, "location").lower() == location.lower()
        ),
        None,
    )


def _restrictions(item: JsonMapping, kind: str, location: str) -> list[JsonMapping]:
    """Return the `restrictionInfo` of the restrictions of a type that name the region."""
    found: list[JsonMapping] = []
    for restriction in _objects(item, "restrictions"):
        info = _object(restriction, "restrictionInfo")
        locations = (*_texts(info, "locations"), *_texts(restriction, "values"))
        if _text(restriction, "type").lower() == kind and location.lower() in {
            it.lower() for it in locations
        }:
            found.append(info)
    return found


def _is_restricted(item: JsonMapping, location: str) -> bool:
    return bool(_restrictions(item, "location", location))


def _zones(item: JsonMapping, info: JsonMapping, location: str) -> tuple[str, ...]:
    restricted = {
        zone
        for restriction in _restrictions(item, "zone", location)
        for zone in _texts(restriction, "zones")
    }
    zones = _texts(info, "zones")
    for zone in zones:
        if not zone.isdecimal():
            raise _unreadable("zones", zone)
    return tuple(sys.intern(zone) for zone in sorted({*zones} - restricted))


def _ultra_ssd_zones(info: JsonMapping) -> set[str]:
    return {
        zone
        for details in _objects(info, "zoneDetails")
        if _is_true(_capabilities(details), "UltraSSDAvailable")
        # The API's description says `Name`, answers say `name`.
        for zone in _texts(details, "name" if "name" in details else "Name")
    }


def _capabilities(described: JsonMapping) -> dict[str, str]:
    return {
        _text(it, "name").lower(): _text(it, "value") for it in _objects(described, "capabilities")
    }


def _object(described: JsonMapping, field: str) -> JsonMapping:
    """Return an object; an empty one if it is missing."""
    value = described.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _unreadable(field, value)
    return cast("JsonMapping", value)


def _objects(described: JsonMapping, field: str) -> list[JsonMapping]:
    """Return the objects in a list; none if the list is missing."""
    items = _list(described, field)
    for each in items:
        if not isinstance(each, dict):
            raise _unreadable(field, each)
    return cast("list[JsonMapping]", items)


def _texts(described: JsonMapping, field: str) -> tuple[str, ...]:
    items = _list(described, field)
    for each in items:
        if not isinstance(each, str):
            raise _unreadable(field, each)
    return tuple(cast("list[str]", items))


def _list(described: JsonMapping, field: str) -> list[object]:
    value = described.get(field)
    if value is None:
        return []
    if not isinstance(value, list):
        raise _unreadable(field, value)
    return cast("list[object]", value)


def _text(described: JsonMapping, field: str) -> str:
    """Return a text; empty if it is missing."""
    value = described.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _unreadable(field, value)
    return value


def _is_true(capabilities: _Capabilities, name: str) -> bool:
    text = capabilities.get(name.lower(), "false")
    if text.lower() not in _BOOLEANS:
        raise _unreadable(name, text)
    return text.lower() == "true"


def _whole(capabilities: _Capabilities, name: str, *, required: bool = False) -> int:
    text = capabilities.get(name.lower(), "" if required else "0")
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise _unreadable(name, text)
    return int(text)


def _number(capabilities: _Capabilities, name: str) -> float:
    text = capabilities.get(name.lower(), "")
    try:
        number = float(text)
    except ValueError:
        raise _unreadable(name, text) from None
    if not 0 < number < sys.maxsize:
        raise _unreadable(name, text)
    return number


def _unreadable(field: str, value: object) -> ValueError:
    text = f"{value}"
    return ValueError(f'{field} has no usable value: "{text[:_MOST_TEXT]}"')
