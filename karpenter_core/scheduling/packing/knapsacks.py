"""Bounds the value of the best content of a node, for all shapes at once.

Pods of each size have a worth; a content is worth the sum of its pods. Two answers, both never too
low, of which the smaller counts:

* *Fractions*: if pods were divisible. By duality that is the lowest price of the room over all
  prices of the two resources at which no pod is worth more than what it asks for. The prices that
  matter are corners: of them there are few. Nearly exact where many pods share a node.
* *Whole pods*: a table of the best content for every room (the knapsack recursion of Gilmore and
  Gomory, 1966), for shapes so small that it matters. Requests and rooms are rounded down to units,
  so whatever fits in truth fits in the table too. As many pods of each size as fit may be taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.scheduling.arrays import Amounts, FloatCounts, Mask, UnitValues


__all__ = ["KnapsackSolver", "KnapsackValues"]

_MAX_ROWS: Final = 80
_MAX_CELLS: Final = 512
"""Units of the first and the second resource in the table: five milliseconds for thirty sizes."""

_SURELY: Final = 1e-9
"""Relative: prices are raised by that, so that rounding lets no pod be worth more than it pays."""

_TIGHT: Final = 1e-7
"""A size that pays that much more than it is worth, relatively, may be in a best content."""


@final
class KnapsackSolver:
    """Shapes and sizes of pods in two resources; which is which decides over speed only."""

    def __init__(self, request: Amounts, capacity: Amounts) -> None:
        """Take 2 x K requests, all but zero in some resource, and 2 x S rooms."""
        units = np.maximum(np.gcd.reduce(request, axis=1), 1)
        capacities = [np.sort(np.array(list(set(line.tolist())))) for line in capacity]
        cells = [
            line[min(1, len(line) - 1)] / unit for line, unit in zip(capacities, units, strict=True)
        ]
        first = int(cells[1] < cells[0])
        self._lines: Final = (first, 1 - first)
        top = capacities[first][min(1, len(capacities[first]) - 1)]
        row_unit = max(int(units[first]), -(-int(top) // _MAX_ROWS))
        rows = capacity[first] // row_unit
        self._in_table: Final[Mask] = rows <= _MAX_ROWS
        widest = int(capacity[1 - first][self._in_table].max(initial=0))
        cell_unit = int(units[1 - first])
        while widest // cell_unit > _MAX_CELLS:
            cell_unit *= 2
        self._request: Final = request.astype(np.float64)
        self._capacity: Final = capacity.astype(np.float64)
        self._size: Final = (request[first] // row_unit, request[1 - first] // cell_unit)
        self._place: Final = (rows, capacity[1 - first] // cell_unit)
        self._shape: Final = (int(rows[self._in_table].max(initial=0)), widest // cell_unit)
        pairs = np.triu_indices(request.shape[1], 1)
        determinant = (
            self._request[0, pairs[0]] * self._request[1, pairs[1]]
            - self._request[1, pairs[0]] * self._request[0, pairs[1]]
        )
        regular = determinant != 0
        self._pairs: Final = (pairs[0][regular], pairs[1][regular])
        self._determinant: Final = determinant[regular]

    @property
    def is_exact_for(self) -> Mask:
        """K: sizes that take room in the table; others could be taken without end."""
        return (self._size[0] > 0) | (self._size[1] > 0)

    def value_bounds(self, values: UnitValues) -> KnapsackValues:
        """Judge every shape; `values` are K worths, none below zero."""
        prices = self._corners(values)
        paid = prices @ self._capacity
        table = self._table(values)
        most = paid.min(axis=0)
        places = tuple(place[self._in_table] for place in self._place)
        most[self._in_table] = np.minimum(most[self._in_table], table[places])
        return KnapsackValues(self, values, most, prices[paid.argmin(axis=0)], table)

    def _corners(self, values: UnitValues) -> UnitValues:
        """Return the prices of the resources at which every pod pays what it is worth, P x 2."""
        each = np.divide(
            values, self._request, out=np.full_like(self._request, np.inf), where=self._request > 0
        )
        each[:, values <= 0] = 0.0
        one = np.where(np.isfinite(each), each, 0.0).max(axis=1)
        alone = np.diag(each.max(axis=1, initial=0.0))
        alone = alone[np.isfinite(alone).all(axis=1)]
        first, second = self._pairs
        request = self._request
        pair = np.stack(
            (
                values[first] * request[1, second] - values[second] * request[1, first],
                values[second] * request[0, first] - values[first] * request[0, second],
            ),
            axis=1,
        ) / self._determinant[:, None]  # fmt: skip
        good = np.flatnonzero((pair >= 0).all(axis=1))
        pays = (pair[good] @ request >= values * (1 - _SURELY)).all(axis=1)
        good = good[pays]
        return np.concatenate((one[None], alone, pair[good])) * (1 + 2 * _SURELY)

    def _table(self, values: UnitValues) -> UnitValues:
        """Return the best worth for every room, in units: rows x cells of the table."""
        rows, cells = self._shape
        table = np.zeros((rows + 1, cells + 1))
        sizes = [
            (int(self._size[0][k]), int(self._size[1][k]), float(values[k]))
            for k in self._undominated(values)
        ]
        sizes = [size for size in sizes if size[0] <= rows and size[1] <= cells]
        thin = [size for size in sizes if not size[0]]
        thick = [size for size in sizes if size[0]]
        for number in range(rows + 1):
            row = table[number]
            if number:
                row[:] = table[number - 1]
            for height, width, value in thick:
                if height <= number:
                    source = table[number - height, : cells + 1 - width]
                    np.maximum(row[width:], source + value, out=row[width:])
            for _, width, value in thin:
                _repeat(row, width, value)
        return table

    def _undominated(self, values: UnitValues) -> Iterable[int]:
        """Return the sizes that no other beats in room and worth; of equals the first."""
        down, across = self._size
        as_good = (
            (down[:, None] <= down) & (across[:, None] <= across) & (values[:, None] >= values)
        )
        np.fill_diagonal(as_good, val=False)
        equal = as_good & as_good.T
        beaten = (as_good & ~equal).any(axis=0) | np.triu(equal, 1).any(axis=0)
        return np.flatnonzero(~beaten & (values > 0) & self.is_exact_for).tolist()

    def fractions(self, values: UnitValues, prices: UnitValues, shape: int) -> FloatCounts | None:
        """Return a best content (K) of divisible pods, given the prices of a shape's room (2).

        Only sizes that are worth what they pay are in it: the two nearest to the room in how much
        they ask of one resource for the other, or the one.
        """
        capacity, request = self._capacity[:, shape], self._request
        tight = np.flatnonzero((values > 0) & (values >= prices @ request * (1 - _TIGHT)))
        slant = request[0, tight] * capacity[1] - request[1, tight] * capacity[0]
        distance = np.abs(slant)
        basis = [
            int(tight[side][distance[side].argmin()])
            for side in (slant >= 0, slant < 0)
            if side.any()
        ]
        content = np.zeros(len(values))
        if len(basis) > 1:
            content[basis] = np.maximum(np.linalg.solve(request[:, basis], capacity), 0.0)
        elif basis:
            limits = request[:, basis[0]]
            content[basis] = (capacity[limits > 0] / limits[limits > 0]).min()
        return content if content.any() else None

    def whole(self, values: UnitValues, table: UnitValues, shape: int) -> FloatCounts | None:
        """Return a best content (K) of the table; None for a shape that is not in it."""
        if not self._in_table[shape]:
            return None
        content = np.zeros(len(values))
        row, cell = int(self._place[0][shape]), int(self._place[1][shape])
        sizes = np.flatnonzero((values > 0) & self.is_exact_for)
        down, across, size_values = self._size[0][sizes], self._size[1][sizes], values[sizes]
        while table[row, cell] > 0:
            enough = table[row, cell] * (1 - _SURELY)
            fits = (down <= row) & (across <= cell)
            rest = table[row - down[fits], cell - across[fits]] + size_values[fits]
            best = int(rest.argmax()) if len(rest) else -1
            if best >= 0 and rest[best] >= enough:
                chosen = int(np.flatnonzero(fits)[best])
                content[sizes[chosen]] += 1
                row, cell = row - int(down[chosen]), cell - int(across[chosen])
            elif row and table[row - 1, cell] >= enough:
                row -= 1
            else:
                cell -= 1
        return content


@final
class KnapsackValues:
    """The highest value of a content of each shape, and contents that (nearly) have it."""

    def __init__(
        self,
        knapsacks: KnapsackSolver,
        values: UnitValues,
        most: UnitValues,
        prices: UnitValues,
        table: UnitValues,
    ) -> None:
        self.most: Final = most
        """S: what the best content is worth at most."""
        self._knapsacks: Final = knapsacks
        self._values: Final = values
        self._prices: Final = prices
        self._table: Final = table

    def content(self, shape: int) -> FloatCounts | None:
        """Return a content of a shape, of whole pods where the table contains it; None: not known.

        It may lack a little room in truth, as the bounds do.
        """
        whole = self._knapsacks.whole(self._values, self._table, shape)
        if whole is not None:
            return whole
        return self._knapsacks.fractions(self._values, self._prices[shape], shape)


def _repeat(row: UnitValues, width: int, value: float) -> None:
    """Let a size that takes nothing of the first resource be taken any number of times."""
    times = 1
    while width * times < len(row):
        np.maximum(
            row[width * times :], row[: -width * times] + value * times, out=row[width * times :]
        )
        times *= 2
