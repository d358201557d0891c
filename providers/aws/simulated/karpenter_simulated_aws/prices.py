"""Prices of instances: the price list, spot prices and their history.

Prices are computed from a type's size unless a table is given; they are the same in every run, and
keep the order that real ones have (twice the size, twice the price; spot is about a third).
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.provider.kit.simulated.prices import SimulatedPrices, stable_fraction
from karpenter_simulated_aws.selection import filter_items, slice_page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from types_boto3_ec2.type_defs import DescribeSpotPriceHistoryRequestTypeDef
    from types_boto3_pricing.type_defs import GetProductsRequestTypeDef

    from karpenter_simulated_aws.account import Account
    from karpenter_simulated_aws.selection import RequestFilter
    from karpenter_simulated_aws.type_catalogue import TypeCatalogue, TypeInfo

__all__ = ["Prices", "made_up_price", "price_table"]

_HISTORY_PAGE: Final = 1000
_LARGEST_HISTORY_PAGE: Final = 10_000
_PRODUCTS_PAGE: Final = 100
_LINUX: Final = "Linux/UNIX"
# Dollars an hour; near what a general-purpose instance of 2026 costs in us-east-1.
_PER_VCPU: Final = 0.032
_PER_GIB: Final = 0.004
_PER_GPU: Final = 1.1
_PER_NEURON_DEVICE: Final = 0.6
_PER_STORAGE_GB: Final = 0.0001
_ARM_DISCOUNT: Final = 0.8


def made_up_price(type_info: TypeInfo) -> float:
    """Return a price per hour that follows from a type's size, and differs between families."""
    family = type_info.name.split(".", 1)[0]
    price = (
        type_info.vcpus * _PER_VCPU
        + type_info.memory_mib / 1024 * _PER_GIB
        + type_info.gpus * _PER_GPU
        + type_info.neuron_devices * _PER_NEURON_DEVICE
        + type_info.storage_gb * _PER_STORAGE_GB
    )
    if "arm64" in type_info.architectures:
        price *= _ARM_DISCOUNT
    return round(price * (0.95 + 0.1 * stable_fraction(family)), 4)


