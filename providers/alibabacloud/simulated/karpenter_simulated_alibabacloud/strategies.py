"""In which order a provisioning group tries pools."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_simulated_alibabacloud.plans import Plan

__all__ = ["Choice", "ordered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One pool that a group may take machines of."""

    plan: Plan
    number: int
    """Its place in the call."""
    price: float
    """Per hour and machine."""
    priority: float
    """0 is the highest."""
    weight: float
    """The capacity that one machine counts for."""
    left: int | None
    """Machines in stock; None when there is no end of them."""
    share: int = 0
    """How many machines are taken of it at most before the others had their turn; 0 for any number."""


def ordered(choices: Sequence[Choice], strategy: str) -> Sequence[Choice]:
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


def _in_turns(by_price: Sequence[Choice]) -> Sequence[Choice]:
    """Take one machine of each zone in turn, in each of the cheapest pool; the rest comes after."""
    zones: dict[str, Choice] = {}
    for each in by_price:
        zones.setdefault(each.plan.pool.zone, each)
    first = [replace(each, share=1) for each in zones.values()]
    turns = 100  # a group of more machines than that is not evenly spread any more
    return [*(each for _ in range(turns) for each in first), *by_price]
