"""Computes the least that a consolidation must save.

Two rules apply: the savings floors of NodePools, and a cool-down of nodes that consolidation has
launched. If the load changes often, a slightly cheaper replacement exists minutes after each move, and
each further move disrupts pods for a small saving. Therefore a node that consolidation has launched
stays for an hour, unless its removal saves much.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CREATED_FOR
from karpenter_core.api.savings import SavingsFloor
from karpenter_core.disruption.budgets import DisruptionReason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.pricing import NodePrices

__all__ = ["may_cool_down", "minimum_savings"]


_CONSOLIDATION: Final = DisruptionReason.UNDERUTILIZED.lower()
_COOLDOWN: Final = timedelta(hours=1)
_COOLDOWN_SHARE: Final = 0.5
"""Share of the price of nodes that consolidation launched within the hour which a move must save.
Deleting one without replacement saves all of it."""


def minimum_savings(candidates: Sequence[Candidate], prices: NodePrices, *, now: datetime) -> float:
    """Return the least savings per hour of a move of these candidates, whatever it launches.

    Shares are of what each pool's own candidates cost; amounts count once for each pool. Without
    floors, and without nodes in their cool-down, any saving is enough, as in the reference.
    """
    by_pool: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_pool.setdefault(candidate.pool.name, []).append(candidate)
    least = 0.0
    for members in by_pool.values():
        floor = SavingsFloor.of(members[0].pool)
        if floor.share or floor.amount_per_hour:
            least += max(floor.share * prices.cost_per_hour(members), floor.amount_per_hour)
    recent = [candidate for candidate in candidates if _is_cooling_down(candidate, now)]
    return max(least, _COOLDOWN_SHARE * prices.cost_per_hour(recent)) if recent else least


def may_cool_down(candidate: Candidate) -> bool:
    """Tell whether consolidation launched a node, so that its floor depends on its age."""
    return candidate.claim.metadata.annotations.get(CREATED_FOR) == _CONSOLIDATION


def _is_cooling_down(candidate: Candidate, now: datetime) -> bool:
    metadata = candidate.claim.metadata
    return (
        may_cool_down(candidate)
        and metadata.creation_timestamp is not None
        and now - metadata.creation_timestamp < _COOLDOWN
    )
