"""Parses VM sizes from the answer of Microsoft.Compute/skus.

An answer has several megabytes, of which a size keeps some hundred bytes. Capabilities are texts; one
that is missing means that the size does not have it, and one that cannot be read excludes the size.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from karpenter_provider_azure.catalogue.size_names import SizeName, read_size_name
from karpenter_provider_azure.json_values import objects_of, texts_of

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
_MIB: Final = 2**20
_GB: Final = 10**9

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
    """Reasons by the names of sizes that the region has and that cannot be used; sorted."""


def parse_skus(items: Iterable[JsonMapping], location: str) -> ParsedSkus:
    """Parse the virtual machine sizes of a region.

    Sizes that the subscription cannot use there (a restriction of type `Location`) are left out.
    """
    sizes: dict[str, VmSize] = {}
    skipped: dict[str, str] = {}
    for item in items:
        if str(item.get("resourceType", "")).lower() != _RESOURCE_TYPE:
            continue
        info = _location_info(item, location)
        if info is None or _is_restricted(item, location):
            continue
        name = str(item.get("name", ""))
        try:
            sizes[name] = _read_size(name, item, info, location)
        except ValueError as error:
            skipped[name] = str(error)
    return ParsedSkus(
        {name: sizes[name] for name in sorted(sizes)},
        {name: skipped[name] for name in sorted(skipped)},
    )


def _read_size(name: str, item: JsonMapping, info: JsonMapping, location: str) -> VmSize:
    capabilities = _capabilities(item.get("capabilities"))
    generations = capabilities.get("hypervgenerations", "")
    hyperv_generations = tuple(short for long, short in _GENERATIONS if long in generations.upper())
    architecture = capabilities.get("cpuarchitecturetype", "")
    if architecture.lower() not in ARCHITECTURES:
        raise _unreadable(name, "CpuArchitectureType", architecture)
    zones = _zones(item, info, location)
    return VmSize(
        name=name,
        family=sys.intern(str(item.get("family") or "")),
        size_name=read_size_name(name),
        cpus=_whole(name, capabilities, "vCPUs", required=True),
        memory_gib=_number(name, capabilities, "MemoryGB"),
        arch=ARCHITECTURES[architecture.lower()],
        gpus=_whole(name, capabilities, "GPUs"),
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
        ephemeral_os_disks=_ephemeral_disks(name, capabilities),
    )


def _ephemeral_disks(name: str, capabilities: _Capabilities) -> tuple[LocalDisk, ...]:
    """Return the disks for an ephemeral OS disk in the order of AKS: NVMe, cache, temporary disk.

    Azure takes no other placements than those that it lists; of sizes without a list it takes cache and
    temporary disk.
    """
    if not _is_true(capabilities, "EphemeralOSDiskSupported"):
        return ()
    listed = capabilities.get("supportedephemeralosdiskplacements", "").lower()
    placements = listed or f"{CACHE_DISK},{RESOURCE_DISK}".lower()
    disks = (
        LocalDisk(NVME_DISK, _whole(name, capabilities, "NvmeDiskSizeInMiB") * _MIB),
        LocalDisk(CACHE_DISK, _whole(name, capabilities, "CachedDiskBytes")),
        # Azure's name says MB; the unit is MiB.
        LocalDisk(RESOURCE_DISK, _whole(name, capabilities, "MaxResourceVolumeMB") * _MIB),
    )
    return tuple(
        disk for disk in disks if disk.size_bytes > 0 and disk.placement.lower() in placements
    )


def _location_info(item: JsonMapping, location: str) -> JsonMapping | None:
    return next(
        (
            info
            for info in objects_of(item.get("locationInfo"))
            if str(info.get("location", "")).lower() == location.lower()
        ),
        None,
    )


def _restrictions(item: JsonMapping, kind: str, location: str) -> list[JsonMapping]:
    """Return the `restrictionInfo` of the restrictions of a type that name the region."""
    found: list[JsonMapping] = []
    for restriction in objects_of(item.get("restrictions")):
        info: JsonMapping = restriction.get("restrictionInfo") or {}
        locations = (*texts_of(info.get("locations")), *texts_of(restriction.get("values")))
        if str(restriction.get("type", "")).lower() == kind and location.lower() in {
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
        for zone in texts_of(restriction.get("zones"))
    }
    return tuple(sys.intern(z) for z in sorted({*texts_of(info.get("zones"))} - restricted))


def _ultra_ssd_zones(info: JsonMapping) -> set[str]:
    return {
        zone
        for details in objects_of(info.get("zoneDetails"))
        if _is_true(_capabilities(details.get("capabilities")), "UltraSSDAvailable")
        # The API's description says `Name`, answers say `name`.
        for zone in texts_of(details.get("name") or details.get("Name"))
    }


def _capabilities(value: object) -> dict[str, str]:
    return {str(it.get("name", "")).lower(): str(it.get("value", "")) for it in objects_of(value)}


def _is_true(capabilities: _Capabilities, name: str) -> bool:
    return capabilities.get(name.lower(), "").lower() == "true"


def _whole(size: str, capabilities: _Capabilities, name: str, *, required: bool = False) -> int:
    text = capabilities.get(name.lower(), "" if required else "0")
    if not text.isdecimal():
        raise _unreadable(size, name, text)
    return int(text)


def _number(size: str, capabilities: _Capabilities, name: str) -> float:
    text = capabilities.get(name.lower(), "")
    try:
        number = float(text)
    except ValueError:
        raise _unreadable(size, name, text) from None
    if not 0 < number < sys.maxsize:
        raise _unreadable(size, name, text)
    return number


def _unreadable(size: str, capability: str, value: str) -> ValueError:
    return ValueError(f'VM size "{size}": capability {capability} has no usable value: "{value}"')
