"""Solves a scheduling problem: the only entry point of scheduling.

Pure and deterministic: the same problem gives the same plan in any process, whatever the order of
its pods, pools and nodes. Effort is counted in work units, never in time; `solve_steps` hands the
thread back at least every five milliseconds of work.

The default packing makes the first-fit plan and others that buy capacity where it is cheapest, and
keeps the best: fewest pods left, then lowest price with a small fee for each node (`portfolio`). It
never costs more than first-fit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from karpenter_core.scheduling.commitment_plans import committed_plan_steps
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.compiled.problem import compile_steps
from karpenter_core.scheduling.device_pass import device_plan_steps, has_device_pods
from karpenter_core.scheduling.node_limit import limit_nodes_steps
from karpenter_core.scheduling.placement.effective_zone import pending_pods_by_zone
from karpenter_core.scheduling.portfolio.even_zones import even_zones_steps
from karpenter_core.scheduling.portfolio.plan_portfolio import portfolio_steps
from karpenter_core.scheduling.problem import PackingPolicy, SolveOptions
from karpenter_core.scheduling.steps import run_steps
from karpenter_core.scheduling.virtual_pods import with_covered_pods
from karpenter_core.scheduling.written_plan import write_plan_steps

if TYPE_CHECKING:
    from collections.abc import Generator

    from karpenter_core.scheduling.placement.engine import HaltRequest
    from karpenter_core.scheduling.problem import SchedulingPlan, SchedulingProblem

__all__ = ["solve", "solve_steps"]


def solve(
    problem: SchedulingProblem,
    options: SolveOptions | None = None,
    *,
    cache: CatalogueCache | None = None,
) -> SchedulingPlan:
    """Return the place of every pod, or the reason why it has none."""
    return run_steps(solve_steps(problem, options, cache=cache))


def solve_steps(
    problem: SchedulingProblem,
    options: SolveOptions | None,
    *,
    cache: CatalogueCache | None = None,
    halt: HaltRequest | None = None,
) -> Generator[int, None, SchedulingPlan]:
    """Solve in small steps; yields the units of work that each took.

    A caller that has no more time requests a halt and continues: it gets the best whole plan so
    far, or, while the first one is being made, the pods placed by then, marked as partial. A caller
    that needs no plan any more drops the generator; nothing outside of it has changed (except
    `cache`, which holds nothing that depends on the pods).
    """
    options, cache = options or SolveOptions(), cache or CatalogueCache()

    def without_devices(asked: SchedulingProblem) -> Generator[int, None, SchedulingPlan]:
        return _plan_steps(asked, options, cache, halt)

    def steps(asked: SchedulingProblem) -> Generator[int, None, SchedulingPlan]:
        if has_device_pods(asked):
            return device_plan_steps(asked, options, cache, without_devices, halt)
        return without_devices(asked)

    def priced(asked: SchedulingProblem) -> Generator[int, None, SchedulingPlan]:
        if asked.commitments:
            return committed_plan_steps(asked, options, steps)
        return steps(asked)

    most = problem.max_new_nodes
    plan = yield from priced(replace(problem, max_new_nodes=None))
    if most is not None and len(plan.claims) > most and not plan.partial:
        plan = yield from limit_nodes_steps(problem, plan, priced)
    return with_covered_pods(plan, problem.covered_pods)


def _plan_steps(
    problem: SchedulingProblem,
    options: SolveOptions,
    cache: CatalogueCache,
    halt: HaltRequest | None,
) -> Generator[int, None, SchedulingPlan]:
    compiled = yield from compile_steps(problem, options, cache)
    pending_by_zone = pending_pods_by_zone(problem, compiled)
    yield 5
    plans = yield from portfolio_steps(compiled, halt)
    plan = yield from write_plan_steps(
        plans.best,
        pending_by_zone=pending_by_zone,
        lower_bound=plans.lower_bound,
        first_fit=plans.first_fit,
    )
    if not problem.is_unnominated or options.packing is not PackingPolicy.VALUE:
        return plan

    def as_nominated(asked: SchedulingProblem) -> Generator[int, None, SchedulingPlan]:
        return _plan_steps(replace(asked, is_unnominated=False), options, cache, halt)

    return (yield from even_zones_steps(compiled, problem, plan, as_nominated))
