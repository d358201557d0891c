"""Chooses contents of nodes of one kind of claim from a plan's contents.

The contents of a plan are columns of a linear program over contents (`whole_pods`, `patterns`): each
pod in one of them, and at least as many nodes as pods that avoid each other need. A few rounds of
column generation add better ones; the whole nodes of the optimum are bought, the rest is planned
again with the same columns. Pods that remain after the last level may be placed by the caller, or on nodes that
are filled one after another: now the one is cheaper, now the other.

Exact for two resources; contents that exceed another one are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.scheduling.packing.covering import CoveringProgram
from karpenter_core.scheduling.packing.heuristic_fills import HeuristicFills
from karpenter_core.scheduling.packing.knapsacks import KnapsackSolver
from karpenter_core.scheduling.packing.node_by_node import fill_nodes_steps
from karpenter_core.scheduling.packing.patterns import NodePattern
from karpenter_core.scheduling.packing.shape_choice import cheapest_shapes

if TYPE_CHECKING:
    from collections.abc import Generator

    from karpenter_core.scheduling.arrays import (
        Amounts,
        Columns,
        Counts,
        FloatCounts,
        Floats,
        Prices,
    )

__all__ = ["ContentsProblem", "contents_steps"]

_COLUMNS_PER_ROUND: Final = 16
_GAIN: Final = 1e-3
_WHOLE: Final = 1e-6
_TINY: Final = 1e-12
"""The least price by which is divided: nodes may cost nothing."""
_UNITS_PER_ROUND: Final = 60
_ROUNDS: Final = (3, 1, 1)
"""Rounds of column generation at each level."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ContentsProblem:
    """Pods of K sizes, S shapes that can be bought, in R resources."""

    request: Amounts
    """R x K, distinct."""
    count: Counts
    """K: how many pods there are of each size."""
    capacity: Amounts
    """R x S: what pods may use on a node of each shape."""
    price: Prices
    """S: what to minimise, above zero."""
    lines: tuple[int, int]
    """The two scarcest resources."""
    nodes: int
    """The smallest number of nodes that can hold the pods."""


def contents_steps(
    problem: ContentsProblem, contents: FloatCounts
) -> Generator[int, None, tuple[tuple[NodePattern, ...], tuple[NodePattern, ...]]]:
    """Return whole nodes for most of the pods, and nodes for the rest; `contents` (K x C) hold all of them.

    There are none for the rest where pods that avoid each other need more of them.
    """
    search = _ContentsSearch(problem, contents)
    for rounds in _ROUNDS:
        if not search.left.any():
            break
        yield from search.level_steps(rounds)
    rest = (yield from search.rest_steps()) if search.left.any() else ()
    return tuple(search.bought), rest


