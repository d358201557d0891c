"""Loads the shipped on-demand prices; a script in `tools/` writes them.

The table has the prices of some regions, read with an account, and rates by which prices of the
other regions are estimated.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_provider_alibabacloud.catalogue.instance_type_info import InstanceTypeInfo

__all__ = ["EstimateRates", "ShippedPrices", "shipped_prices", "shipped_rates"]


class EstimateRates(NamedTuple):
    """Prices per hour of the parts of an instance type."""

    currency: str
    vcpu: float
    memory_gib: float
    gpu_memory_gib: float
    special_factor: float
    """Factor for types with local disks, or without a hypervisor, roughly."""

    def price_of(self, info: InstanceTypeInfo) -> float:
        """Return the approximate price of a type per hour."""
        price = (
            self.vcpu * info.cpu_cores
            + self.memory_gib * info.memory_mib / 1024
            + self.gpu_memory_gib * info.gpu_memory_gib * info.gpus
        )
        return price * (self.special_factor if info.local_disks or info.is_bare_metal else 1)


class ShippedPrices(NamedTuple):
    """On-demand prices per hour of a region, by instance type."""

    currency: str
    prices: Mapping[str, float]


class _Rates(TypedDict):
    currency: str
    vcpu: float
    memory_gib: float
    gpu_memory_gib: float
    special_factor: float


class _RegionPrices(TypedDict):
    currency: str
    prices: dict[str, float]


class _PriceTable(TypedDict):
    rates: _Rates
    regions: dict[str, _RegionPrices]


@cache
def shipped_rates() -> EstimateRates:
    """Return the rates by which unknown prices are estimated."""
    rates = _table()["rates"]
    return EstimateRates(
        currency=rates["currency"],
        vcpu=rates["vcpu"],
        memory_gib=rates["memory_gib"],
        gpu_memory_gib=rates["gpu_memory_gib"],
        special_factor=rates["special_factor"],
    )


@cache
def shipped_prices(region: str) -> ShippedPrices:
    """Return the prices of a region; they are empty for one that has not been read."""
    region_prices = _table()["regions"].get(region)
    if region_prices is None:
        return ShippedPrices(shipped_rates().currency, {})
    return ShippedPrices(region_prices["currency"], region_prices["prices"])


@cache
def _table() -> _PriceTable:
    text = files(__name__).joinpath("on_demand_prices.json").read_text(encoding="utf-8")
    return json.loads(text)
