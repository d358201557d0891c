"""Keeps a region's prices: on-demand ones, spot ones, estimates.

The two kinds of price have different sources and fail independently. On-demand prices come from the
price list; those that could not be read are as shipped. Spot prices come from the market, and are
estimated by shipped on-demand prices only until the market was first read: afterwards a zone
without a price is one where the type is not sold as spot.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from math import isfinite
from sys import intern
from threading import Lock
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.catalogue import DEFAULT_CURRENCY
from karpenter_core.provider.kit.cached_prices import read_cached_prices, write_cached_prices
from karpenter_core.provider.kit.price_table import PriceTable
from karpenter_provider_aws.data import shipped_on_demand_prices
from karpenter_provider_aws.discovery.call_errors import core_errors_of
from karpenter_provider_aws.paging import ending_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from types_boto3_ec2.type_defs import SpotPriceTypeDef
    from types_boto3_pricing.type_defs import FilterTypeDef

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.provider.catalogue import Price
    from karpenter_core.provider.kit.disk_cache import DiskCache
    from karpenter_provider_aws.sdk import CloudClients

__all__ = ["REFRESH_PERIOD", "RegionPrices", "currency_of", "read_products", "read_spot_history"]

REFRESH_PERIOD: Final = timedelta(hours=12)

_FORMER_PRICES: Final = 4
"""Earlier prices of an offering that are remembered: instance types are listed again within minutes, and
a refresh that fails is repeated as soon."""
_PRICING_PAGE: Final = 100
_SPOT_PAGE: Final = 500
"""A process keeps most of the memory of a page's XML while others are read: 1.5 MiB more with 2,000."""
_SPOT_PRODUCTS: Final = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")

# Instances of tenancy "Shared", and bare metal, which the price list files under "Dedicated".
_PRODUCTS: Final = (
    {"tenancy": "Shared", "productFamily": "Compute Instance"},
    {"tenancy": "Dedicated", "productFamily": "Compute Instance (bare metal)"},
)


def currency_of(region: str) -> str:
    """Return the currency in which a region is billed."""
    if region.startswith("cn-"):
        return "CNY"
    return "EUR" if region.startswith("eusc-") else DEFAULT_CURRENCY  # the European Sovereign Cloud


def read_products(items: Iterable[str], *, currency: str) -> dict[str, float]:
    """Return the price per hour by instance type, from the `PriceList` of GetProducts.

    Products without a price above zero in this currency, or that cannot be read, are left out.
    """
    prices: dict[str, float] = {}
    for item in items:
        try:
            document: JsonObject = json.loads(item)
            name: str = document["product"]["attributes"]["instanceType"]
            terms: JsonObject = document["terms"]["OnDemand"]
            amounts = [
                float(dimension["pricePerUnit"][currency])
                for term in terms.values()
                for dimension in term["priceDimensions"].values()
                if currency in dimension["pricePerUnit"]
            ]
        except (AttributeError, KeyError, TypeError, ValueError):
            continue
        # There is one amount; of several, one must be chosen that does not depend on their order.
        amount = max(amounts, default=0.0)
        if amount > 0 and isfinite(amount):
            prices[name] = amount
    return prices


def read_spot_history(items: Iterable[SpotPriceTypeDef]) -> dict[tuple[str, str], float]:
    """Return the latest price per hour by (instance type, zone)."""
    latest: dict[tuple[str, str], tuple[datetime, float]] = {}
    for item in items:
        try:
            amount = float(item.get("SpotPrice", ""))
        except ValueError:
            continue
        # Each entry has texts of its own, which thousands of keys would hold.
        key = (intern(item.get("InstanceType", "")), intern(item.get("AvailabilityZone", "")))
        said = (item.get("Timestamp", datetime.min.replace(tzinfo=UTC)), amount)
        if all(key) and isfinite(amount) and said > latest.get(key, (said[0], 0.0)):
            latest[key] = said
    return {key: amount for key, (_, amount) in latest.items()}


