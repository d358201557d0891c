"""Orders the instance pools that a provisioning group tries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_simulated_alibabacloud.instance_plan import InstancePlan

__all__ = ["PoolChoice", "ordered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChoice:
    """One pool that a group may take instances of."""

    plan: InstancePlan
    number: int
    """Its place in the call."""
    price: float
    """Per hour and instance."""
    priority: float
    """0 is the highest."""
    weight: float
    """The capacity that one instance counts for."""
    left: int | None
    """Instances in stock; None when there is no end of them."""
    share: int = 0
    """Largest number of instances of it before the others had their turn; 0 for any number."""


def ordered(choices: Sequence[PoolChoice], strategy: str) -> Sequence[PoolChoice]:
    """Return pools in the order in which a strategy takes them."""
    by_price = sorted(choices, key=lambda each: (each.price / each.weight, each.number))
    match strategy:
        case "prioritized":
            return sorted(choices, key=lambda each: (each.priority, each.number))
        case "capacity-optimized":
            return sorted(
                by_price, key=lambda each: -(float("inf") if each.left is None else each.left)
            )
        case "diversified":
            return _in_turns(by_price)
        case _:
            return by_price


def _in_turns(by_price: Sequence[PoolChoice]) -> Sequence[PoolChoice]:
    """Take one instance of each zone in turn, in each of the cheapest pool; the rest comes after."""
    zones: dict[str, PoolChoice] = {}
    for each in by_price:
        zones.setdefault(each.plan.pool.zone, each)
    first = [replace(each, share=1) for each in zones.values()]
    turns = 100  # a group of more instances than that is not evenly spread any more
    return [*(each for _ in range(turns) for each in first), *by_price]