def price_table(path: Path) -> Mapping[str, float]:
    """Read prices per hour from a CSV file with the columns `instance_type` and `usd_per_hour`."""
    with path.open(newline="") as file:
        return {row["instance_type"]: float(row["usd_per_hour"]) for row in csv.DictReader(file)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _SpotPrice:
    instance_type: str
    zone: str
    amount: float
    changed_at: datetime

    def values(self, name: str) -> Sequence[str] | None:
        """Return what filters go by."""
        return {
            "instance-type": (self.instance_type,),
            "availability-zone": (self.zone,),
            "product-description": (_LINUX,),
            "spot-price": (f"{self.amount:.6f}",),
        }.get(name)


@final
class Prices(SimulatedPrices):
    """The prices of a region."""

    def __init__(
        self,
        account: Account,
        catalogue: TypeCatalogue,
        table: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(account.clock, self._listed)
        self._account: Final = account
        self._catalogue: Final = catalogue
        self._table: Final = table

    def _listed(self, instance_type: str) -> float:
        if self._table is not None:
            return self._table.get(instance_type, 0.0)
        type_info = self._catalogue.type_info(instance_type)
        return 0.0 if type_info is None else made_up_price(type_info)

    def describe_spot_price_history(
        self,
        request: DescribeSpotPriceHistoryRequestTypeDef,
    ) -> Mapping[str, object]:
        """Answer DescribeSpotPriceHistory: what each type costs in a zone, and has cost before."""
        types: Sequence[str] = request.get("InstanceTypes", ())
        products: Sequence[str] = request.get("ProductDescriptions", ())
        zone_wanted = request.get("AvailabilityZone")
        since: object = request.get("StartTime")
        begins = since.replace(tzinfo=UTC) if isinstance(since, datetime) else None
        rows = [
            _SpotPrice(instance_type=name, zone=zone, amount=amount, changed_at=said_at)
            for name, zones in sorted(self._catalogue.zones().items())
            if not types or name in types
            for zone in sorted(zones)
            if zone_wanted in {None, zone} and self._sold_as_spot(name)
            for said_at, amount in self.spot_moves(name, zone, begins)
            if amount > 0
        ]
        if products and _LINUX not in products:
            rows = []
        found = filter_items(
            rows,
            cast("Sequence[RequestFilter]", request.get("Filters", ())),
            values=_SpotPrice.values,
            tags=lambda _: {},
        )
        shown, token = slice_page(
            found,
            size=request.get("MaxResults", _HISTORY_PAGE),
            token=request.get("NextToken"),
            maximum=_LARGEST_HISTORY_PAGE,
        )
        return {
            "SpotPriceHistory": [
                {
                    "InstanceType": row.instance_type,
                    "AvailabilityZone": row.zone,
                    "ProductDescription": _LINUX,
                    "SpotPrice": f"{row.amount:.6f}",
                    "Timestamp": row.changed_at,
                }
                for row in shown
            ],
            "NextToken": token or "",
        }

    def _sold_as_spot(self, instance_type: str) -> bool:
        type_info = self._catalogue.type_info(instance_type)
        return type_info is not None and "spot" in type_info.usage_classes

    def get_products(self, request: GetProductsRequestTypeDef) -> Mapping[str, object]:
        """Answer GetProducts: each type once as a shared instance, metal ones as dedicated too."""
        wanted = {one["Field"]: one["Value"] for one in request.get("Filters", ())}
        products = [
            attributes
            for name in sorted(self._catalogue.zones())
            for attributes in self._products(name)
            if all(attributes.get(field) == value for field, value in wanted.items())
        ]
        shown, token = slice_page(
            products,
            size=request.get("MaxResults", _PRODUCTS_PAGE),
            token=request.get("NextToken"),
            maximum=_PRODUCTS_PAGE,
        )
        return {
            "FormatVersion": "aws_v1",
            "PriceList": [self._product(attributes) for attributes in shown],
            "NextToken": token,
        }

    def _products(self, instance_type: str) -> Sequence[Mapping[str, str]]:
        type_info = self._catalogue.type_info(instance_type)
        if type_info is None or self.on_demand(instance_type) <= 0:
            return ()
        family = "Compute Instance (bare metal)" if type_info.bare_metal else "Compute Instance"
        return [
            {
                "productFamily": family,
                "instanceType": instance_type,
                "regionCode": self._account.region,
                "serviceCode": "AmazonEC2",
                "servicecode": "AmazonEC2",
                "preInstalledSw": "NA",
                "operatingSystem": "Linux",
                "capacitystatus": "Used",
                "marketoption": "OnDemand",
                "tenancy": tenancy,
                "vcpu": str(type_info.vcpus),
                "memory": f"{type_info.memory_mib / 1024:g} GiB",
            }
            for tenancy in ("Shared", "Dedicated")
        ]

    def _product(self, attributes: Mapping[str, str]) -> str:
        name = attributes["instanceType"]
        sku = sha256(f"{name}/{attributes['tenancy']}".encode()).hexdigest()[:16].upper()
        currency = "CNY" if self._account.region.startswith("cn-") else "USD"
        rate, dimension = f"{sku}.JRTCKXETXF", f"{sku}.JRTCKXETXF.6YS6EN2CT7"
        family = attributes["productFamily"]
        return json.dumps(
            {
                "serviceCode": "AmazonEC2",
                "publicationDate": datetime(2026, 1, 1, tzinfo=UTC).isoformat(),
                "product": {
                    "sku": sku,
                    "productFamily": family,
                    "attributes": {k: v for k, v in attributes.items() if k != "productFamily"},
                },
                "terms": {
                    "OnDemand": {
                        rate: {
                            "sku": sku,
                            "priceDimensions": {
                                dimension: {
                                    "unit": "Hrs",
                                    "pricePerUnit": {currency: f"{self.on_demand(name):.10f}"},
                                }
                            },
                        }
                    }
                },
            }
        )
