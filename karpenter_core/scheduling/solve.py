"""The one door to scheduling: a problem in, a plan out.

Pure and deterministic: the same problem gives the same plan in any process, whatever the order of
its pods, pools and nodes. Effort is counted in work units, never in time; `solve_steps` hands the
thread back at least every five milliseconds of work.

The default packing makes the first-fit plan and two plans that buy room where it is cheapest, and
keeps the best: fewest pods left, then lowest price with a small fee for each node. It is never
dearer than first-fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from karpenter_core.scheduling.catalogue import CatalogueCache
from karpenter_core.scheduling.compiled import compile_steps
from karpenter_core.scheduling.effective_zone import pending_pods_by_zone
from karpenter_core.scheduling.emit import emit_steps, finish_steps, place_steps
from karpenter_core.scheduling.engine import Engine
from karpenter_core.scheduling.explain import Explainer
from karpenter_core.scheduling.mix import find_mix, lower_bound
from karpenter_core.scheduling.opening import Measure, Profile
from karpenter_core.scheduling.problem import (
    Packing,
    PlanCost,
    SchedulingPlan,
    SolveOptions,
    Unschedulable,
)
from karpenter_core.scheduling.topology import Kind

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from karpenter_core.scheduling.compiled import CompiledProblem
    from karpenter_core.scheduling.emit import FinishedPlan, Placement
    from karpenter_core.scheduling.engine import Halt
    from karpenter_core.scheduling.mix import Mix
    from karpenter_core.scheduling.problem import Problem

__all__ = ["best_plan_steps", "first_fit_steps", "solve", "solve_steps"]

_FIRST_FIT: Final = Profile(measure=Measure.NONE, tight=False, late=True)


def solve(
    problem: Problem, options: SolveOptions | None = None, *, cache: CatalogueCache | None = None
) -> SchedulingPlan:
    """Say where every pod goes, or why it cannot go anywhere."""
    steps = solve_steps(problem, options, cache=cache)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            plan: SchedulingPlan = end.value
            return plan


def solve_steps(
    problem: Problem,
    options: SolveOptions | None = None,
    *,
    cache: CatalogueCache | None = None,
    halt: Halt | None = None,
) -> Generator[int, None, SchedulingPlan]:
    """Solve in small steps; yields the units of work that each took.

    A caller that has no more time requests a halt and goes on: it gets the best whole plan so far,
    or, while the first one is being made, what is placed by then, marked as partial. One that
    wants nothing any more drops the generator; nothing outside of it has changed (but `cache`,
    which holds nothing that depends on the pods).
    """
    options = options or SolveOptions()
    compiled = yield from compile_steps(problem, options, cache or CatalogueCache())
    pending_by_zone = pending_pods_by_zone(problem, compiled)
    yield 5
    best, first_fit, bound = yield from best_plan_steps(compiled, halt)
    placement = yield from place_steps(best)
    claims = yield from emit_steps(best, placement)
    unschedulable = yield from _unschedulable_steps(best, placement)
    return SchedulingPlan(
        claims=claims,
        existing={
            node.name: tuple(placement.pods[column])
            for column, node in enumerate(compiled.nodes)
            if column in placement.pods
        },
        unschedulable=unschedulable,
        sequence=tuple(placement.sequence),
        pending_by_zone=pending_by_zone,
        partial=bool(best.engine.unreached),
        cost=PlanCost(
            hourly=best.reported_cost(), lower_bound=bound, first_fit=first_fit.reported_cost()
        ),
    )


def best_plan_steps(
    compiled: CompiledProblem, halt: Halt | None = None
) -> Generator[int, None, tuple[FinishedPlan, FinishedPlan, float | None]]:
    """Make the plans of a compiled problem; return the best, first-fit, and the bound on costs."""
    first_fit = yield from first_fit_steps(compiled, halt)
    best, bound = first_fit, None
    partial = bool(first_fit.engine.unreached)
    if first_fit.engine.nodes.count > len(compiled.nodes) and not partial:
        mix = find_mix(compiled, first_fit.engine)
        yield 5
        bound = lower_bound(compiled, first_fit.engine)
        yield 5
        if compiled.options.packing is Packing.VALUE:
            for profile in _value_profiles(compiled, mix):
                candidate = yield from _plan_steps(compiled, profile, halt)
                if candidate.engine.unreached:
                    break
                if candidate.is_no_worse_than(first_fit):
                    best = min(best, candidate, key=lambda plan: plan.score)
    return best, first_fit, bound


def first_fit_steps(
    compiled: CompiledProblem, halt: Halt | None = None
) -> Generator[int, None, FinishedPlan]:
    """Make the first-fit plan of a compiled problem."""
    return (yield from _plan_steps(compiled, _FIRST_FIT, halt))


def _value_profiles(compiled: CompiledProblem, mix: Mix | None) -> tuple[Profile, ...]:
    if mix is None:
        order = _constrained_first(compiled, None)
        return (Profile(measure=Measure.PODS, tight=True, order=order),)
    order = _constrained_first(compiled, mix.weights)
    return tuple(
        Profile(
            measure=Measure.DEMAND,
            tight=True,
            order=order,
            weights=mix.weights,
            mix=mix.openings(share),
        )
        for share in (1.0,)
    )


def _constrained_first(
    compiled: CompiledProblem, weights: NDArray[np.float64] | None
) -> tuple[int, ...]:
    """Order classes: those that force nodes, those bound to domains, those to nodes, the rest.

    Whatever is free can follow anything; what is bound cannot. Among equals the costliest first.
    """
    worth = np.zeros(len(compiled.classes)) if weights is None else weights @ compiled.requests

    def tier(index: int) -> int:
        for ties in compiled.ties[index]:
            if any(g.kind is not Kind.AFFINITY and g.index in ties.grows for g in ties.host):
                return 0
            if ties.zonal:
                return 1
            if ties.host:
                return 2
        return 3

    return tuple(
        sorted(
            range(len(compiled.classes)), key=lambda index: (tier(index), -round(worth[index], 15))
        )
    )


def _plan_steps(
    compiled: CompiledProblem, profile: Profile, halt: Halt | None
) -> Generator[int, None, FinishedPlan]:
    engine = Engine(compiled, profile, halt)
    yield from engine.steps()
    return (yield from finish_steps(engine))


def _unschedulable_steps(
    plan: FinishedPlan, placement: Placement
) -> Generator[int, None, dict[str, Unschedulable]]:
    reasons: dict[str, Unschedulable] = {}
    explainer = Explainer(plan.engine)
    for index, members in sorted(placement.left.items()):
        reason = explainer.explain(index)
        reasons.update((pod.uid, reason) for pod in members)
        yield 10
    return reasons
