"""Writes a finished plan: claims, places of pods, reasons of unplaced pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.scheduling.explain.explainer import PendingPodExplainer
from karpenter_core.scheduling.portfolio.finished_plan import emit_steps, place_steps
from karpenter_core.scheduling.problem import PlanCost, SchedulingPlan, UnschedulablePod

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from karpenter_core.scheduling.portfolio.finished_plan import FinishedPlan, PlanPlacement

__all__ = ["write_plan_steps"]


def write_plan_steps(
    finished: FinishedPlan,
    *,
    pending_by_zone: Mapping[str, int],
    lower_bound: float | None,
    first_fit: FinishedPlan,
) -> Generator[int, None, SchedulingPlan]:
    """Return the plan for callers; `lower_bound` per hour, `first_fit` is the plan to compare costs with."""
    compiled = finished.engine.compiled
    placement = yield from place_steps(finished)
    claims = yield from emit_steps(finished, placement)
    unschedulable = yield from _unschedulable_steps(finished, placement)
    return SchedulingPlan(
        claims=claims,
        existing={
            compiled.nodes[column].name: tuple(placement.pods[column])
            for column in sorted(placement.pods)
            if column < len(compiled.nodes)
        },
        unschedulable=unschedulable,
        sequence=tuple(placement.sequence),
        pending_by_zone=pending_by_zone,
        partial=bool(finished.engine.unreached),
        unusable_pools={
            pool.name: pool.unusable_constraint
            for pool in compiled.pools
            if pool.unusable_constraint is not None
        },
        cost=PlanCost(
            hourly=finished.reported_cost(),
            lower_bound=lower_bound,
            first_fit_hourly=first_fit.reported_cost(),
        ),
    )


def _unschedulable_steps(
    finished: FinishedPlan, placement: PlanPlacement
) -> Generator[int, None, dict[str, UnschedulablePod]]:
    reasons: dict[str, UnschedulablePod] = {}
    explainer = PendingPodExplainer(finished.engine)
    for index, members in sorted(placement.left.items()):
        reason = yield from explainer.explain_steps(index)
        reasons.update((pod.uid, reason) for pod in members)
        yield 1
    return reasons
