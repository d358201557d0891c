"""Fills one node after another with pods of many sizes.

Programs over contents need many pods of each size: a node's content is then bought many times, and hardly
anything is lost where fractions of nodes are rounded. Of one to ten pods of each size nearly every node
has a content of its own. There it is better to fill each node as well as possible from what is left: the more
sizes there are, the better one of them fits into a gap.

A linear program over divisible pods says what a core and a byte are worth. Each node gets the pods with
the most worth per share of what is scarcest on it (`HeuristicFills.balanced`), large ones first, as small ones
still fit into gaps later; of several shapes the one that costs least for the worth that it holds is bought.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from karpenter_core.scheduling.packing.covering import CoveringProgram
from karpenter_core.scheduling.packing.shape_choice import cheapest_shapes

if TYPE_CHECKING:
    from collections.abc import Generator

    from karpenter_core.scheduling.arrays import (
        Columns,
        FloatAmounts,
        FloatCounts,
        Prices,
        UnitValues,
    )
    from karpenter_core.scheduling.packing.heuristic_fills import HeuristicFills

__all__ = ["FilledNodes", "fill_nodes_steps"]

FilledNodes = tuple[int, "FloatCounts", int]
"""Shape, content (K) of each node, and the number of nodes."""

_LARGEST_FIRST: Final = 2.0
"""The exponent of a pod's worth. Two comes closer to the bound than 1.3, 1.6, 2.5, 3 and 5."""

_STEP: Final = 0.5
"""The part of the pods of a size that still fit which one turn of a fill takes."""

_TRIED_ELEMENTS: Final = 16_000
_FEWEST_TRIED: Final = 4
_MOST_TRIED: Final = 32
"""Shapes that are tried: as many as make so many elements with the sizes, and between these."""

_BATCH: Final = 8
"""A shape is bought for one in so many of the nodes still needed before others are tried again."""

_LEAST_WORTH: Final = 1e-6
"""The worth of a pod that uses nothing scarce, as a part of the most valuable pod's."""

_AT_ONCE: Final = 1.02
"""Put the rest on one node when that costs at most so much of what the program hopes for."""

_TINY: Final = 1e-12
_UNITS_PER_PROGRAM: Final = 2


def fill_nodes_steps(
    request: FloatAmounts,
    capacity: FloatAmounts,
    price: Prices,
    count: FloatCounts,
    fills: HeuristicFills,
) -> Generator[int, None, list[FilledNodes] | None]:
    """Return nodes for all pods; yields units of work.

    None when a pod fits on no shape, or the LP library fails.

    Args:
        request: R x K, what a pod of each size asks for.
        capacity: R x S.
        price: S.
        count: K, pods of each size.
        fills: the fills of these sizes and shapes.
    """
    left, filled = count.copy(), list[FilledNodes]()
    while left.any():
        program = _divisible(request, capacity, price, left)
        if program is None:
            return None
        unit_values, cost = program
        yield _UNITS_PER_PROGRAM
        prices, shapes = cheapest_shapes(request @ left[:, None], capacity, price)
        if prices[0] <= _AT_ONCE * cost:
            return [*filled, (int(shapes[0]), left, 1)]
        worth = _worth(unit_values, request)
        rate = (unit_values @ capacity) / np.maximum(price, _TINY)
        tried, batch, before = _tried(rate, left, fills), 1, len(filled)
        while batch:
            contents = yield from fills.balanced(worth**_LARGEST_FIRST, left, tried, step=_STEP)
            prices, shapes = cheapest_shapes(request @ contents, capacity, price)
            held_worth = worth @ contents
            best = int(
                np.where(held_worth > 0, prices / np.maximum(held_worth, _TINY), np.inf).argmin()
            )
            content = contents[:, best]
            held = content > 0
            if not held.any():
                break  # what is left needs other shapes
            nodes = int((left[held] // content[held]).min())
            filled.append((int(shapes[best]), content, nodes))
            left -= content * nodes
            if len(tried) > 1:
                batch = _nodes_for(request @ left, request @ content) // _BATCH + 1
                tried = tried[[best]]
            batch -= 1
        if len(filled) == before:
            return None
    return filled


def _divisible(
    request: FloatAmounts, capacity: FloatAmounts, price: Prices, left: FloatCounts
) -> tuple[UnitValues, float] | None:
    """Return the worth of a unit of each resource (R) and the lowest cost, if pods were divisible."""
    demand = request @ left
    lines = np.flatnonzero(demand)
    solution = CoveringProgram(
        np.maximum(capacity[lines], 0.0), demand[lines], price, np.full(len(price), np.inf)
    ).solve()
    if solution is None:
        return None
    unit_values = np.zeros(len(request))
    unit_values[lines] = solution.duals
    return unit_values, solution.cost


def _tried(rate: UnitValues, left: FloatCounts, fills: HeuristicFills) -> Columns:
    """Return shapes with much worth for their price, and one for a pod that fits on none of these."""
    most = min(_MOST_TRIED, max(_FEWEST_TRIED, _TRIED_ELEMENTS // len(left)))
    order = np.argsort(-rate, kind="stable")
    tried = order[:most]
    large = np.flatnonzero((left > 0) & ~(fills.most[:, tried] >= 1).any(axis=1))
    if not len(large):
        return tried
    holds = fills.most[large[0], order] >= 1
    return np.append(tried, order[holds][:1])


def _worth(unit_values: UnitValues, request: FloatAmounts) -> UnitValues:
    """Return the worth of a pod of each size (K), the highest 1; none is without any."""
    worth = unit_values @ request
    highest = float(worth.max())
    return np.maximum(worth / highest, _LEAST_WORTH) if highest > 0 else np.ones(len(worth))


def _nodes_for(left: FloatCounts, held: FloatCounts) -> int:
    """Return how many nodes hold what is left, if each holds so much (both R)."""
    return int((left[held > 0] / held[held > 0]).max(initial=0.0))
