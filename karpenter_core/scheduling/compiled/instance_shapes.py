"""Finds the instance shapes of a catalogue that are worth buying.

A shape is a capacity at a price in one domain (a zone). Most rows never matter: another one has at
least as much capacity at no higher price. The remaining shapes, some tens, are all that guidance,
patterns and the choice of a new node evaluate; a claim still lists all types that hold its pods,
whatever shape measured it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from karpenter_core.scheduling.packing.robust import nth_cheapest, robust_prices, stand_ins

if TYPE_CHECKING:
    from karpenter_core.scheduling.arrays import Amounts, Columns, Floats, Mask, Prices, TypeCounts


__all__ = ["InstanceShapes", "OfferingMatrix", "find_instance_shapes"]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OfferingMatrix:
    """Offerings under some conditions: T rows, R resources, D domains."""

    capacity: Amounts
    """R x T: what pods may use on one node."""
    prices: Prices
    """D x T: per hour at the cheapest offering that the conditions allow; inf: not sold there."""
    types: Columns
    """T: the number of the row's instance type; rows of one type share it."""
    robust_weight: Floats
    """D: how much the price of the n-th cheapest stand-in counts (0 where prices are certain)."""
    robust_rank: int
    """n: which stand-in's price that is."""
    flexibility_floor: int
    """More stand-ins than that are not an advantage."""

    @property
    def content(self) -> tuple[object, ...]:
        """All of it, to be compared and hashed."""
        arrays = (self.capacity, self.prices, self.types, self.robust_weight)
        parts = [(array.shape, array.tobytes()) for array in arrays]
        return (*parts, self.robust_rank, self.flexibility_floor)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InstanceShapes:
    """The S shapes of an offering matrix, by domain, then by robust price."""

    row: Columns
    """S: a row with exactly this capacity, the cheapest in the domain."""
    domain: Columns
    """S: the number of the domain."""
    capacity: Amounts
    """R x S: what pods may use on one node."""
    price: Prices
    """S: the lowest price of at least this capacity in the domain, perhaps of a larger row."""
    robust_price: Prices
    """S: the price by which shapes are chosen."""
    flexibility: TypeCounts
    """S: how many instance types of the domain have at least this capacity."""


def find_instance_shapes(offering_matrix: OfferingMatrix) -> InstanceShapes:
    """Drop rows for which another has at least the capacity, price and stand-ins."""
    room, vector_of = _distinct(offering_matrix.capacity)
    larger = _at_least(room, room)
    holds = larger[:, vector_of]
    parts: list[tuple[Columns, Columns, Prices, Prices, TypeCounts]] = []
    for domain, prices in enumerate(offering_matrix.prices):
        counted = stand_ins(holds, prices, offering_matrix.types)
        weight = float(offering_matrix.robust_weight[domain])
        ranks = (1, offering_matrix.robust_rank) if weight else (1,)
        cheapest, *rest = nth_cheapest(counted, prices, ranks)
        robust = robust_prices(cheapest, rest[0], weight=weight) if rest else cheapest
        flexibility = np.count_nonzero(counted, axis=1)
        row = _cheapest_rows(vector_of, prices, len(robust))
        offered = np.where((row >= 0) & (room >= 0).all(axis=0), robust, np.inf)
        shape_rows = np.flatnonzero(
            _undominated(
                larger, offered, np.minimum(flexibility, offering_matrix.flexibility_floor)
            )
        )
        shape_rows = shape_rows[np.lexsort((row[shape_rows], robust[shape_rows]))]
        parts.append(
            (
                row[shape_rows],
                np.full(len(shape_rows), domain, dtype=np.intp),
                cheapest[shape_rows],
                robust[shape_rows],
                flexibility[shape_rows].astype(np.intp),
            )
        )
    row, domain, price, robust_price, flexible = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    return InstanceShapes(
        row=row,
        domain=domain,
        capacity=offering_matrix.capacity[:, row],
        price=price,
        robust_price=robust_price,
        flexibility=flexible,
    )


def _distinct(room: Amounts) -> tuple[Amounts, Columns]:
    """Return the distinct columns and, for each column, which of them it is."""
    order = np.lexsort(room)
    ordered = room[:, order]
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    number_of = np.empty(len(order), dtype=np.intp)
    number_of[order] = np.cumsum(first) - 1
    return ordered[:, first], number_of


def _at_least(small: Amounts, large: Amounts) -> Mask:
    """Return which columns of `large` contain which of `small`: small x large."""
    contains = np.ones((small.shape[1], large.shape[1]), dtype=np.bool_)
    for required, there in zip(small, large, strict=True):
        contains &= there >= required[:, None]
    return contains


def _cheapest_rows(vector_of: Columns, prices: Prices, vectors: int) -> Columns:
    """Return the cheapest row of each vector that is sold, the first of equals; -1: none."""
    rows = np.full(vectors, -1, dtype=np.intp)
    order = np.lexsort((np.arange(len(prices)), prices))[::-1]
    order = order[np.isfinite(prices[order])]
    rows[vector_of[order]] = order
    return rows


def _undominated(larger: Mask, prices: Prices, enough: TypeCounts) -> Mask:
    """Return which vectors have no larger one at the price with stand-ins enough; inf: not sold."""
    beaten = larger.copy()
    for values in (-prices, enough):
        # Ranks in narrow numbers: comparing them all is four times as fast.
        ranks = np.searchsorted(np.sort(values), values).astype(np.int32)
        beaten &= ranks >= ranks[:, None]
    is_undominated: Mask = np.count_nonzero(beaten, axis=1) == 1  # but for the vector itself
    return is_undominated & np.isfinite(prices)
