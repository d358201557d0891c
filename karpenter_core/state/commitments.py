"""Counts what existing nodes use of commitments.

Every node counts that may use a commitment: those of all NodePools, nodes that are being removed until
they are gone, and NodeClaims without an instance with the most that they may become. So a plan never
takes for free what others use; it may find less than there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, ON_DEMAND, ZONE
from karpenter_core.scheduling.commitments import (
    SoldNode,
    committed_units,
    is_covered,
    saving_rank,
)
from karpenter_core.scheduling.problem import CommitmentBalance
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.state.capacity_quotas import QuotaReading, quota_usage

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from karpenter_core.api.commitments import Commitment
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["CommitmentUse", "commitment_balances", "commitment_uses"]

_ON_DEMAND = Requirements((Requirement.of(CAPACITY_TYPE, "In", (ON_DEMAND,)),))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CommitmentUse:
    """A commitment, and the prices of the part of existing nodes that it covers.

    Prices are per hour, in the currency of the commitment.
    """

    balance: CommitmentBalance
    covered_price: float
    list_price: float
    """The same units at list prices."""
    savings: tuple[tuple[StateNode, float], ...]
    """The nodes that it covers, and the part of the price of each that it saves; not below 0."""


def commitment_balances(
    snapshot: Snapshot,
    commitments: Sequence[Commitment],
    rates: Mapping[str, float],
    *,
    well_known: Container[str],
    aliases: Mapping[str, str],
) -> tuple[CommitmentBalance, ...]:
    """Return the balance of each commitment, in their order."""
    balances: list[CommitmentBalance] = []
    for commitment in commitments:
        requirements = Requirements.from_specs(commitment.requirements, aliases=aliases)
        reading = QuotaReading(
            name=commitment.name,
            requirements=requirements.merge(_ON_DEMAND),
            limits={commitment.resource: commitment.amount},
        )
        used = quota_usage(snapshot, reading, rates, well_known=well_known, aliases=aliases)
        balances.append(
            CommitmentBalance(
                commitment=commitment,
                requirements=requirements,
                used=used[commitment.resource],
            )
        )
    return tuple(balances)


def commitment_uses(
    snapshot: Snapshot, balances: Iterable[CommitmentBalance]
) -> tuple[CommitmentUse, ...]:
    """Return the use of each commitment; nodes that save most are covered first.

    A node is covered by the first commitment that has something left for it.
    """
    uncovered = list(_sold_nodes(snapshot))
    uses: list[CommitmentUse] = []
    for balance in balances:
        left, covered, listed = balance.commitment.amount, 0.0, 0.0
        rest: list[tuple[StateNode, SoldNode]] = []
        savings: list[tuple[StateNode, float]] = []
        for node, found in sorted(uncovered, key=lambda pair: saving_rank(balance, pair[1])):
            units = committed_units(balance, found) if is_covered(balance, found) else 0
            if left <= 0 or units <= 0:
                rest.append((node, found))
                continue
            part, price = min(units, left), found.offering.price.amount
            left -= part
            list_part = price * part / units
            covered_part = balance.commitment.covered_price(units, price) * part / units
            listed += list_part
            covered += covered_part
            savings.append((node, max(list_part - covered_part, 0.0)))
        uncovered = rest
        uses.append(
            CommitmentUse(
                balance=balance, covered_price=covered, list_price=listed, savings=tuple(savings)
            )
        )
    return tuple(uses)


def _sold_nodes(snapshot: Snapshot) -> Iterator[tuple[StateNode, SoldNode]]:
    """Yield the nodes whose instance types and prices are known, with these."""
    types: dict[str, dict[str, InstanceType]] = {}
    for node in snapshot.state_nodes:
        if node.pool not in types:
            catalogue = snapshot.catalogues.get(node.pool)
            items = () if catalogue is None else catalogue.instance_types
            types[node.pool] = {item.name: item for item in items}
        item = types[node.pool].get(node.labels.get(INSTANCE_TYPE, ""))
        place = node.labels.get(ZONE, ""), node.labels.get(CAPACITY_TYPE, "")
        for offering in () if item is None else item.offerings:
            if (offering.zone, offering.capacity_type) == place:
                if item is not None and not isnan(offering.price.amount):
                    yield node, SoldNode(item, offering)
                break
