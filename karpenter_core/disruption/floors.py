"""What a consolidation must save at least: by the floors of its pools, and so that nothing flaps.

Where the load goes up and down, what a machine was exchanged for is often, minutes later, worth a
little less than something else, or than what was there before. Each such move disturbs pods for
next to nothing. So a machine that consolidation has launched is left in place for an hour, unless
much is saved.
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
    from karpenter_core.disruption.pricing import Prices

__all__ = ["least_savings"]


_CONSOLIDATION: Final = DisruptionReason.UNDERUTILIZED.lower()
_REST: Final = timedelta(hours=1)
_SHARE_AT_REST: Final = 0.5
"""Of the price of machines that consolidation launched within the hour. To end one for nothing in
its place saves all of it."""


def least_savings(candidates: Sequence[Candidate], prices: Prices, *, now: datetime) -> float:
    """Return what a move of these candidates must save per hour, whatever is launched for it.

    Shares are of what each pool's own candidates cost; amounts are asked for once for each pool.
    Without floors, and without machines that consolidation has just launched, any saving will do,
    as in the reference.
    """
    by_pool: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_pool.setdefault(candidate.pool.name, []).append(candidate)
    least = 0.0
    for members in by_pool.values():
        floor = SavingsFloor.of(members[0].pool)
        if floor.share or floor.amount_per_hour:
            least += max(floor.share * prices.of(members), floor.amount_per_hour)
    resting = [candidate for candidate in candidates if _is_resting(candidate, now)]
    return max(least, _SHARE_AT_REST * prices.of(resting)) if resting else least


def _is_resting(candidate: Candidate, now: datetime) -> bool:
    metadata = candidate.claim.metadata
    return (
        metadata.annotations.get(CREATED_FOR) == _CONSOLIDATION
        and metadata.creation_timestamp is not None
        and now - metadata.creation_timestamp < _REST
    )
