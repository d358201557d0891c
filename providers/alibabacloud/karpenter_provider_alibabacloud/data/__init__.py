"""What on-demand instances cost where nobody has asked yet; `tools/` has what writes it.

The table has the prices of regions, as far as somebody with an account has read them, and rates by which
the rest is estimated.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_provider_alibabacloud.catalogue.facts import InstanceTypeFacts

__all__ = ["Rates", "ShippedPrices", "shipped_prices", "shipped_rates"]


class Rates(NamedTuple):
    """What a machine is made of costs per hour."""

    currency: str
    vcpu: float
    memory_gib: float
    gpu_memory_gib: float
    special_factor: float
    """What machines with local disks, or without a hypervisor, cost more, roughly."""

    def price_of(self, facts: InstanceTypeFacts) -> float:
        """Return roughly what a machine costs per hour."""
        price = (
            self.vcpu * facts.cpu_cores
            + self.memory_gib * facts.memory_mib / 1024
            + self.gpu_memory_gib * facts.gpu_memory_gib * facts.gpus
        )
        return price * (self.special_factor if facts.local_disks or facts.is_bare_metal else 1)


class ShippedPrices(NamedTuple):
    """On-demand prices per hour of a region, by instance type."""

    currency: str
    prices: Mapping[str, float]


@cache
def shipped_rates() -> Rates:
    """Return the rates by which prices are estimated that nobody knows."""
    rates = _table()["rates"]
    return Rates(**{name: rates[name] for name in Rates._fields})


@cache
def shipped_prices(region: str) -> ShippedPrices:
    """Return the prices of a region; they are empty for one that nobody has read."""
    found = _table()["regions"].get(region)
    if found is None:
        return ShippedPrices(shipped_rates().currency, {})
    return ShippedPrices(found["currency"], found["prices"])


@cache
def _table() -> dict[str, Any]:
    text = files(__name__).joinpath("on_demand_prices.json").read_text(encoding="utf-8")
    return json.loads(text)
