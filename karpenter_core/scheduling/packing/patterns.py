"""Buys whole nodes with whole contents for pods that mix freely.

A linear program over *patterns* (what one node of one shape holds) is the strongest bound on cost
there is, and its few used patterns are a plan but for fractions of nodes. Patterns are found as
they are needed (column generation): the program's duals say what a pod of each size is worth, fills
look for contents worth more than their node, until none is found that matters. Whole nodes are then
bought, and the rest is put on one node after another (`node_by_node`). So are pods of which there are
only a few of each size.

For pods without topology rules that all may go on all shapes. Pure, and independent of the order of
sizes and shapes; effort is counted in work units.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.scheduling.packing.covering import CoveringProgram
from karpenter_core.scheduling.packing.heuristic_fills import HeuristicFills, work_units
from karpenter_core.scheduling.packing.node_by_node import FilledNodes, fill_nodes_steps
from karpenter_core.scheduling.packing.shape_choice import cheapest_shapes

if TYPE_CHECKING:
    from collections.abc import Generator

    from karpenter_core.scheduling.arrays import (
        Amounts,
        Columns,
        Counts,
        FloatCounts,
        Prices,
        UnitValues,
    )


__all__ = ["NodePattern", "PatternPlan", "PatternProblem", "pattern_steps"]

_ELEMENTS_PER_PIVOT: Final = 16
"""The cost of one step of the simplex method, in elements for each column."""

_CALLS_PER_SOLVE: Final = 300

_MAX_SHAPES: Final = 128
"""The most shapes for which patterns are searched."""

_BALANCED_SHAPES: Final = 64
_BALANCED_ELEMENTS: Final = 4_000
"""Shapes x sizes that one step of a balanced fill works on."""

_COLUMNS_PER_ROUND: Final = 60
_SMOOTHING: Final = 0.3
"""Duals jump from round to round; balanced fills use their running mean."""

_STEPS: Final = (0.5, 0.5, 0.25)
"""Steps of balanced fills: when one finds nothing more, the next begins at the latest duals."""

_PROGRESS: Final = 2e-4
_PATIENCE: Final = 3
"""A step finds nothing more after so many rounds with less relative progress than that."""

_PODS_OF_A_SIZE: Final = 8
"""With fewer pods of each size, on average, the program's nodes are nearly all fractions."""

_TINY: Final = 1e-12

_GAIN: Final = 1e-9
"""Less than that of a price is rounding."""

_NONE: Final = 1e-6
"""Less than that of a node is rounding."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PatternProblem:
    """Pods of K sizes, and S shapes that can be bought without limit, in R resources."""

    request: Amounts
    """R x K: what a pod of each size asks for."""
    count: Counts
    """K: how many pods there are of each size."""
    capacity: Amounts
    """R x S: what pods may use on a node of each shape."""
    price: Prices
    """S: what to minimise, fee and robustness included."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodePattern:
    """Some nodes of one shape with the same content."""

    shape: int
    content: Counts
    """K: pods of each size on each of the nodes."""
    nodes: int


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PatternPlan:
    """A plan: every pod is in exactly one pattern, or its size is too large for all shapes."""

    patterns: tuple[NodePattern, ...]
    left: Counts
    """K: pods that fit on no shape."""
    cost: float
    """Of all nodes, at the problem's prices."""


def pattern_steps(
    problem: PatternProblem, *, budget: int
) -> Generator[int, None, PatternPlan | None]:
    """Plan; yields units of work. None when the LP library fails.

    Once the budget of work units is used no more patterns are looked for, and the plan is finished
    with those that are known.
    """
    sizes, shapes = np.lexsort(problem.request), _candidate_shapes(problem)
    if not len(shapes) or not problem.count.any():
        return PatternPlan(patterns=(), left=problem.count.copy(), cost=0.0)
    planner = _PatternPlanner(
        problem.request[:, sizes], problem.count[sizes], problem.capacity[:, shapes],
        problem.price[shapes], budget,
    )  # fmt: skip
    done = yield from planner.steps()
    if not done:
        return None
    back = np.empty(len(sizes), dtype=np.intp)
    back[sizes] = np.arange(len(sizes))
    bought = planner.bought()
    return PatternPlan(
        patterns=tuple(
            NodePattern(shape=int(shapes[shape]), content=content[back], nodes=nodes)
            for shape, content, nodes in bought
        ),
        left=planner.unplaceable[back],
        cost=fsum(problem.price[shapes[shape]] * nodes for shape, _, nodes in bought),
    )


