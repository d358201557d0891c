"""Loads the shipped on-demand prices: one region's public list, with its time.

They stand for the prices of other regions until the price list of the region is read, and the names in
them are the sizes that are known: a size of another series is too new to be compared by its price.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ShippedPrices", "named_sizes", "shipped_prices"]

FALLBACK_REGION: Final = "eastus"


class ShippedPrices(NamedTuple):
    """On-demand prices in USD per hour, by VM size."""

    region: str
    """The region of the prices; another one than asked for when none are shipped for that."""
    as_of: str
    prices: Mapping[str, float]


class _RegionPrices(TypedDict):
    as_of: str
    prices: dict[str, float]


class _PriceTable(TypedDict):
    regions: dict[str, _RegionPrices]
    unpriced: list[str]


@cache
def shipped_prices(region: str) -> ShippedPrices:
    """Return the prices of a region, or those of `eastus`."""
    regions = _table()["regions"]
    found = region.lower() if region.lower() in regions else FALLBACK_REGION
    return ShippedPrices(found, regions[found]["as_of"], regions[found]["prices"])


@cache
def named_sizes() -> frozenset[str]:
    """Return all sizes that the tables name, with a price or without."""
    table = _table()
    names = {name for region in table["regions"].values() for name in region["prices"]}
    return frozenset({*names, *table["unpriced"]})


@cache
def _table() -> _PriceTable:
    text = files(__name__).joinpath("on_demand_prices.json").read_text(encoding="utf-8")
    return json.loads(text)
