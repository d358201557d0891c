"""Solves the guidance LP: a lower cost bound, and the value of resources.

A linear program over shapes (capacities at their price in one zone): buy fractions of nodes so that
their capacity covers the demand. It treats pods as divisible, so

* its cost is a lower bound, to be printed beside every plan;
* its duals say what a milli-CPU, a byte or a pod slot is worth: the weights for choosing shapes and
  for filling nodes;
* its mix says which few shapes to open, and how many of each.

Some of the demand may be satisfied by some of the shapes only (a zone's share of a spread, an
architecture, on-demand pods): each such *share* is a line of `usable`, `demand` and `nodes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from karpenter_core.scheduling.packing.covering import CoveringProgram, safe_bound

if TYPE_CHECKING:
    from karpenter_core.scheduling.arrays import (
        Amounts,
        Counts,
        FloatCounts,
        Floats,
        Mask,
        Prices,
        UnitValues,
    )


__all__ = ["Guidance", "GuidanceProblem", "solve_guidance"]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GuidanceProblem:
    """Shapes that can be bought and what they must hold: S shapes, R resources, G shares."""

    capacity: Amounts
    """R x S: what pods may use on one node of each shape. Negative counts as nothing."""
    price: Prices
    """S: per hour, without fee, finite."""
    supply: FloatCounts
    """S: how many can be bought at most (reserved capacity); inf where there is no bound."""
    usable: Mask
    """G x S: the shapes that may serve each share. The first is usually everything on all."""
    demand: Amounts
    """G x R: what the share's shapes must hold together, other pods on them not counted."""
    load: Amounts
    """G x R: what each node carries beside the share, on average (pods that go on every node)."""
    nodes: Counts
    """G: how many nodes of the share's shapes there must be at least (pods that avoid each other);
    0 for no such rule."""
    fee_per_hour: float
    """Added to every node's price, so that one large node is preferred to many small ones."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Guidance:
    """The fractional optimum."""

    counts: FloatCounts
    """S: how many nodes of each shape; at most as many differ from 0 as there are rules."""
    duals: UnitValues
    """G x R: what one more unit of a resource costs per hour in each share."""
    node_duals: UnitValues
    """G: what one more required node costs per hour."""
    unit_price: UnitValues
    """R: what a unit of each resource is worth on the nodes of the mix, all shares counted."""
    cost_bound: float
    """No plan costs less per hour (fees not counted); proven, whatever the solver's tolerance, as far
    as the problem asks for nothing that a plan could do without (loads are averages)."""


def solve_guidance(problem: GuidanceProblem, *, bounded: bool = True) -> Guidance | None:
    """Solve; None when the shapes cannot hold the demand or the LP library gives no optimum.

    Without fees a bound needs a program of its own: who does not ask for it (not `bounded`) gets 0.
    The answer does not depend on the order of shapes, even where several mixes are equally good.
    """
    shapes = np.lexsort([*problem.usable, *problem.capacity, problem.supply, problem.price])
    usable, capacity = problem.usable[:, shapes], np.maximum(problem.capacity[:, shapes], 0)
    price, upper = problem.price[shapes], problem.supply[shapes]
    coefficients, demand, is_used = _rows(problem, usable, capacity)
    costs = price + problem.fee_per_hour
    program = CoveringProgram(coefficients, demand, costs, upper)
    solution = program.solve()
    if solution is None:
        return None
    unpriced = solution
    if problem.fee_per_hour and bounded:
        program.reprice(price)
        unpriced = program.solve()
        if unpriced is None:
            return None
    lines = np.zeros(len(is_used))
    lines[is_used] = solution.duals
    duals = lines.reshape(len(usable), -1)
    counts = np.empty_like(solution.amounts)
    counts[shapes] = solution.amounts
    return Guidance(
        counts=counts,
        duals=duals[:, :-1],
        node_duals=duals[:, -1],
        unit_price=_unit_price(capacity, usable, solution.amounts, duals[:, :-1]),
        cost_bound=safe_bound(coefficients, demand, price, upper, unpriced.duals)
        if bounded
        else 0.0,
    )


def _rows(problem: GuidanceProblem, usable: Mask, capacity: Amounts) -> tuple[Floats, Floats, Mask]:
    """Return the rules that ask for something: a line per share and resource, then its nodes.

    They are the coefficients (rules x S), what each asks for, and which of all G x (R + 1) they are.
    """
    remaining_capacity = np.maximum(capacity[None, :, :] - problem.load[:, :, None], 0).astype(
        np.float64
    )
    one = np.ones((len(usable), 1, capacity.shape[1]))
    per_node = np.concatenate((remaining_capacity, one), axis=1)
    demand_rows = np.concatenate((problem.demand, problem.nodes[:, None]), axis=1)
    demand_rows = demand_rows.astype(np.float64).ravel()
    is_used = demand_rows > 0
    table = (usable[:, None, :] * per_node).reshape(len(demand_rows), -1)
    return table[is_used], demand_rows[is_used], is_used


def _unit_price(
    capacity: Amounts, usable: Mask, counts: FloatCounts, duals: UnitValues
) -> UnitValues:
    """Weigh the duals of all shares by where the mix has its capacity: R."""
    bought = capacity * counts
    total = bought.sum(axis=1)
    dual_values = (bought * (usable.T @ duals).T).sum(axis=1)
    return np.divide(dual_values, total, out=np.zeros_like(dual_values), where=total > 0)
