"""Solves linear covering programs with HiGHS.

The only module that uses the LP library: guidance and patterns both state their problem as

    minimise costs · x   subject to   coefficients · x ≥ demand,   0 ≤ x ≤ upper

Rows are scaled to their largest coefficient (memory in bytes and CPU in milli-units would otherwise
lie nine powers of ten apart), costs to their mean. One thread, a fixed seed and a limit of
iterations: the same program gives the same answer, and none runs away.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, final

import numpy as np

if TYPE_CHECKING:
    from highspy import Highs

    from karpenter_core.scheduling.arrays import FloatCounts, Floats, Prices, UnitValues


__all__ = ["CoveringProgram", "CoveringSolution", "safe_bound"]

_SEED: Final = 0
_MAX_ITERATIONS: Final = 20_000
"""Enough for programs a hundred times larger than ours; a cycling one is given up after that."""

_ROUNDING: Final = 1e-9
"""The share by which a bound is lowered, so that rounding never lifts it above the true bound."""

_OPTIONS: Final[tuple[tuple[str, bool | int | str], ...]] = (
    ("threads", 1),
    ("parallel", "off"),
    ("random_seed", _SEED),
    ("solver", "simplex"),
    ("presolve", "off"),  # measured: costs more than it saves below a few thousand columns
    ("simplex_iteration_limit", _MAX_ITERATIONS),
)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoveringSolution:
    """An optimum of a program of M rows and N columns."""

    amounts: FloatCounts
    """N: how much of each column."""
    duals: UnitValues
    """M: what one more unit of each row would cost."""
    cost: float
    iterations: int
    """Steps of the simplex method; each costs as much as there are columns."""


@cache
def _silent_highs() -> type[Highs]:
    """Return the class of programs, made at first use: a controller without work goes without the library.

    HiGHS 1.16 prints its version as soon as callbacks are registered, which its constructor does. The
    two lines would stand before the documents that commands write to standard output.
    """
    from highspy import Highs

    class SilentHighs(Highs):
        """A program of HiGHS that prints nothing, also while it is made."""

        def enableCallbacks(self) -> None:  # noqa: N802 - the name in HiGHS
            """Turn the output off; no callback is used, so none is registered."""
            self.silent()

    return SilentHighs


@final
class CoveringProgram:
    """A program that is kept between solves, so that more columns or new costs start warm."""

    def __init__(self, coefficients: Floats, demand: Floats, costs: Prices, upper: Floats) -> None:
        """Take the first columns: `coefficients` are M x N, `demand` M, `costs` and `upper` N.

        Amounts may be in any unit; `upper` is inf where there is no bound.
        """
        self._row_scale: Final = _scale(coefficients, demand)
        mean = float(costs.mean()) if len(costs) else 0.0
        self._cost_scale: Final = mean if mean > 0 else 1.0
        self._demand: Final = demand / self._row_scale
        self._highs: Final = _silent_highs()()
        self._columns = 0
        for name, value in _OPTIONS:
            self._highs.setOptionValue(name, value)
        rows = len(demand)
        none = np.zeros(0, dtype=np.int32)
        self._highs.addRows(
            rows,
            self._demand,
            np.full(rows, np.inf),
            0,
            np.zeros(rows, dtype=np.int32),
            none,
            np.zeros(0),
        )
        self.add(coefficients, costs, upper)

    def add(self, coefficients: Floats, costs: Prices, upper: Floats) -> None:
        """Add columns."""
        scaled = (coefficients / self._row_scale[:, None]).T
        columns, rows = np.nonzero(scaled)
        starts = np.searchsorted(columns, np.arange(len(costs)))
        self._highs.addCols(
            len(costs),
            costs / self._cost_scale,
            np.zeros(len(costs)),
            upper,
            len(rows),
            starts.astype(np.int32),
            rows.astype(np.int32),
            scaled[columns, rows],
        )
        self._columns += len(costs)

    def reprice(self, costs: Prices) -> None:
        """Give every column a new cost."""
        self._highs.changeColsCost(
            self._columns, np.arange(self._columns, dtype=np.int32), costs / self._cost_scale
        )

    def solve(self) -> CoveringSolution | None:
        """Solve; None when there is no solution, or none was found within the limit."""
        from highspy import HighsModelStatus

        highs = self._highs
        highs.run()
        if highs.getModelStatus() != HighsModelStatus.kOptimal:
            return None
        solution = highs.getSolution()
        amounts = np.maximum(np.array(solution.col_value, dtype=np.float64), 0.0)
        duals = np.maximum(np.array(solution.row_dual, dtype=np.float64), 0.0)
        return CoveringSolution(
            amounts=amounts,
            duals=duals * self._cost_scale / self._row_scale,
            cost=highs.getObjectiveValue() * self._cost_scale,
            iterations=max(int(highs.getInfo().simplex_iteration_count), 0),
        )


def _scale(coefficients: Floats, demand: Floats) -> Floats:
    largest = coefficients.max(axis=1, initial=0.0)
    scale = np.where(largest > 0, largest, np.maximum(np.abs(demand), 1.0))
    return np.asarray(scale, dtype=np.float64)


def safe_bound(
    coefficients: Floats, demand: Floats, costs: Prices, upper: Floats, duals: UnitValues
) -> float:
    """Return a lower bound on the cost of any cover that holds whatever the solver's tolerances.

    Any duals ≥ 0 under which no column is worth more than it costs prove a bound; those of the
    solver may miss that by its tolerance and are shrunk until they do. A column with an upper
    bound may be worth more: the surplus is taken off for as many as there are.
    """
    dual_values = duals @ coefficients
    free = np.isinf(upper)
    over = free & (dual_values > costs + 1e-12 * max(float(costs.max(initial=0.0)), 1e-12))
    shrink = float((costs[over] / dual_values[over]).min(initial=1.0))
    surplus = np.maximum(shrink * dual_values - costs, 0.0)[~free]
    bound = shrink * float(duals @ demand) - float(surplus @ upper[~free])
    return max(bound, 0.0) * (1.0 - _ROUNDING)
