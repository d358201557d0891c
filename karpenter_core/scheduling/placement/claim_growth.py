"""Enlarges planned claims where that is cheaper than adding one.

When a class finds no free capacity, the next larger row for a planned claim is often cheaper than
one more claim: most of all where pods that avoid each other need so many nodes that these are
small. Both are compared by price for the value of the capacity gained.

A claim keeps its signature: its charge against limits and its possible domains do not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.scheduling.arrays import Amounts, Columns, Counts, Mask, Prices
    from karpenter_core.scheduling.compiled.problem import PlacementTask
    from karpenter_core.scheduling.placement.plan_state import PlanState

__all__ = ["ClaimGrower", "ClaimGrowth"]

_FEW: Final = 3
"""Steps that are tried for a class; the next ones are hardly cheaper than a new claim."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClaimGrowth:
    """Claims to measure by another of their rows, those that then hold most pods first."""

    columns: Columns
    fit_counts: Counts
    """columns: how many pods of the class at hand each takes then."""
    row: int
    limit: Amounts
    """resources: the capacity of that row."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _GrowthOptions:
    """The S larger shapes for claims of one signature and row, in R resources."""

    gained: Amounts
    """R x S: capacity beyond that of the row."""
    extra: Prices
    """S: the rise of the price."""
    costs_more: Mask
    """S: whether it is a step at all."""


@final
class ClaimGrower:
    """Finds the claims to enlarge for one plan."""

    def __init__(self, state: PlanState) -> None:
        self._state: Final = state
        self._markets: Final = dict[tuple[int, int], _GrowthOptions]()

    def find(
        self,
        task: PlacementTask,
        able: Columns,
        numbers: Columns,
        caps: Counts | None,
        most: float,
    ) -> ClaimGrowth | None:
        """Return what to enlarge for pods that `able` claims may take, for less than `most`.

        `able` are planned claims that are measured by a row, `numbers` their signatures with the
        pods; `caps` are for all open nodes.
        """
        nodes, signatures = self._state.nodes, self._state.compiled.signatures
        rows = nodes.row[able]
        kinds = list(dict.fromkeys(zip(numbers.tolist(), rows.tolist(), strict=True)))
        for _, kind, shape in self._steps(task, kinds, most)[:_FEW]:
            signature, row = kinds[kind]
            columns = able[(numbers == signature) & (rows == row)]
            shapes = signatures.claim(signature).instance_shapes
            limit = shapes.capacity[:, shape]
            spare = limit[:, None] - nodes.used[:, columns]
            requested = task.request[task.lines, None]
            fit_counts = np.minimum.reduce(spare[task.lines] // requested)
            fit_counts[(spare < 0).any(axis=0)] = 0
            if caps is not None:
                np.minimum(fit_counts, caps[columns], out=fit_counts)
            if task.node_constraints.host_ports:
                np.minimum(fit_counts, 1, out=fit_counts)
            order = np.argsort(-fit_counts, kind="stable")[: int(np.count_nonzero(fit_counts > 0))]
            if len(order):
                measured_by = int(signatures.claim(signature).rows[shapes.row[shape]])
                return ClaimGrowth(
                    columns=columns[order],
                    fit_counts=fit_counts[order],
                    row=measured_by,
                    limit=limit,
                )
        return None

    def _steps(
        self, task: PlacementTask, kinds: Sequence[tuple[int, int]], most: float
    ) -> list[tuple[float, int, int]]:
        """Return score, kind and new shape of the steps below `most`, the best first.

        Kinds (signature, row) are in the order of their first claims, which decides between equals:
        the numbers of signatures depend on what was asked before.
        """
        weights = self._state.weights
        rest = np.maximum(self._state.remaining_demand(), task.request)[:, None]
        steps: list[tuple[float, int, int]] = []
        for kind, (signature, row) in enumerate(kinds):
            market = self._market(signature, row)
            gained_value = weights @ np.minimum(market.gained, rest)
            good = ((gained_value > 0) & market.costs_more).nonzero()[0]
            if not len(good):
                continue
            scores = market.extra[good] / gained_value[good]
            cheap = scores < most
            steps += [
                (score, kind, shape)
                for score, shape in zip(scores[cheap].tolist(), good[cheap].tolist(), strict=True)
            ]
        return sorted(steps)

    def _market(self, signature: int, row: int) -> _GrowthOptions:
        growth_options = self._markets.get((signature, row))
        if growth_options is None:
            claim = self._state.compiled.signatures.claim(signature)
            shapes = claim.instance_shapes
            place = np.flatnonzero(claim.rows == row)
            room = claim.free[:, place]
            extra = np.zeros_like(shapes.robust_price)
            if len(place) and not claim.has_min_values and not claim.pool.reservations:
                now = shapes.robust_price[(shapes.capacity >= room).all(axis=0)].min()
                extra = shapes.robust_price - now
            gained = shapes.capacity - (room if len(place) else shapes.capacity)
            growth_options = _GrowthOptions(gained=gained, extra=extra, costs_more=extra > 0)
            self._markets[signature, row] = growth_options
        return growth_options