@final
class _ContentsSearch:
    def __init__(self, problem: ContentsProblem, contents: FloatCounts) -> None:
        self._problem: Final = problem
        two = list(problem.lines)
        self._knapsacks: Final = KnapsackSolver(problem.request[two], problem.capacity[two])
        self.left: Final = problem.count.astype(np.float64)
        self.bought: Final = list[NodePattern]()
        self._nodes = float(problem.nodes)
        self._contents: FloatCounts = np.zeros((len(problem.count), 0))
        self._shapes: Columns = np.zeros(0, dtype=np.intp)
        self._add(np.concatenate((np.eye(len(problem.count)), contents), axis=1))

    def _add(self, contents: FloatCounts) -> slice:
        """Add contents, each on the cheapest shape that holds it; what none holds is left out."""
        problem, before = self._problem, len(self._shapes)
        needed = problem.request.astype(np.float64) @ contents
        prices, shapes = cheapest_shapes(needed, problem.capacity, problem.price)
        held = np.isfinite(prices) & np.any(contents, axis=0)
        self._contents = np.concatenate((self._contents, contents[:, held]), axis=1)
        self._shapes = np.concatenate((self._shapes, shapes[held]))
        return slice(before, None)

    def level_steps(self, rounds: int) -> Generator[int, None, None]:
        """Solve for what is left, and buy whole nodes."""
        self._cut()
        rows = np.flatnonzero(self.left > 0)
        demand = np.append(self.left[rows], self._nodes)
        every = slice(None)
        program = CoveringProgram(
            self._rules(rows, every), demand, self._prices(every), self._endless(every)
        )
        solution = program.solve()
        for _ in range(rounds):
            if solution is None:
                return
            yield _UNITS_PER_ROUND
            added = self._better(rows, solution.duals)
            if added is None:
                break
            program.add(self._rules(rows, added), self._prices(added), self._endless(added))
            solution = program.solve()
            if solution is not None and not solution.iterations:
                break  # no content entered: the same ones would be found again
        if solution is not None:
            self._buy(np.floor(solution.amounts + _WHOLE))

    def _prices(self, which: slice) -> Prices:
        return self._problem.price[self._shapes[which]]

    def _endless(self, which: slice) -> Floats:
        return np.full(len(self._shapes[which]), np.inf)

    def _rules(self, rows: Columns, which: slice) -> Floats:
        contents = self._contents[:, which]
        return np.vstack((contents[rows], np.ones(contents.shape[1])))

    def _better(self, rows: Columns, duals: Floats) -> slice | None:
        """Add contents that are worth more than they cost; None: there are none that matter."""
        values = np.zeros(len(self.left))
        values[rows] = duals[:-1]
        value_bounds = self._knapsacks.value_bounds(values)
        worth = value_bounds.most + float(duals[-1])
        paid = worth / np.maximum(self._problem.price, _TINY)
        found = [
            np.floor(np.minimum(content, self.left) + _WHOLE)
            for shape in np.argsort(-paid, kind="stable")[:_COLUMNS_PER_ROUND].tolist()
            if paid[shape] > 1 + _GAIN and (content := value_bounds.content(shape)) is not None
        ]
        if not found:
            return None
        added = self._add(np.unique(np.stack(found, axis=1), axis=1))
        return added if len(self._shapes[added]) else None

    def rest_steps(self) -> Generator[int, None, tuple[NodePattern, ...]]:
        """Return nodes for the pods that are left, filled one after another; () if these must be more."""
        problem = self._problem
        request, capacity = problem.request.astype(np.float64), problem.capacity.astype(np.float64)
        fills = HeuristicFills(request, capacity, request @ self.left)
        filled = yield from fill_nodes_steps(request, capacity, problem.price, self.left, fills)
        rest = tuple(
            NodePattern(shape=shape, content=content.astype(np.int64), nodes=nodes)
            for shape, content, nodes in filled or ()
        )
        return rest if sum(pattern.nodes for pattern in rest) >= self._nodes else ()

    def _cut(self) -> None:
        """Cut contents to what is left; drop those that are there already."""
        cut = np.minimum(self._contents, self.left[:, None])
        table = np.concatenate((self._shapes[None, :], cut))
        _, kept = np.unique(table, axis=1, return_index=True)
        kept = np.sort(kept[cut[:, kept].any(axis=0)])
        self._contents, self._shapes = cut[:, kept], self._shapes[kept]

    def _buy(self, whole: FloatCounts) -> None:
        for number in np.argsort(-whole, kind="stable").tolist():
            nodes = int(whole[number])
            if not nodes:
                break
            content = np.minimum(self._contents[:, number], self.left)
            held = content > 0
            if not held.any():
                continue
            nodes = min(nodes, int((self.left[held] // content[held]).min()))
            if nodes:
                self.bought.append(
                    NodePattern(
                        shape=int(self._shapes[number]),
                        content=content.astype(np.int64),
                        nodes=nodes,
                    )
                )
                self.left[:] -= content * nodes
                self._nodes = max(self._nodes - nodes, 0.0)
