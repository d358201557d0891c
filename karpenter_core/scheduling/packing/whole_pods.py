"""Computes a lower bound of the cost of pods that are not divisible.

The linear program over *contents* (what one node can hold; Gilmore and Gomory, 1961) has a rule for
every size of pods. Its dual: give pods of each size a worth, and every node a rent, such that no
content of any shape is worth more than the shape costs less the rent. **Any such worths and rent
prove a bound**: whatever nodes a plan buys, each costs at least its rent and what its pods are
worth, so all together cost at least

    (worth of all pods) + rent x (the fewest nodes there must be)

Worths are sums of one part for each resource: a part for each distinct amount, and a price for each
unit. That restricts the dual, so what comes out is still a bound; measured, it is as high as with a
worth of its own for every size, and found in a third of the rounds. How much a content can be worth
is answered from above by `knapsacks`; if some content is worth too much, all worths and the rent are
made smaller until none is (Farley, 1990). Worths are found by column generation; started with the
contents of a plan, five rounds or so end at the optimum.

What the bound ignores only makes it lower: all but two resources, which shapes a pod may use,
zones, and every constraint among pods but the number of nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.scheduling.packing.covering import CoveringProgram
from karpenter_core.scheduling.packing.knapsacks import KnapsackSolver
from karpenter_core.scheduling.packing.shape_choice import cheapest_shapes

if TYPE_CHECKING:
    from collections.abc import Generator

    from karpenter_core.scheduling.arrays import Amounts, Counts, FloatCounts, Floats, Prices


__all__ = ["WholePodsProblem", "whole_pods_steps"]

_UNITS_PER_ROUND: Final = 10
_COLUMNS_PER_ROUND: Final = 12
_CLOSE: Final = 2e-4
"""A bound that is below the program's cost by no more than that is not improved."""

_GAIN: Final = 1e-9
_ROUNDING: Final = 1e-8
"""The share by which a bound is lowered, so that rounding never lifts it above the true bound."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WholePodsProblem:
    """Pods of K sizes and S shapes that can be bought, in two resources."""

    request: Amounts
    """2 x K, distinct, none zero in both."""
    count: Counts
    """K: how many pods there are of each size."""
    capacity: Amounts
    """2 x S: what pods may use on a node of each shape."""
    price: Prices
    """S: per hour."""
    nodes: int
    """The smallest number of nodes that can hold the pods."""


def whole_pods_steps(
    problem: WholePodsProblem, contents: FloatCounts, *, rounds: int
) -> Generator[int, None, float]:
    """Return a lower bound on the cost of nodes for the pods; yields units of work.

    `contents` (K x C) are those of some plan's nodes, to begin with.
    """
    search = _BoundSearch(problem)
    search.add(contents)
    search.add(search.alone())
    for _ in range(rounds):
        if not search.improve():
            break
        yield _UNITS_PER_ROUND
    return search.bound * (1.0 - _ROUNDING)


@final
class _BoundSearch:
    def __init__(self, problem: WholePodsProblem) -> None:
        self._problem: Final = problem
        self._knapsacks: Final = KnapsackSolver(problem.request, problem.capacity)
        self._parts: Final = _parts(problem.request) * self._knapsacks.is_exact_for
        demand = np.append(self._parts @ problem.count, float(problem.nodes))
        self._demand: Final = demand
        self._program: CoveringProgram | None = None
        self.bound = 0.0

    def alone(self) -> FloatCounts:
        """Return contents, K x K, of one size each, so that the program has a solution."""
        request, capacity = self._problem.request, self._problem.capacity
        fits = np.logical_and.reduce(request[:, :, None] <= capacity[:, None, :])
        return np.diag(fits.any(axis=1).astype(np.float64))

    def add(self, contents: FloatCounts) -> None:
        """Add contents, each on the cheapest shape that holds it; what none holds is left out."""
        problem = self._problem
        needed = problem.request.astype(np.float64) @ contents
        prices, _ = cheapest_shapes(needed, problem.capacity, problem.price)
        held = np.isfinite(prices) & np.any(contents, axis=0)
        self._add(contents[:, held], prices[held])

    def _add(self, contents: FloatCounts, prices: Prices) -> None:
        columns = np.vstack((self._parts @ contents, np.ones(contents.shape[1])))
        upper = np.full(len(prices), np.inf)
        if self._program is None:
            self._program = CoveringProgram(columns, self._demand, prices, upper)
        else:
            self._program.add(columns, prices, upper)

    def improve(self) -> bool:
        """Make one round; return whether another may help."""
        solution = None if self._program is None else self._program.solve()
        if solution is None or solution.cost <= self.bound * (1 + _CLOSE):
            return False
        tried = solution.duals
        values, rent = tried[:-1] @ self._parts, float(tried[-1])
        value_bounds = self._knapsacks.value_bounds(values)
        paid = np.divide(
            value_bounds.most + rent, self._problem.price,
            out=np.full_like(value_bounds.most, np.inf), where=self._problem.price > 0,
        )  # fmt: skip
        paid[value_bounds.most + rent <= 0] = 0.0
        highest = float(paid.max(initial=0.0))
        if not 0 < highest < np.inf:
            return False
        bound = float(tried @ self._demand) / highest
        self.bound = max(self.bound, bound)
        contents: list[FloatCounts] = []
        prices: list[float] = []
        for shape in np.argsort(-paid, kind="stable")[:_COLUMNS_PER_ROUND].tolist():
            content = value_bounds.content(shape) if paid[shape] > 1 + _GAIN else None
            if content is not None:
                contents.append(content)
                prices.append(float(self._problem.price[shape]))
        if contents:
            self._add(np.stack(contents, axis=1), np.array(prices))
        return bool(contents)


def _parts(request: Amounts) -> Floats:
    """Return what worths are made of, by K: lines for each distinct amount and each resource."""
    lines: list[Floats] = []
    for line in request:
        amounts = sorted(set(line[line > 0].tolist()))
        lines += [(line == amount).astype(np.float64) for amount in amounts]
        lines.append(line / max(float(line.mean()), 1.0))
    return np.stack(lines)
