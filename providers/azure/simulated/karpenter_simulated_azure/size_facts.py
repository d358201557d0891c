"""Reads what a virtual machine size can do from its entry in the list of SKUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.json_objects import JsonMapping

__all__ = ["SizeFacts", "size_facts"]

_MIB: Final = 2**20
_GB: Final = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeFacts:
    """One size in one region."""

    name: str
    family: str
    """Of its quota: `standardDSv5Family`."""
    zones: frozenset[str]
    """The zones of the region that have it and do not restrict it."""
    is_restricted: bool
    """Whether the subscription may not use it in the region."""
    capabilities: Mapping[str, str]
    ultra_ssd_zones: frozenset[str]

    @property
    def cpus(self) -> int:
        """The vCPUs."""
        return int(self.capabilities["vCPUs"])

    @property
    def memory_gib(self) -> float:
        """The memory."""
        return float(self.capabilities["MemoryGB"])

    @property
    def gpus(self) -> int:
        """The GPUs."""
        return int(self.capabilities.get("GPUs", "0"))

    @property
    def arch(self) -> str:
        """`x64` or `Arm64`."""
        return self.capabilities.get("CpuArchitectureType", "x64")

    @property
    def generations(self) -> frozenset[str]:
        """The hypervisor generations, `V1` and `V2`."""
        return frozenset(self.capabilities.get("HyperVGenerations", "V1").split(","))

    def can(self, capability: str) -> bool:
        """Return whether a capability is `True`."""
        return self.capabilities.get(capability, "").lower() == "true"

    def ephemeral_gb(self, placement: str) -> float:
        """Return the size of the largest ephemeral OS disk in GB; 0 if there is none.

        Without a placement it is the cache disk's, else the temporary disk's.
        """
        if not self.can("EphemeralOSDiskSupported"):
            return 0
        named = self.capabilities
        cache = int(named.get("CachedDiskBytes", "0")) / _GB
        resource = int(named.get("MaxResourceVolumeMB", "0")) * _MIB / _GB
        nvme = int(named.get("NvmeDiskSizeInMiB", "0")) * _MIB / _GB
        if "NvmeDisk" not in named.get("SupportedEphemeralOSDiskPlacements", ""):
            nvme = 0
        by_placement = {"CacheDisk": cache, "ResourceDisk": resource, "NvmeDisk": nvme}
        return by_placement.get(placement, 0) if placement else cache or resource


def size_facts(sku: JsonMapping, location: str) -> SizeFacts:
    """Return the facts of an entry of the list of SKUs, for one region."""
    zones: set[str] = set()
    ultra: set[str] = set()
    for place in sku.get("locationInfo") or ():
        if str(place.get("location", "")).lower() == location.lower():
            zones |= {str(each) for each in place.get("zones") or ()}
            ultra |= _ultra_ssd_zones(place)
    restricted = False
    for each in sku.get("restrictions") or ():
        if each.get("type") == "Zone":
            info = each.get("restrictionInfo") or {}
            zones -= {str(zone) for zone in info.get("zones") or ()}
        elif each.get("type") == "Location":
            restricted = True
    return SizeFacts(
        name=str(sku["name"]),
        family=str(sku.get("family", "")),
        zones=frozenset(zones),
        is_restricted=restricted,
        capabilities={
            str(each["name"]): str(each["value"]) for each in sku.get("capabilities") or ()
        },
        ultra_ssd_zones=frozenset(ultra),
    )


def _ultra_ssd_zones(place: JsonMapping) -> set[str]:
    found: set[str] = set()
    for detail in place.get("zoneDetails") or ():
        for each in detail.get("capabilities") or ():
            if each["name"] == "UltraSSDAvailable" and str(each["value"]).lower() == "true":
                found |= {str(zone) for zone in detail.get("name") or ()}
    return found
