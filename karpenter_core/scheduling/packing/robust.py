"""Computes prices that hold when the cheapest instance type is sold out.

A claim lists every type that holds its pods, and the cloud may launch any of them: with spot, the
cheapest type of today is often unavailable. So plans are chosen by a blend of the cheapest price
and that of the n-th cheapest type with at least the same capacity, and shapes for which few types
can stand in are avoided where there is a choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.scheduling.arrays import Columns, Mask, Prices


__all__ = ["nth_cheapest", "robust_prices", "stand_ins"]


def stand_ins(holds: Mask, prices: Prices, types: Columns) -> Mask:
    """Return which rows of a catalogue (T) may be bought for an amount of room (V): V x T.

    `holds`, V x T, says which rows have the room; a row without a finite price cannot be bought.
    Of several rows of one instance type (`types`, T) only the cheapest that holds it counts, so
    that a line's sum is the number of types.
    """
    counted = holds & np.isfinite(prices)
    order = np.lexsort((prices, types))
    ordered = types[order]
    for place in ((ordered[1:] == ordered[:-1]).nonzero()[0] + 1).tolist():
        start = int(ordered.searchsorted(ordered[place]))
        counted[:, order[place]] &= ~counted[:, order[start:place]].any(axis=1)
    return counted


def nth_cheapest(counted: Mask, prices: Prices, ranks: Sequence[int]) -> list[Prices]:
    """Return, for each rank (1: the cheapest), what the stand-in of that rank costs, per room (V).

    Where there are fewer stand-ins, the dearest; inf where there is none.
    """
    order = np.argsort(prices, kind="stable")
    ranked, ordered = prices[order], counted[:, order]
    prices_by_rank: list[Prices] = []
    for rank in ranks:
        if rank == 1:
            position = ordered.argmax(axis=1)
        else:
            few = np.uint16 if len(order) < 1 << 16 else np.uint32  # narrow ones are faster
            reached = np.cumsum(ordered, axis=1, dtype=few)
            nth_rank = np.minimum(reached[:, -1], rank).astype(few)
            position = (reached >= nth_rank[:, None]).argmax(axis=1)
        prices_by_rank.append(np.where(ordered.any(axis=1), ranked[position], np.inf))
    return prices_by_rank


def robust_prices(cheapest: Prices, nth: Prices, *, weight: float) -> Prices:
    """Blend: `weight` 0 trusts the cheapest price, 1 the n-th cheapest; inf stays inf.

    The n-th counts with twice the cheapest at most: where few types can stand in, or prices are
    linear in size, it is a type of quite another size, and small ones would never be bought.
    """
    extra = np.zeros_like(cheapest)
    np.subtract(nth, cheapest, out=extra, where=np.isfinite(cheapest))
    np.minimum(extra, cheapest, out=extra)
    blended: Prices = cheapest + weight * extra
    return blended
