"""Savings floors: what a consolidation must save at least to be worth its while.

A NodePool states its own by the annotation `karpenter.sh/savings-floor`, as a share of what the
candidates cost (`10%`) or an amount per hour in the reporting currency (`0.05`). Without one any
saving will do, as in the reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from karpenter_core.api.labels import SAVINGS_FLOOR
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.pricing import Prices

__all__ = ["SavingsFloor", "floor_of", "least_savings"]


@dataclass(frozen=True, slots=True)
class SavingsFloor:
    """A share of the price (0 to 1) and an amount per hour; both must be reached."""

    share: float = 0.0
    amount_per_hour: float = 0.0

    @classmethod
    def parse(cls, text: str) -> SavingsFloor:
        """Read `10%` or `0.05`.

        Raises:
            BadInputError: it is neither.
        """
        number = text.strip().removesuffix("%")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        is_share = text.strip().endswith("%")
        highest = 100.0 if is_share else float("inf")
        if not 0 <= value <= highest or value == float("inf"):
            raise BadInputError(
                f'annotation {SAVINGS_FLOOR}: "{text}" is neither a percentage from 0% to 100%'
                " nor an amount per hour"
            )
        return cls(share=value / 100) if is_share else cls(amount_per_hour=value)


def floor_of(pool: NodePool) -> SavingsFloor:
    """Return a pool's floor; one that cannot be read stands for the highest share.

    Raising costs by a move that its owner meant to forbid is worse than making none.
    """
    text = pool.metadata.annotations.get(SAVINGS_FLOOR)
    if text is None:
        return SavingsFloor()
    try:
        return SavingsFloor.parse(text)
    except BadInputError:
        return SavingsFloor(share=1.0)


def least_savings(candidates: Sequence[Candidate], prices: Prices) -> float:
    """Return what a move of these candidates must save per hour, by the floors of their pools.

    Shares are of what each pool's own candidates cost; amounts are asked for once for each pool.
    """
    by_pool: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_pool.setdefault(candidate.pool.name, []).append(candidate)
    least = 0.0
    for members in by_pool.values():
        floor = floor_of(members[0].pool)
        least += max(floor.share * prices.of(members), floor.amount_per_hour)
    return least
