"""Serves the region's retail prices; all zones have the same spot price."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, final
from urllib.parse import quote, urlencode

from karpenter_core.api.labels import SPOT
from karpenter_core.provider.kit.simulated.prices import SimulatedPrices, stable_fraction
from karpenter_simulated_azure.arm_api import ArmFault, ArmReply
from karpenter_simulated_azure.size_table import SIZE_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.provider.kit.simulated.pools import InstancePool
    from karpenter_simulated_azure.arm_api import ArmCall, ArmRoutes
    from karpenter_simulated_azure.sizes import SimulatedSize, Sizes
    from karpenter_simulated_azure.world import AzureWorld

__all__ = ["AzurePrices", "RetailPrices"]

_PAGE: Final = 100
_TERM: Final = re.compile(r"\s*(\w+)\s+eq\s+'([^']*)'\s*")
_PRICE_PER_CPU: Final = 0.05
"""Of sizes that the table does not have."""
_WINDOWS_PER_CPU: Final = 0.046
_LISTED: Final = {each.name: each.price_per_hour for each in SIZE_TABLE}


@final
class AzurePrices(SimulatedPrices):
    """The prices of VM sizes; one spot price for the region."""

    def __init__(self, clock: Callable[[], datetime], sizes: Sizes) -> None:
        self._sizes: Final = sizes
        super().__init__(clock, self._listed, spot_low=0.15, spot_spread=0.25)

    def _listed(self, size_name: str) -> float:
        size = self._sizes.get(size_name)
        if size is None:
            return 0.0
        return _LISTED.get(size.name, round(size.cpus * _PRICE_PER_CPU, 4))

    def spot(self, instance_type: str, zone: str = "", *, at: datetime | None = None) -> float:
        """Return the spot price, whatever the zone."""
        del zone
        return super().spot(instance_type, "", at=at)

    def set_spot(self, instance_type: str, zone: str, price: float) -> None:
        """Set the spot price, whatever the zone."""
        del zone
        super().set_spot(instance_type, "", price)

    def of(self, pool: InstancePool) -> float:
        """Return the price of an instance of a pool; 0 if there is none."""
        if pool.capacity_type == SPOT:
            return self.spot(pool.instance_type)
        return self.on_demand(pool.instance_type)


@final
class RetailPrices:
    """The API for retail prices."""

    def __init__(self, world: AzureWorld, sizes: Sizes, prices: AzurePrices) -> None:
        self._world: Final = world
        self._sizes: Final = sizes
        self._prices: Final = prices

    def add_routes(self, routes: ArmRoutes) -> None:
        """Add the route."""
        routes.add_page("GET", r"/api/retail/prices", self._list, action="retailPrices:list")

    def _list(self, call: ArmCall) -> ArmReply:
        wanted = _read_filter(call.query.get("$filter", ""))
        found = [each for each in self._items() if _matches(each, wanted)]
        try:
            start = int(call.query.get("$skip", "0"))
        except ValueError:
            raise ArmFault("BadRequest", "The $skip is not a number.") from None
        shown = found[start : start + _PAGE]
        following: str | None = None
        if start + _PAGE < len(found):
            kept = {key: value for key, value in call.query.items() if key != "$skip"}
            query = urlencode({**kept, "$skip": start + _PAGE}, quote_via=quote, safe="$")
            following = f"{call.base_url}{call.path}?{query}"
        return ArmReply(
            body={
                "BillingCurrency": "USD",
                "CustomerEntityId": "Default",
                "CustomerEntityType": "Retail",
                "Items": shown,
                "NextPageLink": following,
                "Count": len(shown),
            }
        )

    def _items(self) -> Iterator[JsonObject]:
        for size in self._sizes.all:
            price = self._prices.on_demand(size.name)
            if price == 0:
                continue
            series = re.sub(r"^Standard_|\d+|_", "", size.name)
            product = f"Virtual Machines {series} Series"
            windows = round(price + size.cpus * _WINDOWS_PER_CPU, 4)
            yield self._item(size, product, price)
            yield self._item(size, f"{product} Windows", windows)
            spot = self._prices.spot(size.name)
            if spot and size.can("LowPriorityCapable"):
                yield self._item(size, product, spot, suffix=" Spot")
                yield self._item(size, f"{product} Windows", windows / 2, suffix=" Spot")
                yield self._item(size, product, price / 5, suffix=" Low Priority")
            if size.name.endswith("_v3"):
                yield self._item(size, f"{series} Series Cloud Services", price * 3)
                yield self._item(size, product, price * 5000, kind="Reservation")

    def _item(
        self,
        size: SimulatedSize,
        product: str,
        price: float,
        *,
        suffix: str = "",
        kind: str = "Consumption",
    ) -> JsonObject:
        sku = f"{size.name.removeprefix('Standard_').replace('_', ' ')}{suffix}"
        amount = round(price, 6)
        number = int(stable_fraction(f"{product}/{sku}/{kind}") * 2**32)
        return {
            "currencyCode": "USD",
            "tierMinimumUnits": 0.0,
            "retailPrice": amount,
            "unitPrice": amount,
            "armRegionName": self._world.location,
            "location": self._world.location,
            "effectiveStartDate": "2025-11-01T00:00:00Z",
            "meterId": f"{number:08x}-0000-4000-8000-000000000000",
            "meterName": sku,
            "productId": f"DZH318Z{number % 10**5:05}",
            "skuId": f"DZH318Z{number % 10**5:05}/{number % 10**4:04}",
            "productName": product,
            "skuName": sku,
            "serviceName": "Virtual Machines",
            "serviceId": "DZH313Z7MMC8",
            "serviceFamily": "Compute",
            "unitOfMeasure": "1 Hour",
            "type": kind,
            "isPrimaryMeterRegion": True,
            "armSkuName": size.name,
        }


def _read_filter(text: str) -> Mapping[str, str]:
    """Return the values that a filter asks for, by the field of an item."""
    wanted: dict[str, str] = {}
    for term in re.split(r"\s+and\s+", text) if text else ():
        found = _TERM.fullmatch(term)
        if found is None:
            raise ArmFault("BadRequest", f"The $filter has '{term}', which is no eq of a field.")
        wanted["type" if found[1] == "priceType" else found[1]] = found[2]
    return wanted


def _matches(item: JsonObject, wanted: Mapping[str, str]) -> bool:
    return all(item.get(name) == value for name, value in wanted.items())
