"""Sorts candidates by savings, starting from the order of the last pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from karpenter_core.disruption.candidates import Candidate
from karpenter_core.scheduling.identity_memo import IdentityMemo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.disruption.pricing import NodePrices

__all__ = ["SavingsOrder"]

_Rank = tuple[float, str]


@final
class SavingsOrder:
    """The candidates of the last pass with their ranks, and the order of these."""

    __slots__ = ("_places", "_ranks", "_sorted")

    def __init__(self) -> None:
        self._ranks: IdentityMemo[Candidate, _Rank] = IdentityMemo()
        self._sorted: tuple[_Rank, ...] = ()
        self._places: list[int] = []
        """The places of `_sorted` in their order."""

    def sort(self, candidates: Sequence[Candidate], prices: NodePrices) -> list[Candidate]:
        """Sort by savings per reschedule cost, best first, then by name."""

        def rank(candidate: Candidate) -> _Rank:
            return -prices.convert(candidate.price) / candidate.reschedule_cost, candidate.name

        ranks = self._ranks.values(candidates, rank, equal=prices.rates)
        if ranks is not self._sorted:
            # Sorting what is nearly in order takes one comparison for each.
            nearly = self._places if len(self._places) == len(ranks) else range(len(ranks))
            self._places = sorted(nearly, key=ranks.__getitem__)
            self._sorted = ranks
        return [candidates[place] for place in self._places]