@final
class RegionPrices:
    """The prices of one region; callable from any thread."""

    def __init__(self, region: str, *, isolated: bool = False) -> None:
        """With `isolated` the price list, which is no endpoint inside a VPC, is never asked."""
        self.currency: Final = currency_of(region)
        self._region: Final = region
        self._reads_price_list: Final = not isolated and not region.startswith("us-gov")
        shipped = shipped_on_demand_prices(region)
        self._tables: Final = {
            ON_DEMAND: PriceTable(shipped, currency=self.currency),
            SPOT: PriceTable(shipped, currency=self.currency, fills_gaps=False),
        }
        self._lock: Final = Lock()
        self._revision = 0
        self._former: Final[dict[str, dict[str, tuple[float, ...]]]] = {ON_DEMAND: {}}
        """Amounts that were replaced of late, the latest first: by zone of spot prices, and by type."""

    def restore(self, disk: DiskCache, *, now: datetime) -> None:
        """Begin with what an earlier process read."""
        for capacity_type, kept in read_cached_prices(disk, now=now).items():
            if capacity_type in self._tables:
                self._update(capacity_type, kept.prices, now=kept.read_at)

    @property
    def revision(self) -> int:
        """A number that grows whenever a price changes."""
        return self._revision

    def on_demand(self, instance_type: str) -> Price | None:
        """Return the on-demand price; None when it is not known."""
        return self._tables[ON_DEMAND].find(instance_type)

    def spot(self, instance_type: str, zone: str) -> Price | None:
        """Return the spot price; None when it is not known, or not sold there."""
        return self._tables[SPOT].find(instance_type, zone=zone)

    def is_of_cloud(self, instance_type: str, capacity_type: str, zone: str, amount: float) -> bool:
        """Whether the cloud asks this amount, or has asked it of late.

        Instance types that were listed before a refresh have the prices of that time. An offering
        whose price is not known belongs to the cloud, too: nothing says otherwise.
        """
        if capacity_type == SPOT:
            listed, former = self.spot(instance_type, zone), self._former.get(zone, {})
        else:
            listed, former = self.on_demand(instance_type), self._former[ON_DEMAND]
        return listed is None or amount == listed.amount or amount in former.get(instance_type, ())

    def stale(self, *, now: datetime, after: timedelta) -> tuple[str, ...]:
        """Return which prices were not read for that long: `on-demand`, `spot`."""
        return tuple(
            name
            for name, table in sorted(self._tables.items())
            if table.is_stale(now=now, after=after) and (name == SPOT or self._reads_price_list)
        )

    def refresh(
        self, clients: CloudClients, *, now: datetime, disk: DiskCache | None = None
    ) -> bool:
        """Read both lists, at the same time; True if any price is another one.

        What one of them said is used although the other failed, and kept for `restore`.

        Raises:
            CloudProviderError: one or both could not be read; names which and why.
        """
        jobs: list[Callable[[CloudClients, datetime], None]] = [self._refresh_spot]
        if self._reads_price_list:
            jobs.append(self._refresh_on_demand)
        before = self._revision
        with ThreadPoolExecutor(len(jobs), thread_name_prefix="aws-prices") as pool:
            started = [pool.submit(job, clients, now) for job in jobs]
            errors = [error for future in started if (error := future.exception()) is not None]
        if disk is not None and len(errors) < len(jobs):
            cached = {name: table.to_cache() for name, table in self._tables.items()}
            lists = {name: prices for name, prices in cached.items() if prices is not None}
            write_cached_prices(disk, lists, now=now)
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise CloudProviderError("; ".join(str(error) for error in errors)) from errors[0]
        return self._revision != before

    def update_on_demand(self, prices: Mapping[str, float], *, now: datetime) -> None:
        """Take in what the price list said, by instance type."""
        self._update(ON_DEMAND, {name: {"": amount} for name, amount in prices.items()}, now=now)

    def update_spot(self, prices: Mapping[tuple[str, str], float], *, now: datetime) -> None:
        """Take in what the market said, by (instance type, zone)."""
        by_type: dict[str, dict[str, float]] = {}
        for (name, zone), amount in prices.items():
            by_type.setdefault(name, {})[zone] = amount
        self._update(SPOT, by_type, now=now)

    def _update(
        self, capacity_type: str, prices: Mapping[str, Mapping[str, float]], *, now: datetime
    ) -> None:
        with self._lock:
            table = self._tables[capacity_type]
            self._remember_former(table, capacity_type, prices)
            self._revision += table.update(prices, now=now)

    def _remember_former(
        self, table: PriceTable, capacity_type: str, new: Mapping[str, Mapping[str, float]]
    ) -> None:
        """Call under the lock, before the new prices are taken in."""
        for name, by_zone in new.items():
            # An estimate is that of all zones.
            shared: dict[tuple[float, ...], tuple[float, ...]] = {}
            for zone, amount in by_zone.items():
                before = table.find(name, zone=zone)
                if before is not None and before.amount != amount:
                    former = self._former.setdefault(zone or capacity_type, {})
                    amounts = (before.amount, *former.get(name, ()))[:_FORMER_PRICES]
                    former[name] = shared.setdefault(amounts, amounts)

    def _refresh_on_demand(self, clients: CloudClients, now: datetime) -> None:
        with ThreadPoolExecutor(len(_PRODUCTS), thread_name_prefix="aws-price-list") as pool:
            started = [pool.submit(self._products, clients, product) for product in _PRODUCTS]
            lists = tuple(future.result() for future in started)
        # Half a price list is a sign that the other half will be wrong as well.
        for product, prices in zip(_PRODUCTS, lists, strict=True):
            if not prices:
                raise CloudProviderError(
                    f"pricing:GetProducts: no prices in {self.currency} for region {self._region}, "
                    f'tenancy {product["tenancy"]}, product family "{product["productFamily"]}"'
                )
        shared, metal = lists
        self.update_on_demand({**metal, **shared}, now=now)

    def _products(self, clients: CloudClients, product: Mapping[str, str]) -> dict[str, float]:
        with core_errors_of("pricing:GetProducts"):
            pages = clients.pricing.get_paginator("get_products").paginate(
                ServiceCode="AmazonEC2",
                Filters=_filters(self._region, product),
                FormatVersion="aws_v1",
                PaginationConfig={"PageSize": _PRICING_PAGE},
            )
            items = (item for page in ending_pages(pages) for item in page["PriceList"])
            return read_products(items, currency=self.currency)

    def _refresh_spot(self, clients: CloudClients, now: datetime) -> None:
        with core_errors_of("ec2:DescribeSpotPriceHistory"):
            pages = clients.ec2.get_paginator("describe_spot_price_history").paginate(
                ProductDescriptions=list(_SPOT_PRODUCTS),
                StartTime=now,
                PaginationConfig={"PageSize": _SPOT_PAGE},
            )
            prices = read_spot_history(
                item for page in ending_pages(pages) for item in page["SpotPriceHistory"]
            )
        if not prices:
            raise CloudProviderError(
                f"ec2:DescribeSpotPriceHistory: no spot prices for region {self._region}"
            )
        self.update_spot(prices, now=now)


def _filters(region: str, product: Mapping[str, str]) -> list[FilterTypeDef]:
    values_by_field = {
        "regionCode": region,
        "serviceCode": "AmazonEC2",
        "preInstalledSw": "NA",
        "operatingSystem": "Linux",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        **product,
    }
    return [
        cast("FilterTypeDef", {"Type": "TERM_MATCH", "Field": field, "Value": value})
        for field, value in values_by_field.items()
    ]
