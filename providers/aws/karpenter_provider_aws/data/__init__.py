"""Loads the shipped tables; the scripts in `tools/` write them."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from sys import intern
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NetworkLimits", "network_limits", "shipped_on_demand_prices"]

_FALLBACK_REGION: Final = "us-east-1"
_FALLBACK_REGIONS: Final = {"cn-": "cn-north-1", "us-gov-": "us-gov-west-1"}
"""By the beginning of a region's name: whose prices stand for those of a region without a table.

Accounts of China and of the government's regions pay by price lists of their own, one of them in
another currency.
"""


class NetworkLimits(NamedTuple):
    """Limits of an instance type's network interfaces."""

    ipv4_per_interface: int
    branch_interfaces: int
    """Number of branch interfaces of its trunk; 0 when it cannot have a trunk."""


@cache
def network_limits() -> Mapping[str, NetworkLimits]:
    """Return the limits by instance type."""
    document = json.loads(_text("network_limits.json"))
    limits = {values: NetworkLimits(*values) for values in map(tuple, document["types"].values())}
    return {intern(name): limits[tuple(values)] for name, values in document["types"].items()}


@cache
def shipped_on_demand_prices(region: str) -> Mapping[str, float]:
    """Return the price per hour by instance type, in the region's own currency."""
    regions: dict[str, dict[str, dict[str, float]]] = json.loads(_text("on_demand_prices.json"))
    if region not in regions:
        region = next(
            (r for begin, r in _FALLBACK_REGIONS.items() if region.startswith(begin)),
            _FALLBACK_REGION,
        )
    return {intern(name): price for name, price in regions[region]["prices"].items()}


def _text(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")
