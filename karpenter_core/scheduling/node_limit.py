"""Limits a plan to the number of new nodes that the cluster may have.

A plan with more new nodes is made again within the limit. Pods are then placed on fewer and larger
nodes, though that may cost more: no place at all is worse. Where not everything fits, no pod gives
way to one of lower priority: the pods of lowest priority are left out, until all others have a
place. Capacity that is left beside those is for the next pass.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from karpenter_core.scheduling.problem import PoolConstraint, PoolRejection, UnschedulablePod

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from karpenter_core.scheduling.problem import SchedulingPlan, SchedulingProblem

    PlanSteps = Callable[[SchedulingProblem], Generator[int, None, SchedulingPlan]]

__all__ = ["limit_nodes_steps"]

_LATER: Final = (
    "pods of higher priority need the nodes that the cluster may have (--max-nodes-total)"
)


def limit_nodes_steps(
    problem: SchedulingProblem, unlimited_plan: SchedulingPlan, plan_steps: PlanSteps
) -> Generator[int, None, SchedulingPlan]:
    """Return a plan with at most `problem.max_new_nodes` new nodes.

    `unlimited_plan` is the plan without limit. Where pods of several priorities compete, bisection
    over the priorities finds the plan. When time runs out meanwhile the last whole plan is
    returned, even `unlimited_plan`: claims beyond the limit are refused at their creation.
    """
    plan = yield from plan_steps(problem)
    if plan.partial:
        return unlimited_plan
    priorities = {
        pod.uid: pod.shape.priority for claim in unlimited_plan.claims for pod in claim.pods
    }
    if not _passes_over(plan, priorities):
        return plan
    ranks = sorted(set(priorities.values()))
    first, last = 1, len(ranks) - 1
    best, asked = plan, problem
    while first <= last:
        middle = (first + last) // 2
        tried = _without(problem, priorities, below=ranks[middle])
        bounded_plan = yield from plan_steps(tried)
        if bounded_plan.partial:
            break
        if priorities.keys().isdisjoint(bounded_plan.unschedulable):
            best, asked, last = bounded_plan, tried, middle - 1
        else:
            first = middle + 1
            if first == len(ranks):  # not even the pods of highest priority all have a place
                best, asked = bounded_plan, tried
    return _with_left_out(best, problem, asked)


def _passes_over(plan: SchedulingPlan, priorities: Mapping[str, int]) -> bool:
    """Tell whether the limit left out a pod while one of lower priority got a new node."""
    pending_priorities = [priorities[uid] for uid in plan.unschedulable if uid in priorities]
    served = [pod.shape.priority for claim in plan.claims for pod in claim.pods]
    return bool(pending_priorities and served) and max(pending_priorities) > min(served)


def _without(
    problem: SchedulingProblem, priorities: Mapping[str, int], *, below: int
) -> SchedulingProblem:
    """Return the problem without the pods below a priority that need new nodes."""
    remaining = (pod for pod in problem.pods if priorities.get(pod.uid, below) >= below)
    return replace(problem, pods=tuple(remaining))


def _with_left_out(
    plan: SchedulingPlan, problem: SchedulingProblem, bounded_problem: SchedulingProblem
) -> SchedulingPlan:
    """Return a plan that also has the reason of the pods that were left out."""
    kept_uids = {pod.uid for pod in bounded_problem.pods}
    rejection = PoolRejection(constraint=PoolConstraint.LIMIT, detail=_LATER)
    reason = UnschedulablePod(
        message=f"{PoolConstraint.LIMIT}: {_LATER}",
        pools={pool.name: rejection for pool in problem.pools},
    )
    left_out = {pod.uid: reason for pod in problem.pods if pod.uid not in kept_uids}
    return replace(plan, unschedulable={**plan.unschedulable, **left_out})
