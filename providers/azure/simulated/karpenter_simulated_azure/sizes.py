"""Serves the region's VM sizes like the SKU API, with their capabilities."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice, product
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_simulated_azure.arm_api import ApiVersions, ArmFault, ArmReply
from karpenter_simulated_azure.resources import page
from karpenter_simulated_azure.size_table import SIZE_TABLE, SizeRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_simulated_azure.arm_api import ArmCall, ArmRoutes
    from karpenter_simulated_azure.world import AzureWorld

__all__ = ["SimulatedSize", "Sizes", "generated_rows", "sku_of"]

_VERSIONS: Final = ApiVersions(earliest="2021-07-01", latest="2021-07-01", previews=False)
_PAGE: Final = 100_000
"""In practice the answer has one page."""
_FILTER: Final = re.compile(r"\s*location\s+eq\s+'([^']*)'\s*", re.IGNORECASE)
_DISKS: Final = ("Premium_LRS", "StandardSSD_LRS", "UltraSSD_LRS")
"""SKUs of another resource type, which the answer has too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSize:
    """A VM size, read from its SKU."""

    name: str
    family: str
    """The quota family, as the SKU writes it."""
    cpus: int
    zones: frozenset[str]
    """The logical zones, those that are restricted too."""
    restricted_zones: frozenset[str]
    restricted: bool
    """Whether the subscription may not use it in the region."""
    capabilities: Mapping[str, str]
    """By name in lower case."""
    ultra_ssd_zones: frozenset[str] = frozenset()
    """The zones with ultra disks."""

    def capability(self, name: str) -> str:
        """Return a capability; empty if the SKU does not tell."""
        return self.capabilities.get(name.lower(), "")

    def can(self, name: str) -> bool:
        """Return whether a capability is `True`."""
        return self.capability(name).lower() == "true"

    def number(self, name: str) -> float:
        """Return a capability as a number; 0 if the SKU does not tell."""
        return float(self.capability(name) or 0)

    @property
    def generations(self) -> frozenset[str]:
        """`V1` and `V2`, those that it boots."""
        return frozenset(self.capability("HyperVGenerations").split(","))

    @property
    def architecture(self) -> str:
        """`x64` or `Arm64`."""
        return self.capability("CpuArchitectureType")


def sku_of(row: SizeRow, world: AzureWorld) -> JsonObject:
    """Return the SKU of a row, as the API does."""
    capability_values: dict[str, object] = {
        "MaxResourceVolumeMB": row.temporary_gib * 1024,
        "OSVhdSizeMB": 1047552,
        "vCPUs": row.cpus,
        "HyperVGenerations": row.generations,
        "MemoryGB": row.memory_gib,
        "CpuArchitectureType": "Arm64" if row.arm else "x64",
        "LowPriorityCapable": row.spot,
        "PremiumIO": row.premium,
        "VMDeploymentTypes": "IaaS",
        "vCPUsAvailable": row.cpus,
        "EphemeralOSDiskSupported": bool(row.cache_gib or row.placements),
        "EncryptionAtHostSupported": row.encryption,
        "AcceleratedNetworkingEnabled": row.accelerated,
        "RdmaEnabled": False,
        "MaxNetworkInterfaces": 2,
    }
    if constrained := re.match(r"Standard_[A-Z]+\d+-(\d+)", row.name):
        capability_values["vCPUsAvailable"] = constrained[1]
    capability_values |= {
        name: value
        for name, value in (
            ("CachedDiskBytes", row.cached_bytes),
            ("NvmeDiskSizeInMiB", row.nvme_mib),
            ("SupportedEphemeralOSDiskPlacements", row.placements),
            ("GPUs", row.gpus),
            ("TrustedLaunchDisabled", not row.trusted_launch),
        )
        if value
    }
    zones = list(world.zones) if row.zonal else []
    details: list[JsonObject] = []
    if row.ultra_zones and row.zonal:
        ultra = {"name": "UltraSSDAvailable", "value": "True"}
        details.append({"Name": list(row.ultra_zones), "capabilities": [ultra]})
    return {
        "resourceType": "virtualMachines",
        "name": row.name,
        "tier": "Standard",
        "size": row.name.removeprefix("Standard_"),
        "family": row.family,
        "locations": [world.location],
        "locationInfo": [{"location": world.location, "zones": zones, "zoneDetails": details}],
        "capabilities": [
            {"name": key, "value": _capability_text(value)}
            for key, value in capability_values.items()
        ],
        "restrictions": list(_restrictions(row, world)),
    }


def _capability_text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _restrictions(row: SizeRow, world: AzureWorld) -> Iterator[JsonObject]:
    for kind, applies in (("Zone", row.restricted_zones), ("Location", row.restricted_location)):
        if applies:
            info: JsonObject = {"locations": [world.location]}
            if kind == "Zone":
                info["zones"] = list(row.restricted_zones)
            yield {
                "type": kind,
                "values": [world.location],
                "restrictionInfo": info,
                "reasonCode": "NotAvailableForSubscription",
            }


