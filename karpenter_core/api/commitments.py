"""Commitments: an amount of capacity, over all NodePools, paid in advance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CPU, MEMORY, PRICE_PER_HOUR
from karpenter_core.api.prices import DEFAULT_CURRENCY

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import RequirementSpec

__all__ = ["COMMITTED_SOURCE", "Commitment"]

COMMITTED_SOURCE: Final = 'commitment "'
"""The beginning of the source of a price that a commitment has changed."""
_UNITS: Final = {CPU: 1000, MEMORY: 2**30}


@dataclass(frozen=True, slots=True, kw_only=True)
class Commitment:
    """The first `amount` of a resource, of on-demand nodes that meet requirements, costs less.

    `amount` is in the units of amounts (`api.quantities`). Of the resource
    `karpenter.sh/price-per-hour` it is the list price of the nodes that are covered. Either `price`
    or `discount` is set.
    """

    name: str
    requirements: tuple[RequirementSpec, ...]
    resource: str
    amount: int
    price: float | None = None
    """Per hour for one core, one GiB of memory or one node."""
    discount: float = 0.0
    """The part of the list price that is not paid, 0 to 1."""
    currency: str = DEFAULT_CURRENCY

    def covered_price(self, units: int, list_price: float) -> float:
        """Return the price per hour of a node with so many units, if all of it is covered."""
        if self.price is None:
            return list_price * (1 - self.discount)
        return min(self.price * units / _UNITS.get(self.resource, 1), list_price)

    @property
    def is_of_spend(self) -> bool:
        """Whether the commitment is to spend an amount of money, on whatever nodes."""
        return self.resource == PRICE_PER_HOUR
