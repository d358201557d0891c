"""Counts what existing nodes use of commitments.

Every node counts that may use a commitment: those of all NodePools, nodes that are being removed until
they are gone, and NodeClaims without an instance with the most that they may become. So a plan never
takes for free what others use; it may find less than there is.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    from collections.abc import Container, Iterable, Mapping, Sequence

    from karpenter_core.api.commitments import Commitment
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["CommitmentUse", "commitment_balances", "commitment_uses", "sold_node"]

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
    sold = [found for node in snapshot.state_nodes if (found := sold_node(snapshot, node))]
    uses: list[CommitmentUse] = []
    for balance in balances:
        left, covered, listed = balance.commitment.amount, 0.0, 0.0
        rest: list[SoldNode] = []
        for found in sorted(sold, key=lambda each: saving_rank(balance, each)):
            units = committed_units(balance, found) if is_covered(balance, found) else 0
            if left <= 0 or units <= 0:
                rest.append(found)
                continue
            part, price = min(units, left), found.offering.price.amount
            left -= part
            listed += price * part / units
            covered += balance.commitment.covered_price(units, price) * part / units
        sold = rest
        uses.append(CommitmentUse(balance=balance, covered_price=covered, list_price=listed))
    return tuple(uses)


def sold_node(snapshot: Snapshot, node: StateNode) -> SoldNode | None:
    """Return the instance type and offering of a node at list prices; None if they are unknown."""
    catalogue = snapshot.catalogues.get(node.pool)
    name, zone = node.labels.get(INSTANCE_TYPE, ""), node.labels.get(ZONE, "")
    capacity_type = node.labels.get(CAPACITY_TYPE, "")
    for item in () if catalogue is None else catalogue.instance_types:
        if item.name == name:
            for offering in item.offerings:
                if (offering.zone, offering.capacity_type) == (zone, capacity_type):
                    return SoldNode(item, offering)
    return None