def _candidate_shapes(problem: PatternProblem) -> Columns:
    """Return the shapes to try, in an order of their own: at most about `_MOST_SHAPES`.

    Half of them are those with the lowest price per share of the demand; as many linear prices tie
    and larger nodes pack better, the best of each range of sizes come with them.
    """
    order = np.lexsort((problem.price, *problem.capacity))
    order = order[(problem.capacity[:, order] >= 0).all(axis=0)]
    if len(order) <= _MAX_SHAPES:
        return order
    demand = np.maximum((problem.request * problem.count).sum(axis=1), 1)
    size = (np.minimum(problem.capacity[:, order], demand[:, None]) / demand[:, None]).sum(axis=0)
    ratio = problem.price[order] / np.maximum(size, _TINY)
    ranked = np.argsort(ratio, kind="stable")
    kept = set(ranked[: _MAX_SHAPES // 2].tolist())
    for scale in (size, np.log(np.maximum(size, _TINY))):
        width = max(float(scale.max() - scale.min()), _TINY) / (_MAX_SHAPES // 4)
        ranges = np.floor((scale[ranked] - scale.min()) / width)
        kept.update(dict(zip(ranges[::-1].tolist(), ranked[::-1].tolist(), strict=True)).values())
    largest = np.argsort(-problem.capacity[:, order], axis=1, kind="stable")[:, 0]
    kept.update(largest.tolist())
    return order[np.array(sorted(kept), dtype=np.intp)]


class _PatternPlanner:
    """One problem in an order of its own, in units that keep numbers small."""

    def __init__(
        self, request: Amounts, count: Counts, capacity: Amounts, price: Prices, budget: int
    ) -> None:
        unit = np.maximum(np.gcd.reduce(request, axis=1), 1)[:, None]
        self._request: Final = (request // unit).astype(np.float64)
        self._capacity: Final = (capacity // unit).astype(np.float64)
        self._price: Final = price
        self._fills: Final = HeuristicFills(self._request, self._capacity, self._request @ count)
        placeable = (self._fills.most >= 1).any(axis=1)
        self._unplaced = np.where(placeable, count, 0).astype(np.float64)
        self.unplaceable: Final = np.where(placeable, 0, count)
        self._budget = budget
        self._contents = np.zeros((len(count), 0))
        self._none: Final = (self._contents, np.zeros(0, dtype=np.intp))
        self._shapes = np.zeros(0, dtype=np.intp)
        self._bought: list[FilledNodes] = []

    def bought(self) -> list[tuple[int, Counts, int]]:
        """Return shape, content and number of nodes; equal ones once."""
        merged: dict[tuple[int, bytes], list[int]] = {}
        kept: list[tuple[int, Counts]] = []
        for shape, content, nodes in self._bought:
            whole = content.astype(np.int64)
            number = merged.setdefault((shape, whole.tobytes()), [len(kept), 0])
            if number[0] == len(kept):
                kept.append((shape, whole))
            number[1] += nodes
        return [
            (shape, content, nodes)
            for (shape, content), (_, nodes) in zip(kept, merged.values(), strict=True)
        ]

    def steps(self) -> Generator[int, None, bool]:
        """Plan and buy until nothing is left; False when a program has no answer."""
        if self._unplaced.sum() >= _PODS_OF_A_SIZE * np.count_nonzero(self._unplaced):
            self._start_columns()
            for work in self._generate_and_buy():
                self._budget -= work
                yield work
        rest = yield from fill_nodes_steps(
            self._request, self._capacity, self._price, self._unplaced, self._fills
        )
        if rest is None:
            return False
        self._bought += rest
        return True

    def _generate_and_buy(self) -> Generator[int, None, None]:
        amounts = yield from self._generate()
        if amounts is not None:
            self._buy(amounts)
            yield 1

    # -- the program over patterns ---------------------------------------------------------------

    def _start_columns(self) -> None:
        """Begin with a pattern of each size alone."""
        alone = np.minimum(self._fills.most, self._unplaced[:, None])
        each = np.divide(
            np.broadcast_to(self._price, alone.shape), alone,
            out=np.full(alone.shape, np.inf), where=alone >= 1,
        )  # fmt: skip
        rows = np.flatnonzero(self._unplaced > 0)
        best = each[rows].argmin(axis=1)
        own = np.zeros((len(self._unplaced), len(rows)))
        own[rows, np.arange(len(rows))] = alone[rows, best]
        self._contents, self._shapes = own, best

    def _generate(self) -> Generator[int, None, FloatCounts | None]:
        """Solve with more and more patterns; returns how often each is used."""
        rows = np.flatnonzero(self._unplaced > 0)
        program = CoveringProgram(
            self._contents[rows], self._unplaced[rows], self._price[self._shapes],
            np.full(len(self._shapes), np.inf),
        )  # fmt: skip
        mean: UnitValues | None = None
        best, stalled, steps = np.inf, 0, _STEPS
        while True:
            solution = program.solve()
            if solution is None:
                return None
            yield work_units(
                _CALLS_PER_SOLVE, _ELEMENTS_PER_PIVOT * solution.iterations * len(self._shapes)
            )
            size_values = np.zeros(len(self._unplaced))
            size_values[rows] = solution.duals
            stalled = stalled + 1 if solution.cost > best * (1 - _PROGRESS) else 0
            best = min(best, solution.cost)
            if self._budget <= 0:
                break
            mean = (
                size_values if mean is None else _SMOOTHING * mean + (1 - _SMOOTHING) * size_values
            )
            contents, shapes = self._none
            if stalled < _PATIENCE:
                contents, shapes = yield from self._better(size_values, mean, steps[0])
            while not len(shapes) and len(steps) > 1:
                steps, mean, stalled = steps[1:], size_values, 0
                contents, shapes = yield from self._better(size_values, mean, steps[0])
            if not len(shapes):
                break
            program.add(contents[rows], self._price[shapes], np.full(len(shapes), np.inf))
            self._contents = np.concatenate((self._contents, contents), axis=1)
            self._shapes = np.concatenate((self._shapes, shapes))
        return solution.amounts

    def _better(
        self, size_values: UnitValues, mean: UnitValues, step: float
    ) -> Generator[int, None, tuple[FloatCounts, Columns]]:
        """Search patterns that are worth more than they cost."""
        contents, shapes = yield from self._fills.ordered(size_values, self._unplaced)
        gain = (
            (size_values @ contents - self._price[shapes])
            .reshape(-1, self._fills.shapes)
            .max(axis=0)
        )
        few = min(_BALANCED_SHAPES, max(8, _BALANCED_ELEMENTS // self._fills.sizes))
        chosen = np.argsort(-gain / np.maximum(self._price, _TINY), kind="stable")[:few]
        more = yield from self._fills.balanced(mean, self._unplaced, chosen, step=step)
        contents = np.concatenate((contents, more), axis=1)
        shapes = np.concatenate((shapes, chosen))
        gain = size_values @ contents - self._price[shapes]
        good = np.flatnonzero(gain > _GAIN * self._price[shapes])
        relative = gain[good] / np.maximum(self._price[shapes[good]], _TINY)
        good = good[np.argsort(-relative, kind="stable")][:_COLUMNS_PER_ROUND]
        return _distinct(contents[:, good], shapes[good])

    # -- from fractions to nodes -----------------------------------------------------------------

    def _buy(self, amounts: FloatCounts) -> None:
        """Buy the whole nodes of the program, those of which there are most first."""
        whole = np.floor(amounts + _NONE)
        for number in np.argsort(-whole, kind="stable").tolist():
            if not whole[number]:
                break
            content = np.minimum(self._contents[:, number], self._unplaced)
            held = content > 0
            if held.any():
                nodes = min(int(whole[number]), int((self._unplaced[held] // content[held]).min()))
                _, shapes = cheapest_shapes(
                    self._request @ content[:, None], self._capacity, self._price
                )
                self._bought.append((int(shapes[0]), content, nodes))
                self._unplaced -= content * nodes


def _distinct(contents: FloatCounts, shapes: Columns) -> tuple[FloatCounts, Columns]:
    """Drop columns that are there already, keeping the order; and empty ones."""
    seen: dict[tuple[int, bytes], None] = {}
    kept: list[int] = []
    for number, (shape, content) in enumerate(zip(shapes.tolist(), contents.T, strict=True)):
        key = (shape, content.tobytes())
        if key not in seen and content.any():
            seen[key] = None
            kept.append(number)
    return contents[:, kept], shapes[kept]
