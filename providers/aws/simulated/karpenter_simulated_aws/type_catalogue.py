"""Lists instance types, their zones and offerings, from moto's data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_simulated_aws.protocol import AwsError
from karpenter_simulated_aws.selection import filter_items, slice_page

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from types_boto3_ec2.type_defs import (
        DescribeInstanceTypeOfferingsRequestTypeDef,
        DescribeInstanceTypesRequestTypeDef,
        InstanceTypeInfoTypeDef,
    )

    from karpenter_simulated_aws.account import Account
    from karpenter_simulated_aws.selection import RequestFilter

__all__ = ["TypeCatalogue", "TypeInfo", "quota_group", "zone_ids"]

_TYPES_PAGE: Final = 100
_OFFERINGS_PAGE: Final = 1000
_SMALLEST_PAGE: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNetworkCard:
    """Interfaces that one network card takes."""

    max_interfaces: int
    interface_types: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeInfo:
    """Facts of a type that launches and boots need."""

    name: str
    architectures: tuple[str, ...]
    vcpus: int
    memory_mib: int
    interfaces: int
    """Of the default network card."""
    addresses_per_interface: int
    gpus: int
    gpu_manufacturer: str
    neuron_devices: int
    efa_interfaces: int
    network_cards: Mapping[int, SimulatedNetworkCard]
    storage_gb: int
    bare_metal: bool
    usage_classes: tuple[str, ...]
    hypervisor: str


def quota_group(instance_type: str) -> str:
    """Return the group of families that shares a quota of vCPUs with this type."""
    family = instance_type.split(".", 1)[0]
    for prefix, group in _QUOTA_GROUPS:
        if family.startswith(prefix):
            return group
    return "standard"


# The families of EC2's vCPU quotas ("Running On-Demand ... instances"); the rest is "standard".
_QUOTA_GROUPS: Final = (
    ("dl", "dl"),
    ("inf", "inf"),
    ("trn", "trn"),
    ("hpc", "hpc"),
    ("u-", "high-memory"),
    ("u7", "high-memory"),
    ("vt", "g"),
    ("g", "g"),
    ("p", "p"),
    ("f", "f"),
    ("x", "x"),
)


@final
class TypeCatalogue:
    """The types of a region."""

    def __init__(self, account: Account, only: Collection[str] | None = None) -> None:
        """Make it of all the types there are, or of a few, which are listed much faster."""
        self._account: Final = account
        self._only: Final = None if only is None else frozenset(only)
        self._withdrawn: set[tuple[str, str]] = set()
        self.changed: Callable[[], None] = lambda: None
        """Called when a type is withdrawn, or sold again."""

    def infos(self) -> Mapping[str, InstanceTypeInfoTypeDef]:
        """Return each type as DescribeInstanceTypes does, by its name."""
        return {
            name: info
            for name, info in _all_types().items()
            if self._only is None or name in self._only
        }

    def zones(self) -> Mapping[str, Collection[str]]:
        """Return the zones in which each type is offered."""
        offered: dict[str, set[str]] = {}
        for name, zone in _all_offerings(self._account.region):
            if (self._only is None or name in self._only) and (name, zone) not in self._withdrawn:
                offered.setdefault(name, set()).add(zone)
        return offered

    def is_offered(self, instance_type: str, zone: str) -> bool:
        """Whether the type is sold in the zone at all."""
        return (
            (instance_type, zone) in _all_offerings(self._account.region)
            and (instance_type, zone) not in self._withdrawn
            and (self._only is None or instance_type in self._only)
        )

    def withdraw(self, instance_type: str, zone: str) -> None:
        """Sell the type in the zone no more."""
        self._withdrawn.add((instance_type, zone))
        self.changed()

    def clear(self) -> None:
        """Sell again what was withdrawn."""
        if self._withdrawn:
            self._withdrawn.clear()
            self.changed()

    def type_info(self, instance_type: str) -> TypeInfo | None:
        """Return the facts of a type; None when there is none of the name."""
        if self._only is not None and instance_type not in self._only:
            return None
        return _facts(instance_type)

    def describe_instance_types(
        self,
        request: DescribeInstanceTypesRequestTypeDef,
    ) -> Mapping[str, object]:
        """Answer DescribeInstanceTypes."""
        infos = self.infos()
        names: Sequence[str] = request.get("InstanceTypes", ())
        absent = [name for name in names if name not in infos]
        if absent:
            raise AwsError(
                "InvalidInstanceType",
                f"The following supplied instance types do not exist: [{', '.join(absent)}]",
            )
        found = filter_items(
            [infos[name] for name in names or sorted(infos)],
            cast("Sequence[RequestFilter]", request.get("Filters", ())),
            values=_type_values,
            tags=lambda _: {},
        )
        shown, token = slice_page(
            found,
            size=request.get("MaxResults"),
            token=request.get("NextToken"),
            maximum=_TYPES_PAGE,
            minimum=_SMALLEST_PAGE,
        )
        return {"InstanceTypes": shown, "NextToken": token}

    def describe_instance_type_offerings(
        self,
        request: DescribeInstanceTypeOfferingsRequestTypeDef,
    ) -> Mapping[str, object]:
        """Answer DescribeInstanceTypeOfferings by zone, by zone id or for the region."""
        kind = request.get("LocationType", "region")
        ids = zone_ids(self._account)
        rows: dict[tuple[str, str], None] = {}
        for name, zones in sorted(self.zones().items()):
            for zone in sorted(zones):
                location = {"region": self._account.region, "availability-zone-id": ids[zone]}
                rows[name, location.get(kind, zone)] = None

        def values(row: tuple[str, str], name: str) -> Sequence[str] | None:
            return {"instance-type": (row[0],), "location": (row[1],)}.get(name)

        found = filter_items(
            list(rows),
            cast("Sequence[RequestFilter]", request.get("Filters", ())),
            values=values,
            tags=lambda _: {},
        )
        shown, token = slice_page(
            found,
            size=request.get("MaxResults"),
            token=request.get("NextToken"),
            maximum=_OFFERINGS_PAGE,
            minimum=_SMALLEST_PAGE,
        )
        return {
            "InstanceTypeOfferings": [
                {"InstanceType": name, "LocationType": kind, "Location": location}
                for name, location in shown
            ],
            "NextToken": token,
        }


def zone_ids(account: Account) -> Mapping[str, str]:
    """Return the id of each zone of the account's region."""
    from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

    return {zone.name: zone.zone_id for zone in RegionsAndZonesBackend.zones[account.region]}


