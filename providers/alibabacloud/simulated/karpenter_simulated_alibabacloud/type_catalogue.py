"""Lists instance types, and the zones and disks they are offered with."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.provider.kit.simulated.pools import InstancePool
from karpenter_simulated_alibabacloud.paging import token_page
from karpenter_simulated_alibabacloud.types import DISK_CATEGORIES, realistic_types

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.parameters import RequestParameters
    from karpenter_simulated_alibabacloud.types import TypeInfo

__all__ = ["Stock", "TypeCatalogue"]

_TYPES_PAGE: Final = 100
_MIB_PER_GIB: Final = 1024
_SMALLEST_DISK_GIB: Final = 20
_LARGEST_SYSTEM_DISK_GIB: Final = 2048
_LARGEST_DATA_DISK_GIB: Final = 65536
Stock = str
"""`WithStock`, `ClosedWithStock`, `WithoutStock` or `ClosedWithoutStock`."""
_WITH_STOCK: Final = ("WithStock", "ClosedWithStock")
_STOCK: Final = (*_WITH_STOCK, "WithoutStock", "ClosedWithoutStock")
_SPOT_STRATEGIES: Final = ("NoSpot", "SpotAsPriceGo", "SpotWithPriceLimit")


@final
class TypeCatalogue:
    """Instance types by zone."""

    def __init__(
        self,
        account: Account,
        *,
        zones: Sequence[str],
        zones_without_spot: Collection[str],
        types: Iterable[TypeInfo] | None = None,
    ) -> None:
        self._account: Final = account
        self.zones: Final = tuple(sorted(zones))
        """Ids of the zones of the region."""
        self._zones_without_spot: Final = frozenset(zones_without_spot)
        self._types: Final = {
            each.name: each for each in (realistic_types() if types is None else types)
        }
        self._offered: list[tuple[str, str, bool]] = []
        self._disks: list[tuple[str, str, frozenset[str]]] = []
        self._reported_stock: list[tuple[InstancePool, Stock]] = []
        self.is_sold_out: Callable[[InstancePool], bool] = lambda _: False
        """Whether DescribeAvailableResource must say that a pool has nothing left."""

    def clear(self) -> None:
        """Offer every type everywhere."""
        self._offered.clear()
        self._disks.clear()
        self._reported_stock.clear()

    # The contents.

    def type_info(self, instance_type: str) -> TypeInfo | None:
        """Return what is known of a type; None when there is no such type."""
        return self._types.get(instance_type)

    @property
    def types(self) -> Sequence[TypeInfo]:
        """Every type, by name."""
        return sorted(self._types.values(), key=lambda each: each.name)

    def withdraw(self, *, instance_type: str = "*", zone: str = "*") -> None:
        """Offer types no longer in zones; both are shell patterns."""
        self._offered.append((instance_type, zone, False))

    def offer(self, *, instance_type: str = "*", zone: str = "*") -> None:
        """Offer types in zones again."""
        self._offered.append((instance_type, zone, True))

    def is_offered(self, pool: InstancePool) -> bool:
        """Whether a pool exists at all, whatever its stock."""
        type_info = self._types.get(pool.instance_type)
        if type_info is None or pool.zone not in self.zones:
            return False
        if pool.capacity_type == SPOT and (
            pool.zone in self._zones_without_spot or not type_info.sold_as_spot
        ):
            return False
        return next(
            (
                offered
                for instance_type, zone, offered in reversed(self._offered)
                if fnmatchcase(pool.instance_type, instance_type) and fnmatchcase(pool.zone, zone)
            ),
            True,
        )

    def set_reported_stock(
        self,
        stock: Stock,
        *,
        capacity_type: str = "*",
        instance_type: str = "*",
        zone: str = "*",
    ) -> None:
        """Let DescribeAvailableResource tell this of the stock, whatever there really is."""
        if stock not in _STOCK:
            raise ValueError(f"{stock} is none of {', '.join(_STOCK)}")
        pool = InstancePool(capacity_type=capacity_type, instance_type=instance_type, zone=zone)
        self._reported_stock.append((pool, stock))

    def reported_stock(self, pool: InstancePool) -> Stock:
        """Return the stock that is reported for a pool."""
        stock = next(
            (reported for rule, reported in reversed(self._reported_stock) if rule.holds(pool)), ""
        )
        return stock or ("WithoutStock" if self.is_sold_out(pool) else "WithStock")

    def offer_disks(
        self, categories: Iterable[str], *, instance_type: str = "*", zone: str = "*"
    ) -> None:
        """Let types in zones have only these kinds of disks."""
        self._disks.append((instance_type, zone, frozenset(categories)))

    def disks(self, instance_type: str, zone: str) -> Sequence[str]:
        """Return the kinds of disks that a type can have in a zone."""
        type_info = self._types.get(instance_type)
        kinds = type_info.disk_categories if type_info else DISK_CATEGORIES
        limit = next(
            (
                categories
                for wanted, in_zone, categories in reversed(self._disks)
                if fnmatchcase(instance_type, wanted) and fnmatchcase(zone, in_zone)
            ),
            None,
        )
        return [each for each in kinds if limit is None or each in limit]

    # Answers to API calls.

    def describe_instance_types(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DescribeInstanceTypes; a page has 100 at most, whatever the documentation says."""
        names = request.texts("InstanceTypes")
        families = {request.text("InstanceTypeFamily"), *request.texts("InstanceTypeFamilies")}
        families.discard("")
        architecture = request.text("CpuArchitecture")
        found = [
            each
            for each in self.types
            if (not names or each.name in names)
            and (not families or each.family in families)
            and architecture in {"", each.architecture}
        ]
        page, token = token_page(
            found, request, key=lambda each: each.name, default=_TYPES_PAGE, most=_TYPES_PAGE
        )
        return {
            "InstanceTypes": {"InstanceType": [_described(each) for each in page]},
            "NextToken": token,
        }

    def describe_families(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DescribeInstanceTypeFamilies."""
        generation = request.text("Generation")
        families = sorted({each.family for each in self.types})
        rows = [
            {"InstanceTypeFamilyId": each, "Generation": f"ecs-{_generation(each)}"}
            for each in families
        ]
        return {
            "InstanceTypeFamilies": {
                "InstanceTypeFamily": [row for row in rows if generation in {"", row["Generation"]}]
            }
        }

    def describe_available_resource(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DescribeAvailableResource for instance types and for disks."""
        request.required("RegionId")
        destination = request.choice(
            "DestinationResource",
            ("Zone", "IoOptimized", "InstanceType", "Network", "SystemDisk", "DataDisk"),
        )
        if not destination:
            request.required("DestinationResource")
        charge = request.choice("InstanceChargeType", ("PostPaid", "PrePaid"), "PostPaid")
        strategy = request.choice("SpotStrategy", _SPOT_STRATEGIES, "NoSpot")
        if strategy != "NoSpot" and charge != "PostPaid":
            raise request.invalid("SpotStrategy", strategy)
        capacity_type = ON_DEMAND if strategy == "NoSpot" else SPOT
        name = request.text("InstanceType")
        if name and name not in self._types:
            raise CloudError(
                "InvalidInstanceType.NotFound", f"The specified InstanceType {name} does not exist."
            )
        zone_wanted = request.text("ZoneId")
        zones = [each for each in self.zones if zone_wanted in {"", each}]
        answered = [
            self._zone_resources(zone, destination, capacity_type, name, request) for zone in zones
        ]
        return {"AvailableZones": {"AvailableZone": [each for each in answered if each]}}

    def _zone_resources(
        self,
        zone: str,
        destination: str,
        capacity_type: str,
        name: str,
        request: RequestParameters,
    ) -> Mapping[str, object] | None:
        resources = (
            self._disk_resources(zone, name, destination)
            if destination in {"SystemDisk", "DataDisk"}
            else self._type_resources(zone, capacity_type, name, request)
        )
        if not resources:
            return None
        stocked = any(each["StatusCategory"] in _WITH_STOCK for each in resources)
        reply: dict[str, object] = {
            "RegionId": self._account.region,
            "ZoneId": zone,
            "Status": "Available" if stocked else "SoldOut",
            "StatusCategory": "WithStock" if stocked else "WithoutStock",
        }
        if destination != "Zone":
            reply["AvailableResources"] = {
                "AvailableResource": [
                    {"Type": destination, "SupportedResources": {"SupportedResource": resources}}
                ]
            }
        return reply

    def _type_resources(
        self, zone: str, capacity_type: str, name: str, request: RequestParameters
    ) -> Sequence[Mapping[str, object]]:
        cores, memory = request.integer("Cores"), request.number("Memory")
        rows: list[Mapping[str, object]] = []
        for each in self.types:
            pool = InstancePool(capacity_type=capacity_type, instance_type=each.name, zone=zone)
            wanted = (
                name in {"", each.name}
                and cores in {0, each.vcpus}
                and memory in {0, each.memory_gib}
            )
            if wanted and self.is_offered(pool):
                rows.append(_stocked(each.name, self.reported_stock(pool)))
        return rows

    def _disk_resources(
        self, zone: str, name: str, destination: str
    ) -> Sequence[Mapping[str, object]]:
        pool = InstancePool(capacity_type=ON_DEMAND, instance_type=name, zone=zone)
        if name and not self.is_offered(pool):
            return ()
        largest = (
            _LARGEST_SYSTEM_DISK_GIB if destination == "SystemDisk" else _LARGEST_DATA_DISK_GIB
        )
        return [
            {
                **_stocked(kind, "WithStock"),
                "Min": _SMALLEST_DISK_GIB,
                "Max": largest,
                "Unit": "GiB",
            }
            for kind in self.disks(name, zone)
        ]

    def describe_zones(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DescribeZones."""
        verbose = request.flag("Verbose", default=True)
        zones: list[Mapping[str, object]] = []
        for zone in self.zones:
            reply: dict[str, object] = {
                "ZoneId": zone,
                "LocalName": f"Zone {zone.rpartition('-')[2].upper()}",
                "ZoneType": "AvailabilityZone",
                "AvailableResourceCreation": {"ResourceTypes": ["VSwitch", "Disk", "Instance"]},
                "AvailableDiskCategories": {"DiskCategories": list(DISK_CATEGORIES)},
            }
            if verbose:
                reply["AvailableInstanceTypes"] = {
                    "InstanceTypes": [
                        each.name
                        for each in self.types
                        if self.is_offered(
                            InstancePool(
                                capacity_type=ON_DEMAND, instance_type=each.name, zone=zone
                            )
                        )
                    ]
                }
            zones.append(reply)
        return {"Zones": {"Zone": zones}}

    def describe_regions(self, _request: RequestParameters) -> Mapping[str, object]:
        """Answer DescribeRegions."""
        region = self._account.region
        return {
            "Regions": {
                "Region": [
                    {
                        "RegionId": region,
                        "LocalName": region,
                        "RegionEndpoint": f"ecs.{region}.aliyuncs.com",
                        "Status": "available",
                    }
                ]
            }
        }


def _generation(family: str) -> int:
    digits = "".join(each for each in family if each.isdigit())
    return int(digits[:1] or 1)


def _stocked(value: str, stock: Stock) -> dict[str, object]:
    return {
        "Value": value,
        "Status": "Available" if stock in _WITH_STOCK else "SoldOut",
        "StatusCategory": stock,
    }


def _described(type_info: TypeInfo) -> Mapping[str, object]:
    reply: dict[str, object] = {
        "InstanceTypeId": type_info.name,
        "InstanceTypeFamily": type_info.family,
        "InstanceCategory": type_info.category,
        "InstanceFamilyLevel": type_info.level,
        "CpuArchitecture": type_info.architecture,
        "CpuCoreCount": type_info.vcpus,
        "CpuSpeedFrequency": 2.7,
        "MemorySize": type_info.memory_gib,
        "PhysicalProcessorModel": type_info.processor,
        "EniQuantity": type_info.interfaces,
        "EniTotalQuantity": type_info.interfaces,
        "EniPrivateIpAddressQuantity": type_info.addresses_per_interface,
        "EniIpv6AddressQuantity": type_info.addresses_per_interface,
        "EniTrunkSupported": type_info.level == "EnterpriseLevel",
        "EriQuantity": 0,
        "PrimaryEniQueueNumber": min(32, type_info.vcpus),
        "SecondaryEniQueueNumber": min(32, type_info.vcpus),
        "InstanceBandwidthRx": type_info.bandwidth_kbps,
        "InstanceBandwidthTx": type_info.bandwidth_kbps,
        "InstancePpsRx": type_info.vcpus * 100_000,
        "InstancePpsTx": type_info.vcpus * 100_000,
        "DiskQuantity": 17,
        "GPUAmount": type_info.gpus,
        "GPUSpec": type_info.gpu_spec,
        "GPUMemorySize": type_info.gpu_memory_gib,
        "NvmeSupport": "required" if type_info.nvme else "unsupported",
        "BaselineCredit": 10 if type_info.level == "CreditEntryLevel" else 0,
        "InitialCredit": 60 if type_info.level == "CreditEntryLevel" else 0,
        "LocalStorageCategory": type_info.local_disk_category,
    }
    if type_info.local_disks:
        reply |= {
            "LocalStorageAmount": type_info.local_disks,
            "LocalStorageCapacity": type_info.local_disk_gib,
        }
    return reply
