"""Records the plan of new claims in the decision journal."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from karpenter_core.scheduling.journal import plan_decision

if TYPE_CHECKING:
    from karpenter_core.controllers.planner import Planner
    from karpenter_core.controllers.provisioning.claim_creator import CreatedClaims
    from karpenter_core.controllers.provisioning.new_claims import DecisionRef
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.scheduling.problem import SchedulingPlan, SchedulingProblem, SolveOptions

__all__ = ["record_plan"]


async def record_plan(
    plan: SchedulingPlan,
    problem: SchedulingProblem,
    created: CreatedClaims,
    *,
    options: SolveOptions,
    decision_ref: DecisionRef,
    planner: Planner,
    runtime: ControllerRuntime,
) -> None:
    """Record a plan and the claims that were created for it; the record is made by the planner.

    A plan that says nothing of any pod is no decision.
    """
    make_decision = partial(
        plan_decision,
        plan,
        problem,
        options=options,
        id=decision_ref.id,
        cause=decision_ref.cause,
        at=runtime.clock.now(),
        names=created.names,
        refused=created.obstacles,
    )
    decision = await planner.compute(make_decision)
    if not decision.is_empty:
        await runtime.journal.record(decision)
