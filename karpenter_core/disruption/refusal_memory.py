"""Remembers refusals to remove a node while their causes are unchanged.

In a cluster that is consolidated, nearly every question about a single node is refused, for the same
reason as in the pass before.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple, final

from karpenter_core.disruption.balanced import BALANCED
from karpenter_core.disruption.savings_floors import may_cool_down

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.notices import Notice
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.pricing import NodePrices
    from karpenter_core.scheduling.whatif.homeless_pods import SinglePrices

__all__ = ["RefusalMemory"]


class _Refusal(NamedTuple):
    """A refusal, and the prices that it follows from."""

    prices: SinglePrices
    notices: tuple[Notice, ...]


@final
class RefusalMemory:
    """The refusals of the last pass, by candidate."""

    __slots__ = ("_kept", "_rates", "_refusals")

    def __init__(self) -> None:
        self._refusals: Mapping[Candidate, _Refusal] = {}
        self._kept: dict[Candidate, _Refusal] = {}
        self._rates: Mapping[str, float] | None = None

    def begin_pass(self, prices: NodePrices) -> None:
        """Forget all refusals but those of the last pass, and these too if prices differ."""
        is_same = prices.rates == self._rates and not prices.has_commitments
        self._refusals = self._kept if is_same else {}
        self._kept, self._rates = {}, prices.rates

    def repeated(
        self, candidate: Candidate, prices: SinglePrices | None
    ) -> tuple[Notice, ...] | None:
        """Return the Events of the last pass's refusal, which holds again; None if it may not."""
        refusal = self._refusals.get(candidate)
        if refusal is None or refusal.prices is not prices:
            return None
        self._kept[candidate] = refusal
        return refusal.notices

    def keep(
        self,
        candidate: Candidate,
        prices: SinglePrices | None,
        notices: tuple[Notice, ...],
        *,
        below_price: float,
    ) -> None:
        """Keep a refusal that follows from prices alone, whatever the time and other nodes."""
        if (
            prices is None
            or candidate.pool.spec.disruption.consolidation_policy == BALANCED
            or may_cool_down(candidate)
        ):
            return
        least, whole = prices
        if least == inf or (least >= below_price and whole < inf):
            self._kept[candidate] = _Refusal(prices, notices)
