"""No more new nodes than the cluster may have: whom they are for.

A plan that asks for more is made again within the bound. What fits on fewer and larger nodes is
placed there, though that may cost more: no place at all is worse. Where not everything fits, no pod
is passed over for one of lower priority: the least important ones are left out, until all others
have a place. What room there is then beside those is for the next pass.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from karpenter_core.scheduling.problem import Constraint, PoolRejection, Unschedulable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from karpenter_core.scheduling.problem import Problem, SchedulingPlan

    PlanSteps = Callable[[Problem], Generator[int, None, SchedulingPlan]]

__all__ = ["bounded_steps"]

_LATER: Final = (
    "pods of higher priority need the nodes that the cluster may have (--max-nodes-total)"
)


def bounded_steps(
    problem: Problem, free: SchedulingPlan, plan_steps: PlanSteps
) -> Generator[int, None, SchedulingPlan]:
    """Return a plan with at most `problem.max_new_nodes` new nodes; `free` is the one without bound.

    Where pods of several priorities compete it is looked for in as many plans as halving the list
    of their priorities takes. When time runs out meanwhile the last whole plan is the answer, even
    `free`: claims beyond the bound are refused when they are to be created.
    """
    plan = yield from plan_steps(problem)
    if plan.partial:
        return free
    priorities = {pod.uid: pod.shape.priority for claim in free.claims for pod in claim.pods}
    if not _passes_over(plan, priorities):
        return plan
    ranks = sorted(set(priorities.values()))
    first, last = 1, len(ranks) - 1
    best, asked = plan, problem
    while first <= last:
        middle = (first + last) // 2
        tried = _without(problem, priorities, below=ranks[middle])
        found = yield from plan_steps(tried)
        if found.partial:
            break
        if priorities.keys().isdisjoint(found.unschedulable):
            best, asked, last = found, tried, middle - 1
        else:
            first = middle + 1
            if first == len(ranks):  # not even the most important ones have a place, all of them
                best, asked = found, tried
    return _with_left_out(best, problem, asked)


def _passes_over(plan: SchedulingPlan, priorities: Mapping[str, int]) -> bool:
    """Tell whether a pod lost its place to the bound while a less important one got a new node."""
    left = [priorities[uid] for uid in plan.unschedulable if uid in priorities]
    served = [pod.shape.priority for claim in plan.claims for pod in claim.pods]
    return bool(left and served) and max(left) > min(served)


def _without(problem: Problem, priorities: Mapping[str, int], *, below: int) -> Problem:
    """Return the problem without the pods that want new nodes and are less important."""
    kept = (pod for pod in problem.pods if priorities.get(pod.uid, below) >= below)
    return replace(problem, pods=tuple(kept))


def _with_left_out(plan: SchedulingPlan, problem: Problem, asked: Problem) -> SchedulingPlan:
    """Return a plan that says also of the pods that were left out why they have no place."""
    kept = {pod.uid for pod in asked.pods}
    rejection = PoolRejection(constraint=Constraint.LIMIT, detail=_LATER)
    reason = Unschedulable(
        message=f"{Constraint.LIMIT}: {_LATER}",
        pools={pool.name: rejection for pool in problem.pools},
    )
    left_out = {pod.uid: reason for pod in problem.pods if pod.uid not in kept}
    return replace(plan, unschedulable={**plan.unschedulable, **left_out})