def generated_rows(count: int) -> Sequence[SizeRow]:
    """Return rows of the table and made-up ones, together this many, for measurements."""
    features = ("s", "as", "ads", "ds", "ls", "lds", "ps", "pds", "pls", "plds")
    made = (
        SizeRow(
            name=f"Standard_{letter}{cpus}{feature}_v{version}",
            family=f"standard{letter}{feature.upper()}v{version}Family",
            cpus=cpus,
            memory_gib=cpus * memory,
            price_per_hour=round(cpus * (0.02 + memory * 0.006) * (1 + version / 100), 4),
            arm="p" in feature,
            generations="V2" if "p" in feature else "V1,V2",
            cache_gib=cpus * 25 if "d" in feature else 0,
            temporary_gib=cpus * 37 if "d" in feature else 0,
        )
        for version, (letter, memory), feature, cpus in product(
            range(7, 12), (("D", 4), ("E", 8), ("F", 2), ("M", 16)), features, (2, 4, 8, 16, 32, 48, 64, 96)
        )
    )  # fmt: skip
    return [*SIZE_TABLE, *islice(made, max(0, count - len(SIZE_TABLE)))][:count]


@final
class Sizes:
    """The VM sizes of the region."""

    def __init__(self, world: AzureWorld, skus: Iterable[JsonMapping] | None = None) -> None:
        """Take SKUs as `az vm list-skus -o json` writes them, by default those of the table."""
        self._world: Final = world
        self._first: Final[tuple[JsonMapping, ...]] = (
            tuple(sku_of(each, world) for each in SIZE_TABLE) if skus is None else tuple(skus)
        )
        self._skus: list[JsonMapping] = []
        self._by_name: dict[str, SimulatedSize] = {}
        self.page_size = _PAGE
        self.reset()

    def reset(self) -> None:
        """Restore the SKUs that it was made with."""
        self.page_size = _PAGE
        self.replace(self._first)

    def replace(self, skus: Iterable[JsonMapping]) -> None:
        """Replace the SKUs."""
        self._skus = list(skus)
        sizes = (self._read(each) for each in self._skus if _is_size(each))
        self._by_name = {each.name.lower(): each for each in sizes}

    @property
    def all(self) -> Sequence[SimulatedSize]:
        """Return every size."""
        return list(self._by_name.values())

    def get(self, name: str) -> SimulatedSize | None:
        """Return a size, named in any casing; None if the region has none of this name."""
        return self._by_name.get(name.lower())

    def _read(self, sku: JsonMapping) -> SimulatedSize:
        here = self._world.location
        capability_values = {
            each["name"].lower(): str(each["value"]) for each in sku["capabilities"]
        }
        nowhere: JsonObject = {}
        places: list[JsonObject] = sku["locationInfo"]
        info = next((each for each in places if each["location"].lower() == here), nowhere)
        zones: set[str] = set()
        restricted = False
        for each in sku["restrictions"]:
            if here not in {str(place).lower() for place in each["restrictionInfo"]["locations"]}:
                continue
            if each["type"] == "Location":
                restricted = True
            else:
                zones |= _texts(each["restrictionInfo"].get("zones"))
        return SimulatedSize(
            name=sku["name"],
            family=sku["family"],
            cpus=int(capability_values["vcpus"]),
            zones=_texts(info.get("zones")),
            restricted_zones=frozenset(zones),
            restricted=restricted,
            capabilities=capability_values,
            ultra_ssd_zones=frozenset(_ultra_ssd_zones(info)),
        )

    # -- calls -----------------------------------------------------------------------------------

    def add_routes(self, routes: ArmRoutes) -> None:
        """Add the route."""
        routes.add("LIST", "Microsoft.Compute/skus", self._list, api_versions=_VERSIONS)

    def _list(self, call: ArmCall) -> ArmReply:
        wanted = ""
        if text := call.query.get("$filter"):
            found = _FILTER.fullmatch(text)
            if found is None:
                raise ArmFault(
                    "InvalidParameter", f"The $filter '{text}' is not supported; use location eq."
                )
            wanted = found[1].lower()
        here = not wanted or wanted == self._world.location
        return page(call, [*self._skus, *self._disks()] if here else [], size=self.page_size)

    def _disks(self) -> Iterator[JsonObject]:
        for name in _DISKS:
            yield {
                "resourceType": "disks",
                "name": name,
                "locations": [self._world.location],
                "locationInfo": [{"location": self._world.location, "zones": []}],
                "capabilities": [{"name": "MaxSizeGiB", "value": "32767"}],
                "restrictions": [],
            }


def _texts(value: object) -> frozenset[str]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return frozenset(str(each) for each in items)


def _ultra_ssd_zones(info: JsonMapping) -> Iterator[str]:
    for detail in info.get("zoneDetails") or ():
        names = {each["name"] for each in detail["capabilities"] if each["value"] == "True"}
        if "UltraSSDAvailable" in names:
            yield from detail["Name"]


def _is_size(sku: JsonMapping) -> bool:
    return sku.get("resourceType") == "virtualMachines"
