"""Tells what of nodes commitments cover, and what it costs.

The price of a node under a commitment depends on the nodes beside it: `commitment_plans` prices plans.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from karpenter_core.api.labels import NODES, ON_DEMAND
from karpenter_core.api.prices import Price
from karpenter_core.scheduling.offerings import (
    price_amount,
)
from karpenter_core.scheduling.problem import (
    Catalogue,
)
from karpenter_core.scheduling.requirements import Requirements

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from karpenter_core.scheduling.instance_types import InstanceType, Offering
    from karpenter_core.scheduling.problem import (
        CommitmentBalance,
    )

__all__ = [
    "Cover",
    "SoldNode",
    "committed_units",
    "discounted_catalogue_steps",
    "is_covered",
    "saving_rank",
]


class SoldNode(NamedTuple):
    """A node, or one that may be launched: its instance type and its offering at list prices."""

    instance_type: InstanceType
    offering: Offering


def is_covered(balance: CommitmentBalance, sold: SoldNode) -> bool:
    """Tell whether a commitment is for a node: on demand, of its currency and its labels."""
    instance_type, offering = sold
    if offering.capacity_type != ON_DEMAND:
        return False
    if offering.price.currency != balance.commitment.currency:
        return False
    return all(
        (offering if key in offering.requirements else instance_type).requirements.compatible(
            Requirements((requirement,))
        )
        for key, requirement in balance.requirements.items()
    )


def committed_units(balance: CommitmentBalance, sold: SoldNode) -> int:
    """Return the units of a commitment that a node takes."""
    instance_type, offering = sold
    if balance.commitment.resource == NODES:
        return 1
    if balance.commitment.is_of_spend:
        return price_amount(offering.price, {offering.price.currency: 1.0})
    capacity = {**instance_type.capacity, **(offering.capacity_override or {})}
    return capacity.get(balance.commitment.resource, 0)


def saving_rank(balance: CommitmentBalance, sold: SoldNode) -> tuple[float, str, str]:
    """Return the order in which a commitment covers nodes: the largest savings per unit first."""
    price, units = sold.offering.price.amount, max(committed_units(balance, sold), 1)
    saved = (price - balance.commitment.covered_price(units, price)) / units
    return -saved, sold.instance_type.name, sold.offering.zone


class Cover(NamedTuple):
    """The price of a node with what a commitment covers of it."""

    price: float
    units: int
    """Units that it takes, as many as are left at most."""
    commitment: str


def _cover(balance: CommitmentBalance, sold: SoldNode, remaining: int) -> Cover | None:
    """Return the price with one commitment; None if it covers nothing or saves nothing."""
    if remaining <= 0 or not is_covered(balance, sold):
        return None
    units, listed = committed_units(balance, sold), sold.offering.price.amount
    if units <= 0:
        return None
    taken = min(units, remaining)
    covered = balance.commitment.covered_price(units, listed)
    price = listed - (listed - covered) * taken / units
    return Cover(price, taken, balance.commitment.name) if price < listed else None


def _best_cover(sold: SoldNode, remaining: Iterable[tuple[CommitmentBalance, int]]) -> Cover | None:
    """Return the cover that makes a node cheapest; the first one of equals, None without any."""
    covers = (_cover(balance, sold, left) for balance, left in remaining)
    return min(
        (cover for cover in covers if cover is not None), key=lambda one: one.price, default=None
    )


def discounted_catalogue_steps(
    catalogue: Catalogue, balances: Sequence[CommitmentBalance]
) -> Generator[int, None, Catalogue]:
    """Return a catalogue with the price of each node as if it had all that is left to itself."""
    changes: list[str] = []
    types: list[InstanceType] = []
    for item in catalogue.instance_types:
        types.append(_discounted(item, balances, changes))
        yield 1
    if not changes:
        return catalogue
    digest = blake2b("\n".join(changes).encode(), digest_size=8).hexdigest()
    return Catalogue(version=f"{catalogue.version}%{digest}", instance_types=tuple(types))


def _discounted(
    instance_type: InstanceType, balances: Sequence[CommitmentBalance], changes: list[str]
) -> InstanceType:
    offerings: list[Offering] = []
    before = len(changes)
    for offering in instance_type.offerings:
        sold = SoldNode(instance_type, offering)
        cover = _best_cover(sold, ((balance, balance.remaining) for balance in balances))
        if cover is None:
            offerings.append(offering)
            continue
        changes.append(f"{instance_type.name}/{offering.zone}/{cover.commitment}/{cover.price!r}")
        offerings.append(
            replace(
                offering,
                price=Price(cover.price, offering.price.currency),
                uncommitted_price=offering.price,
            )
        )
    if len(changes) == before:
        return instance_type
    return replace(instance_type, offerings=tuple(offerings))