@cache
def _all_types() -> Mapping[str, InstanceTypeInfoTypeDef]:
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    return cast("Mapping[str, InstanceTypeInfoTypeDef]", INSTANCE_TYPES)


@cache
def _all_offerings(region: str) -> frozenset[tuple[str, str]]:
    """Return types and their zones; where moto knows none (China, GovCloud) each is in every zone."""
    from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend
    from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS

    by_region = cast(
        "Mapping[str, Sequence[Mapping[str, str]]]", INSTANCE_TYPE_OFFERINGS["availability-zone"]
    )
    if region not in by_region:
        zones = [zone.name for zone in RegionsAndZonesBackend.zones[region]]
        return frozenset(product(_all_types(), zones))
    return frozenset((row["InstanceType"], row["Location"]) for row in by_region[region])


@cache
def _facts(instance_type: str) -> TypeInfo | None:
    info = _all_types().get(instance_type)
    if info is None:
        return None
    network = info.get("NetworkInfo", {})
    cards = network.get("NetworkCards", [])
    default_card = network.get("DefaultNetworkCardIndex", 0)
    gpus = info.get("GpuInfo", {}).get("Gpus", [])
    return TypeInfo(
        name=instance_type,
        architectures=tuple(info.get("ProcessorInfo", {}).get("SupportedArchitectures", ())),
        vcpus=info.get("VCpuInfo", {}).get("DefaultVCpus", 0),
        memory_mib=info.get("MemoryInfo", {}).get("SizeInMiB", 0),
        interfaces=next(
            (
                card.get("MaximumNetworkInterfaces", 0)
                for card in cards
                if card.get("NetworkCardIndex") == default_card
            ),
            network.get("MaximumNetworkInterfaces", 0),
        ),
        addresses_per_interface=network.get("Ipv4AddressesPerInterface", 0),
        gpus=sum(gpu.get("Count", 0) for gpu in gpus),
        gpu_manufacturer=str(gpus[0].get("Manufacturer", "")) if gpus else "",
        neuron_devices=sum(
            device.get("Count", 0) for device in info.get("NeuronInfo", {}).get("NeuronDevices", [])
        ),
        efa_interfaces=network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        network_cards={
            card.get("NetworkCardIndex", 0): SimulatedNetworkCard(
                max_interfaces=card.get("MaximumNetworkInterfaces", 0),
                interface_types=tuple(card.get("InterfaceTypes", ())),
            )
            for card in cards
        },
        storage_gb=info.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0),
        bare_metal=info.get("BareMetal", False),
        usage_classes=tuple(info.get("SupportedUsageClasses", ())),
        hypervisor=info.get("Hypervisor", ""),
    )


def _type_values(info: InstanceTypeInfoTypeDef, name: str) -> Sequence[str] | None:
    """Return what a type has under a filter, whose name is a path into the description."""
    match name:
        case "instance-type":
            return (info.get("InstanceType", ""),)
        case "supported-virtualization-type":
            return info.get("SupportedVirtualizationTypes", ())
        case "supported-usage-class":
            return info.get("SupportedUsageClasses", ())
        case "processor-info.supported-architecture":
            return info.get("ProcessorInfo", {}).get("SupportedArchitectures", ())
        case "hypervisor":
            return (info.get("Hypervisor", ""),)
        case "bare-metal":
            return (str(info.get("BareMetal", False)).lower(),)
        case "current-generation":
            return (str(info.get("CurrentGeneration", False)).lower(),)
        case "vcpu-info.default-vcpus":
            return (str(info.get("VCpuInfo", {}).get("DefaultVCpus", 0)),)
        case "memory-info.size-in-mib":
            return (str(info.get("MemoryInfo", {}).get("SizeInMiB", 0)),)
        case _:
            return None
