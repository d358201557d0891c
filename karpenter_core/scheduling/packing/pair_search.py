"""Improves the contents of few nodes: plans two of them anew, again and again.

Programs over patterns are good where there are many nodes of each kind. Of few nodes, most of what
they buy is a fraction that has to be rounded. There it helps to take two nodes, put what is on them
on one or two others, and keep that where it is cheaper, until no two nodes can be improved. For two
nodes one of them gets the pods that a greedy fill chooses for a shape, of many shapes and several
fills the cheapest; the other one is the cheapest node for the rest.
"""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.scheduling.packing.heuristic_fills import HeuristicFills
from karpenter_core.scheduling.packing.patterns import NodePattern
from karpenter_core.scheduling.packing.shape_choice import cheapest_shapes
from karpenter_core.scheduling.steps import run_steps

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from karpenter_core.scheduling.arrays import Columns, FloatCounts
    from karpenter_core.scheduling.packing.patterns import PatternProblem

__all__ = ["MAX_NODES", "search_pairs_steps"]

MAX_NODES: Final = 24
"""The most nodes that are paired; of more, there are too many pairs."""

_MAX_TRIALS: Final = 150
_MAX_WORK: Final = 4_500
"""The most sizes of pods in all trials together: a trial takes as much work as it has sizes."""

_MANY_SIZES: Final = 64
_MAX_WORK_OF_MANY: Final = 500
"""The same for more sizes than that: they fill gaps well before, and trials save half a percent."""

_SIZES_PER_UNIT: Final = 8
_GAIN: Final = 1e-9
_LARGEST_FIRST: Final = 1.5
"""An exponent of sizes: pods are worth more than their share, the more the larger they are."""


def search_pairs_steps(
    problem: PatternProblem, patterns: Sequence[NodePattern]
) -> Generator[int, None, tuple[NodePattern, ...]]:
    """Return patterns for the same pods that cost as much or less; yields units of work."""
    if not 0 < sum(pattern.nodes for pattern in patterns) <= MAX_NODES:
        return tuple(patterns)
    search = _PairSearch(problem, patterns)
    work = _MAX_WORK if len(problem.count) <= _MANY_SIZES else _MAX_WORK_OF_MANY
    for _ in range(_MAX_TRIALS):
        sizes = search.try_next()
        work -= sizes
        if not sizes or work < 0:
            break
        yield 1 + sizes // _SIZES_PER_UNIT
    return search.patterns()


@final
class _PairSearch:
    def __init__(self, problem: PatternProblem, patterns: Sequence[NodePattern]) -> None:
        unit = np.maximum(np.gcd.reduce(problem.request, axis=1), 1)[:, None]
        self._request: Final = (problem.request // unit).astype(np.float64)
        self._capacity: Final = (problem.capacity // unit).astype(np.float64)
        self._price: Final = problem.price
        demand = self._request @ problem.count
        self._fills: Final = HeuristicFills(self._request, self._capacity, demand)
        share = (self._request / np.maximum(demand, 1.0)[:, None]).sum(axis=0)
        self._worths: Final = (share, share**_LARGEST_FIRST)
        self._nodes = [
            (pattern.shape, pattern.content.astype(np.float64))
            for pattern in patterns
            for _ in range(pattern.nodes)
        ]
        self._tried: Final = set[tuple[bytes, ...]]()
        self._trials = self._untried()

    def patterns(self) -> tuple[NodePattern, ...]:
        """Return the nodes, each a pattern."""
        return tuple(
            NodePattern(shape=shape, content=content.astype(np.int64), nodes=1)
            for shape, content in self._nodes
        )

    def try_next(self) -> int:
        """Plan some nodes anew; return how many sizes of pods these have, 0 when all were tried."""
        chosen = next(self._trials, None)
        if chosen is None:
            return 0
        contents = [self._nodes[number][1] for number in chosen]
        now = fsum(float(self._price[self._nodes[number][0]]) for number in chosen)
        content: FloatCounts = np.sum(contents, axis=0)
        better = self._cheapest_two(content, now - _GAIN * max(now, 1.0))
        if better is not None:
            kept = [node for number, node in enumerate(self._nodes) if number not in chosen]
            self._nodes = [*kept, *better]
            self._trials = self._untried()
        return int(np.count_nonzero(content))

    def _untried(self) -> Iterator[tuple[int, ...]]:
        """Yield pairs of nodes, then each alone and all together, unless these were tried."""
        count = len(self._nodes)
        pairs = [(first, second) for second in range(count) for first in range(second)]
        each = [(number,) for number in range(count)]
        for chosen in (*pairs, *each, tuple(range(count))):
            key = tuple(sorted(self._nodes[number][1].tobytes() for number in chosen))
            if key not in self._tried:
                self._tried.add(key)
                yield chosen

    def _cheapest_two(
        self, content: FloatCounts, below: float
    ) -> list[tuple[int, FloatCounts]] | None:
        """Return one or two nodes for a content that cost less; None: none were found."""
        held = np.flatnonzero(content)
        pods = content[held, None]
        firsts = [pods]
        for worth in self._worths:
            steps = self._fills.ordered(worth, content)
            firsts.append(run_steps(steps)[0][held])
        first = np.concatenate(firsts, axis=1)
        rest = pods - first
        request = self._request[:, held]
        first_price, first_shape = cheapest_shapes(request @ first, self._capacity, self._price)
        rest_price, rest_shape = cheapest_shapes(request @ rest, self._capacity, self._price)
        cost = first_price + np.where(rest.any(axis=0), rest_price, 0.0)
        best = int(cost.argmin())
        if not cost[best] < below:
            return None
        parts = [(int(first_shape[best]), self._content(held, first[:, best]))]
        if rest[:, best].any():
            parts.append((int(rest_shape[best]), self._content(held, rest[:, best])))
        return parts

    def _content(self, held: Columns, pods: FloatCounts) -> FloatCounts:
        content = np.zeros(self._request.shape[1])
        content[held] = pods
        return content
