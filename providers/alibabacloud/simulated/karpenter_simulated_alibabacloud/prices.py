"""Prices of instances: list prices, spot prices and their history.

Prices are computed from a type's size; they are the same in every run, and near those of
cn-hangzhou for general-purpose types (¥0.13 for a vCPU and ¥0.03 for a GiB in an hour; spot is 10
to 40 percent).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.provider.kit.simulated.pools import InstancePool
from karpenter_core.provider.kit.simulated.prices import SimulatedPrices, stable_fraction
from karpenter_simulated_alibabacloud.account import to_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.parameters import RequestParameters
    from karpenter_simulated_alibabacloud.type_catalogue import TypeCatalogue
    from karpenter_simulated_alibabacloud.types import TypeInfo

__all__ = ["CURRENCY", "Prices", "made_up_price"]

CURRENCY: Final = "CNY"

_PER_VCPU: Final = 0.13
_PER_GIB: Final = 0.03
_PER_GPU: Final = {"NVIDIA T4": 5.0, "NVIDIA A10": 8.0}
_PER_LOCAL_GIB: Final = 0.0001
_SHARED_DISCOUNT: Final = 0.6
_ARM_DISCOUNT: Final = 0.85
_PER_DISK_GIB: Final = {"cloud_efficiency": 0.0005, "cloud_ssd": 0.0014, "cloud_essd": 0.0010}
_PER_OTHER_DISK_GIB: Final = 0.0007
_SPOT_LOW: Final = 0.1
_SPOT_SPREAD: Final = 0.3
_HOURS: Final = {"Hour": 1, "Day": 24, "Week": 168, "Month": 720, "Year": 8760}
_HISTORY_PAGE: Final = 1000
_HISTORY_HOURS: Final = 3
_LONGEST_HISTORY: Final = timedelta(days=30)
_MOST_ADVISED: Final = 10
_INTERRUPTION_RATES: Final = (("0-3%", 1.5), ("3-5%", 4.0), ("5-10%", 7.5), ("10-100%", 20.0))


def made_up_price(type_info: TypeInfo) -> float:
    """Return a price per hour that follows from a type's size, and differs between families."""
    price = (
        type_info.vcpus * _PER_VCPU
        + type_info.memory_gib * _PER_GIB
        + type_info.gpus * _PER_GPU.get(type_info.gpu_spec, 0)
        + type_info.local_disks * type_info.local_disk_gib * _PER_LOCAL_GIB
    )
    if type_info.level != "EnterpriseLevel":
        price *= _SHARED_DISCOUNT
    if type_info.architecture == "ARM":
        price *= _ARM_DISCOUNT
    return round(price * (0.97 + 0.06 * stable_fraction(type_info.family)), 4)


