"""What a consolidation must save at least, by the floors of the pools it takes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.savings import SavingsFloor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.pricing import Prices

__all__ = ["least_savings"]


def least_savings(candidates: Sequence[Candidate], prices: Prices) -> float:
    """Return what a move of these candidates must save per hour, whatever is launched for it.

    Shares are of what each pool's own candidates cost; amounts are asked for once for each pool.
    Without floors any saving will do, as in the reference.
    """
    by_pool: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_pool.setdefault(candidate.pool.name, []).append(candidate)
    least = 0.0
    for members in by_pool.values():
        floor = SavingsFloor.of(members[0].pool)
        if floor.share or floor.amount_per_hour:
            least += max(floor.share * prices.of(members), floor.amount_per_hour)
    return least
