"""The one door to scheduling: a problem in, a plan out.

Pure and deterministic: the same problem gives the same plan in any process, whatever the order of
its pods, pools and nodes. Effort is counted in work units, never in time; `solve_steps` hands the
thread back at least every five milliseconds of work.

The default packing makes the first-fit plan and others that buy room where it is cheapest, and keeps
the best: fewest pods left, then lowest price with a small fee for each node (`portfolio`). It is
never dearer than first-fit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from karpenter_core.scheduling.bounded import bounded_steps
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.compiled.problem import compile_steps
from karpenter_core.scheduling.explain.explainer import Explainer
from karpenter_core.scheduling.placement.effective_zone import pending_pods_by_zone
from karpenter_core.scheduling.portfolio.emit import emit_steps, place_steps
from karpenter_core.scheduling.portfolio.portfolio import portfolio_steps
from karpenter_core.scheduling.problem import (
    PlanCost,
    SchedulingPlan,
    SolveOptions,
    Unschedulable,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from karpenter_core.scheduling.placement.engine import Halt
    from karpenter_core.scheduling.portfolio.emit import FinishedPlan, Placement
    from karpenter_core.scheduling.problem import Problem

__all__ = ["solve", "solve_steps"]


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
    options, cache = options or SolveOptions(), cache or CatalogueCache()

    def steps(asked: Problem) -> Generator[int, None, SchedulingPlan]:
        return _plan_steps(asked, options, cache, halt)

    most = problem.max_new_nodes
    plan = yield from steps(replace(problem, max_new_nodes=None))
    if most is None or len(plan.claims) <= most or plan.partial:
        return plan
    return (yield from bounded_steps(problem, plan, steps))


def _plan_steps(
    problem: Problem, options: SolveOptions, cache: CatalogueCache, halt: Halt | None
) -> Generator[int, None, SchedulingPlan]:
    compiled = yield from compile_steps(problem, options, cache)
    pending_by_zone = pending_pods_by_zone(problem, compiled)
    yield 5
    plans = yield from portfolio_steps(compiled, halt)
    best = plans.best
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
        barren={pool.name: pool.barren for pool in compiled.pools if pool.barren is not None},
        cost=PlanCost(
            hourly=best.reported_cost(),
            lower_bound=plans.lower_bound,
            first_fit=plans.first_fit.reported_cost(),
        ),
    )


def _unschedulable_steps(
    plan: FinishedPlan, placement: Placement
) -> Generator[int, None, dict[str, Unschedulable]]:
    reasons: dict[str, Unschedulable] = {}
    explainer = Explainer(plan.engine)
    for index, members in sorted(placement.left.items()):
        reason = yield from explainer.explain_steps(index)
        reasons.update((pod.uid, reason) for pod in members)
        yield 1
    return reasons