@final
class Prices(SimulatedPrices):
    """The prices of a region, per hour."""

    def __init__(self, account: Account, catalogue: TypeCatalogue) -> None:
        super().__init__(
            account.clock,
            self._listed,
            spot_low=_SPOT_LOW,
            spot_spread=_SPOT_SPREAD,
            digits=4,
            is_spot_sold=self._is_spot_offered,
        )
        self._account: Final = account
        self._catalogue: Final = catalogue

    def _listed(self, instance_type: str) -> float:
        type_info = self._catalogue.type_info(instance_type)
        return 0.0 if type_info is None else made_up_price(type_info)

    def _is_spot_offered(self, instance_type: str, zone: str) -> bool:
        return self._catalogue.is_offered(
            InstancePool(capacity_type=SPOT, instance_type=instance_type, zone=zone)
        )

    # Answers to API calls.

    def describe_price(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DescribePrice for instances: the instance, and the disks that are named."""
        request.required("RegionId")
        kind = request.choice("ResourceType", ("instance", "disk", "bandwidth"), "instance")
        if kind != "instance":
            raise request.invalid("ResourceType", kind)
        name = request.required("InstanceType")
        type_info = self._catalogue.type_info(name)
        if type_info is None:
            raise CloudError(
                "InvalidInstanceType.ValueNotSupported",
                f"The specified InstanceType {name} is not supported.",
            )
        unit = request.choice("PriceUnit", tuple(_HOURS), "Hour")
        hours = _HOURS[unit] * request.integer("Period", 1) * max(1, request.integer("Amount", 1))
        price = self._asked_price(name, request)
        if price <= 0:
            raise CloudError("PriceNotFound", f"The price of {name} is not found.")
        details = [("instanceType", price * hours)]
        disk = request.within("SystemDisk")
        if disk:
            category = disk.text("Category", "cloud_essd")
            if category not in type_info.disk_categories:
                raise CloudError(
                    "InvalidSystemDiskCategory.ValueNotSupported",
                    f"The specified SystemDisk.Category {category} is not supported by {name}.",
                )
            details.append(("systemDisk", _disk_price(category, disk.integer("Size", 40)) * hours))
        total = round(sum(amount for _, amount in details), 4)
        return {
            "PriceInfo": {
                "Price": {
                    "Currency": CURRENCY,
                    "OriginalPrice": total,
                    "DiscountPrice": 0.0,
                    "TradePrice": total,
                    "DetailInfos": {
                        "DetailInfo": [
                            {
                                "Resource": resource,
                                "OriginalPrice": round(amount, 4),
                                "DiscountPrice": 0.0,
                                "TradePrice": round(amount, 4),
                            }
                            for resource, amount in details
                        ]
                    },
                },
                "Rules": {"Rule": []},
            }
        }

    def _asked_price(self, name: str, request: RequestParameters) -> float:
        strategy = request.text("SpotStrategy", "NoSpot")
        if strategy == "NoSpot":
            return self.on_demand(name)
        zones = [request.text("ZoneId")] if request.text("ZoneId") else self._catalogue.zones
        return min((price for zone in zones if (price := self.spot(name, zone)) > 0), default=0.0)

    def describe_spot_price_history(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DescribeSpotPriceHistory: the price of each hour in each zone, oldest first."""
        request.required("RegionId")
        request.choice("NetworkType", ("vpc", "classic"))
        request.required("NetworkType")
        name = request.required("InstanceType")
        now = self._account.clock()
        end = _time(request, "EndTime", now)
        start = _time(request, "StartTime", end - timedelta(hours=_HISTORY_HOURS))
        if start < now - _LONGEST_HISTORY - timedelta(minutes=1):
            raise request.invalid("StartTime", request.text("StartTime"))
        zone_wanted = request.text("ZoneId")
        rows = [
            row
            for zone in self._catalogue.zones
            if zone_wanted in {"", zone}
            for row in self._history(name, zone, start, end)
        ]
        offset = request.integer("Offset")
        page = rows[offset : offset + _HISTORY_PAGE]
        following = offset + _HISTORY_PAGE
        return {
            "Currency": CURRENCY,
            "SpotPrices": {"SpotPriceType": page},
            "NextOffset": following if following < len(rows) else 0,
        }

    def _history(
        self, name: str, zone: str, start: datetime, end: datetime
    ) -> Sequence[Mapping[str, object]]:
        if self.spot(name, zone) <= 0:
            return ()
        last = end.replace(minute=0, second=0, microsecond=0)
        count = max(1, int((last - start).total_seconds() // 3600) + 1)
        moments = [last - timedelta(hours=back) for back in reversed(range(count))]
        return [
            {
                "InstanceType": name,
                "ZoneId": zone,
                "NetworkType": "vpc",
                "IoOptimized": "optimized",
                "Timestamp": to_seconds(moment),
                "SpotPrice": self.spot(name, zone, at=moment),
                "OriginPrice": self.on_demand(name),
            }
            for moment in moments
        ]

    def describe_spot_advice(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DescribeSpotAdvice: the discount and the rate of interruption in each zone."""
        request.required("RegionId")
        names = request.texts("InstanceTypes", most=_MOST_ADVISED)
        family = request.text("InstanceTypeFamily")
        zone_wanted = request.text("ZoneId")
        zones: list[Mapping[str, object]] = []
        for zone in self._catalogue.zones:
            if zone_wanted not in {"", zone}:
                continue
            rows = [
                self._advice(each, zone)
                for each in self._catalogue.types
                if (not names or each.name in names)
                and family in {"", each.family}
                and self.spot(each.name, zone) > 0
            ]
            if rows:
                zones.append(
                    {
                        "ZoneId": zone,
                        "AvailableSpotResources": {"AvailableSpotResource": rows},
                    }
                )
        return {
            "RegionId": self._account.region,
            "AvailableSpotZones": {"AvailableSpotZone": zones},
        }

    def _advice(self, type_info: TypeInfo, zone: str) -> Mapping[str, object]:
        words, rate = _INTERRUPTION_RATES[int(stable_fraction(f"{zone}/{type_info.name}") * 4)]
        on_demand = self.of(
            InstancePool(capacity_type=ON_DEMAND, instance_type=type_info.name, zone=zone)
        )
        discount = round(self.spot(type_info.name, zone) / on_demand * 100) if on_demand else 100
        return {
            "InstanceType": type_info.name,
            "AverageSpotDiscount": discount,
            "InterruptRateDesc": words,
            "InterruptionRate": rate,
        }


def _disk_price(category: str, size_gib: int) -> float:
    return _PER_DISK_GIB.get(category, _PER_OTHER_DISK_GIB) * size_gib


def _time(request: RequestParameters, name: str, default: datetime) -> datetime:
    text = request.text(name)
    if not text:
        return default
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise request.invalid(name, text) from None
