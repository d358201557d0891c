"""Makes several plans of one problem and takes the best.

First-fit comes first: it is the baseline, and the result when no other plan is better. Then come
plans that buy capacity where it is cheapest, the most promising first:

* *grown* opens a node, or makes one larger, when the class at hand needs it, and buys patterns for
  pods that mix freely.
* *mixed* opens what the guidance LP would buy before anything is placed, and fills it. Better where
  pods need nodes of their own (all others will share these) and zones differ in price: where they
  stand has to be decided for all pods together.

The second of these, and further ones, are made while work units remain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from karpenter_core.scheduling.compiled.topology import TopologyKind
from karpenter_core.scheduling.placement.engine import PlacementEngine
from karpenter_core.scheduling.placement.free_group_placement import free_groups
from karpenter_core.scheduling.placement.plan_profile import PlanProfile, RowMeasure
from karpenter_core.scheduling.portfolio.cost_bound import find_cost_bound
from karpenter_core.scheduling.portfolio.finished_plan import finish_steps
from karpenter_core.scheduling.portfolio.purchase_mix import find_purchase_mix
from karpenter_core.scheduling.problem import PackingPolicy

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from karpenter_core.scheduling.arrays import UnitValues
    from karpenter_core.scheduling.compiled.problem import CompiledProblem
    from karpenter_core.scheduling.placement.engine import HaltRequest
    from karpenter_core.scheduling.placement.topology_counts import ClassTopology
    from karpenter_core.scheduling.portfolio.finished_plan import FinishedPlan
    from karpenter_core.scheduling.portfolio.purchase_mix import PurchaseMix

__all__ = ["FIRST_FIT", "PlanPortfolio", "constraint_tier", "first_fit_steps", "portfolio_steps"]

FIRST_FIT: Final = PlanProfile(measure=RowMeasure.NONE, fullest_first=False, late=True)
"""The profile of the plan that is always made first."""

_CAUTIOUS_SHARE: Final = 0.9
"""The share of the LP's mix that a third plan opens at once; it opens the rest as needed."""

_GOOD_ENOUGH: Final = 1.01
"""The ratio to the lower bound up to which no other plan is computed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanPortfolio:
    """The best plan, the first-fit plan, and a lower bound of the cost (None: unknown)."""

    best: FinishedPlan
    first_fit: FinishedPlan
    lower_bound: float | None = None


def portfolio_steps(
    compiled: CompiledProblem, halt: HaltRequest | None = None, *, reported: bool = True
) -> Generator[int, None, PlanPortfolio]:
    """Make the plans of a compiled problem; yields the units of work that each step took.

    The bound is computed only if it is `reported`; without it, no plan is known to be good enough.
    """
    first_fit = yield from first_fit_steps(compiled, halt)
    if first_fit.engine.nodes.count == len(compiled.nodes) or first_fit.engine.unreached:
        return PlanPortfolio(best=first_fit, first_fit=first_fit)
    bound = find_cost_bound(compiled, first_fit.engine) if reported else None
    lower_bound = None if bound is None else bound.cost_per_hour
    yield 5
    best = first_fit
    if compiled.options.packing is PackingPolicy.VALUE:
        best = yield from _best_steps(compiled, first_fit, lower_bound, halt)
        if bound is not None:
            lower_bound = yield from bound.closer_steps(best.engine.nodes)
    return PlanPortfolio(best=best, first_fit=first_fit, lower_bound=lower_bound)


def first_fit_steps(
    compiled: CompiledProblem, halt: HaltRequest | None = None
) -> Generator[int, None, FinishedPlan]:
    """Make the first-fit plan of a compiled problem."""
    return (yield from _plan_steps(compiled, FIRST_FIT, halt))


def _best_steps(
    compiled: CompiledProblem,
    first_fit: FinishedPlan,
    bound: float | None,
    halt: HaltRequest | None,
) -> Generator[int, None, FinishedPlan]:
    mix = find_purchase_mix(compiled, first_fit.engine)
    yield 5
    best, budget, needed = first_fit, compiled.options.work_units, 0
    for profile in _profiles(compiled, mix):
        if needed > budget:
            break
        candidate, units = yield from _counted(_plan_steps(compiled, profile, halt))
        if candidate.engine.unreached:
            break
        budget, needed = budget - needed, units
        if candidate.is_no_worse_than(first_fit):
            # First-fit leaves zones open, and pods for the next pass that need not wait.
            best = min(best, candidate, key=lambda plan: (plan.score, plan is first_fit))
        if bound is not None and not best.left and best.cost_per_hour <= bound * _GOOD_ENOUGH:
            break
    return best


def _plan_steps(
    compiled: CompiledProblem, profile: PlanProfile, halt: HaltRequest | None
) -> Generator[int, None, FinishedPlan]:
    engine = PlacementEngine(compiled, profile, halt)
    yield from engine.steps()
    return (yield from finish_steps(engine))


def _counted(
    steps: Generator[int, None, FinishedPlan],
) -> Generator[int, None, tuple[FinishedPlan, int]]:
    """Pass work on, and return how much it was in all."""
    total = 0
    while True:
        try:
            units = next(steps)
        except StopIteration as end:
            return end.value, total
        total += units
        yield units


def _profiles(compiled: CompiledProblem, mix: PurchaseMix | None) -> Iterator[PlanProfile]:
    """Yield the value plans to make, from the one that promises most."""
    weights = None if mix is None else mix.weights
    class_values = (
        np.zeros(len(compiled.classes)) if weights is None else weights @ compiled.requests
    )
    order = _constrained_first(compiled, class_values)
    grown = PlanProfile(
        measure=RowMeasure.PODS if mix is None else RowMeasure.DEMAND,
        fullest_first=True,
        order=order,
        weights=weights,
        free_groups=free_groups(compiled, order),
    )
    if mix is None:
        yield grown
        return
    shares = (1.0, 0.0, _CAUTIOUS_SHARE)
    if not (mix.requires_nodes and mix.is_zonal):
        shares = (0.0, 1.0, _CAUTIOUS_SHARE)
    made: set[tuple[object, ...]] = set()
    for share in shares:
        openings = mix.openings(share) if share else ()
        what = tuple((one.pool, one.row, one.signature, one.count) for one in openings)
        if what not in made:  # a share of few nodes, rounded down, often equals another one
            made.add(what)
            yield replace(grown, mix=openings)


def constraint_tier(relaxation_steps: Iterable[ClassTopology]) -> int:
    """Return when a class is placed: those that force nodes are 0, the free ones 3.

    Whatever is free can follow anything; what is bound, to domains or to nodes, cannot.
    """
    for topology in relaxation_steps:
        if any(
            g.kind is not TopologyKind.AFFINITY and g.index in topology.grows for g in topology.host
        ):
            return 0
        if topology.zonal:
            return 1
        if topology.host:
            return 2
    return 3


def _constrained_first(compiled: CompiledProblem, class_values: UnitValues) -> tuple[int, ...]:
    """Order classes by their tiers; among equals the costliest (`class_values`) first."""

    def key(index: int) -> tuple[bool, int, float]:
        return (
            compiled.classes[index].shape.gives_way,
            constraint_tier(compiled.topologies[index]),
            -round(float(class_values[index]), 15),
        )

    return tuple(sorted(range(len(compiled.classes)), key=key))
