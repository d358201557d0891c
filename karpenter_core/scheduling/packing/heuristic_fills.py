"""Fills one node of every shape with the most valuable pods, by heuristics.

Used to find patterns: given what a pod of each size is worth (duals of the master program), which
content of one node is worth more than the node costs? No single rule finds the good ones (one alone
ends 5 to 10 % above the optimum), so there are two:

* `ordered` takes sizes by worth per weighted share of the node, under several weightings of the
  resources. Cheap, finds lopsided contents.
* `balanced` takes, step by step, the size with the most worth per share of what is scarcest on the
  node just then. Dearer, finds contents that use a node up in every resource.

Amounts are float64 that hold whole numbers (below 2**51). Room is kept with half a unit more: that
changes no answer, but no division can land on the wrong side of a whole number, or be by nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Generator

    from karpenter_core.scheduling.arrays import (
        Columns,
        FloatAmounts,
        FloatCounts,
        Floats,
        UnitValues,
    )


__all__ = ["HeuristicFills", "work_units"]

_MIXES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The shares of the weight that the first of the two most important resources gets."""

_OTHERS: Final = 0.02
"""The weight of every resource beside them."""

_NOTHING: Final = 1e-9
"""Stands for a request of nothing where something is divided by it."""

_ELEMENTS_PER_UNIT: Final = 50_000
_ELEMENTS_PER_CALL: Final = 600
_LOOPS_PER_STEP: Final = 50
"""After so many turns of a loop the thread is handed back."""


def work_units(calls: int, elements: int) -> int:
    """Return the work units (a tenth of a millisecond, about) of some array functions.

    By the number of elements they work on, and what calling them costs at all.
    """
    return 1 + (calls * _ELEMENTS_PER_CALL + elements) // _ELEMENTS_PER_UNIT


@final
class HeuristicFills:
    """The sizes (K) and shapes (S) of one problem, in R resources."""

    def __init__(self, request: FloatAmounts, capacity: FloatAmounts, demand: FloatAmounts) -> None:
        """`request` is R x K, `capacity` R x S, `demand` R: which resources matter most."""
        self.sizes: Final = request.shape[1]
        self.shapes: Final = capacity.shape[1]
        self._lines: Final = tuple(np.flatnonzero(request.any(axis=1)).tolist()) or (0,)
        self._request: Final = request
        self._divisor: Final = np.where(request > 0, request, _NOTHING)
        self._capacity: Final = capacity + 0.5
        self._share: Final = np.stack(
            [request[line][None, :] / self._capacity[line][:, None] for line in self._lines]
        )
        """Line x S x K: the part of a node that one pod takes."""
        self._weights: Final = self._weightings(demand)
        self.most: Final = self._fitting(
            np.arange(self.sizes, dtype=np.intp)[:, None], list(self._capacity[:, None, :])
        )
        """K x S: how many pods of each size alone fit on a node of each shape."""

    def _weightings(self, demand: FloatAmounts) -> Floats:
        """Return weights, mix x line: mixes of the two resources in shortest supply."""
        lines = np.array(self._lines, dtype=np.intp)
        needed = demand[lines] / self._capacity[lines].max(axis=1)
        first, *second = np.argsort(-needed, kind="stable")[:2]
        weights = np.full((len(_MIXES), len(lines)), _OTHERS)
        for mix, weight in zip(_MIXES, weights, strict=True):
            weight[first] += mix
            weight[second] += 1.0 - mix
        return weights

    def _fitting(self, sizes: Columns, free: list[FloatAmounts]) -> FloatCounts:
        """Return how many pods of some sizes (n) still fit into what is free (n, by line)."""
        lines = iter(self._lines)
        line = next(lines)
        fit = free[line] / self._divisor[line][sizes]
        for line in lines:
            np.minimum(fit, free[line] / self._divisor[line][sizes], out=fit)
        return np.floor(fit, out=fit)

    def ordered(
        self, worth: UnitValues, left: FloatCounts
    ) -> Generator[int, None, tuple[FloatCounts, Columns]]:
        """Return contents, K x n, and the shape of each: every shape under every weighting.

        `worth` per pod and pods `left` by size: K.
        """
        wanted = np.flatnonzero((worth > 0) & (left > 0))
        weight_share = np.einsum("wl,lsk->wsk", self._weights, self._share[:, :, wanted])
        density = (worth[wanted] / np.maximum(weight_share, _NOTHING)).reshape(
            len(self._weights) * self.shapes, len(wanted)
        )
        order = wanted[np.argsort(-density, axis=1, kind="stable").T]
        count = len(density)
        shapes = np.arange(count, dtype=np.intp) % self.shapes
        free = [line[shapes] for line in self._capacity]
        content = np.zeros((count, self.sizes))
        every = np.arange(count)
        for turn, sizes in enumerate(order, start=1):
            placed = np.minimum(self._fitting(sizes, free), left[sizes])
            for line in self._lines:
                free[line] -= placed * self._request[line][sizes]
            content[every, sizes] = placed
            if turn % _LOOPS_PER_STEP == 0 or turn == len(order):
                yield work_units(12 * _LOOPS_PER_STEP, 12 * _LOOPS_PER_STEP * count)
        return content.T, shapes

    def balanced(
        self, worth: UnitValues, left: FloatCounts, shapes: Columns, *, step: float
    ) -> Generator[int, None, FloatCounts]:
        """Return contents, K x n, of some shapes.

        A turn takes the part `step` of what would still fit: less is finer, and slower.
        """
        wanted = np.flatnonzero((worth > 0) & (left > 0))
        numbers = np.arange(len(shapes) if len(wanted) else 0)
        content = np.zeros((len(shapes), self.sizes))
        waiting = np.tile(left[wanted], (len(shapes), 1))
        free = [line[shapes] for line in self._capacity]
        turn = elements = 0
        while len(numbers):
            turn += 1
            elements += 10 * len(numbers) * len(wanted)
            share = self._scarcest(wanted, free)
            score = np.where((share <= 1.0) & (waiting > 0), worth[wanted] / share, 0.0)
            place = score.argmax(axis=1)
            chosen = wanted[place]
            every = np.arange(len(numbers))
            fit = np.minimum(self._fitting(chosen, free), waiting[every, place])
            fit[score[every, place] <= 0] = 0.0
            placed = np.where(fit > 0, np.maximum(np.floor(fit * step), 1.0), 0.0)
            content[numbers, chosen] += placed
            waiting[every, place] -= placed
            for line in self._lines:
                free[line] -= placed * self._request[line][chosen]
            goes_on = placed > 0
            if not goes_on.all():
                numbers, waiting = numbers[goes_on], waiting[goes_on]
                free = [line[goes_on] for line in free]
            if turn % _LOOPS_PER_STEP == 0 or not len(numbers):
                yield work_units(30 * _LOOPS_PER_STEP, elements)
                elements = 0
        return content.T

    def _scarcest(self, sizes: Columns, free: list[FloatAmounts]) -> Floats:
        """Return, n x sizes, the largest part of anything left that one pod takes."""
        largest: Floats = np.full((len(free[0]), len(sizes)), _NOTHING)
        for line in self._lines:
            part = self._request[line][sizes] / free[line][:, None]
            np.maximum(largest, part, out=largest)
        return largest
