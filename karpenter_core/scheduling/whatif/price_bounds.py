"""Bounds the price of new nodes for given amounts from below."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.scheduling.compiled.signatures import NO_MATCH

if TYPE_CHECKING:
    from karpenter_core.scheduling.arrays import Amounts, Mask
    from karpenter_core.scheduling.compiled.problem import CompiledProblem

__all__ = ["PriceBounds"]


@final
class PriceBounds:
    """The rows of all pools with their prices, without regard to label requirements."""

    def __init__(self, compiled: CompiledProblem) -> None:
        signatures = compiled.signatures
        claims = [signatures.claim(s) for s in compiled.pool_signatures if s != NO_MATCH]
        room = [claim.free for claim in claims] or [np.empty((len(compiled.resources), 0))]
        prices = [claim.prices for claim in claims] or [np.empty(0)]
        joined = np.concatenate(prices)
        order = np.argsort(joined, kind="stable")
        order = order[np.isfinite(joined[order])]
        self._room: Final = np.concatenate(room, axis=1)[:, order]
        self._prices: Final = joined[order]
        rates = np.where(self._room > 0, self._prices / np.maximum(self._room, 1), inf)
        self._rates: Final = rates.min(axis=1, initial=inf)

    def lowest_price(self, amounts: Amounts) -> float:
        """Return the lowest cost of these amounts on any number of nodes; inf: impossible."""
        is_requested = amounts > 0
        return float((amounts[is_requested] * self._rates[is_requested]).max(initial=0.0))

    def lowest_single_price(self, amounts: Amounts) -> float:
        """Return the lowest price of one node for these amounts; inf: there is none."""
        fits: Mask = np.logical_and.reduce(self._room >= amounts[:, None])
        best = int(fits.argmax()) if len(fits) else 0
        return float(self._prices[best]) if len(fits) and fits[best] else inf
