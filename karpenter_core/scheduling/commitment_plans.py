"""Makes plans with unused commitments, each unit of which counts once.

The price of a node then depends on the nodes beside it, which columns of prices cannot express. So up
to three plans are made: at list prices; at prices as if each node had the rest of the commitments to
itself; and at those prices with nodes that the rest covers only. Each plan is priced exactly, in the
order of its claims, and the cheapest one is taken. It is never dearer than the plan at list prices.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from karpenter_core.api.commitments import COMMITTED_SOURCE
from karpenter_core.api.labels import CAPACITY_TYPE, CPU, MEMORY, ON_DEMAND, WELL_KNOWN
from karpenter_core.scheduling.commitment_prices import PlanPricing
from karpenter_core.scheduling.commitments import SoldNode, discounted_catalogue_steps, is_covered
from karpenter_core.scheduling.offerings import compatible_offerings
from karpenter_core.scheduling.problem import Catalogue, LaunchQuota, SchedulingPlan
from karpenter_core.scheduling.requirements import Requirement, Requirements

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.scheduling.commitment_prices import PricedPlan
    from karpenter_core.scheduling.instance_types import InstanceType, Offering
    from karpenter_core.scheduling.problem import (
        CommitmentBalance,
        SchedulingProblem,
        SolveOptions,
    )

__all__ = ["committed_plan_steps"]


def committed_plan_steps(
    problem: SchedulingProblem,
    options: SolveOptions,
    steps: Callable[[SchedulingProblem], Generator[int, None, SchedulingPlan]],
) -> Generator[int, None, SchedulingPlan]:
    """Return the cheapest of the plans that `steps` makes, priced with the commitments."""
    listed = yield from steps(replace(problem, commitments=()))
    balances = tuple(balance for balance in problem.commitments if balance.remaining > 0)
    if not listed.claims or not balances:
        return listed
    pricing = PlanPricing(problem, options)
    plans = [(yield from pricing.priced_steps(listed))]
    if listed.partial:
        return (yield from pricing.written_steps(plans[0]))
    catalogues = yield from _discounted_catalogues_steps(problem, balances)
    discounted = replace(problem, catalogues=catalogues, commitments=())
    alike = yield from steps(discounted)
    plans.append((yield from pricing.priced_steps(alike)))
    if plans[-1].is_short and not _is_beyond(problem, listed, balances):
        quotas = (*problem.quotas, *(_quota(balance) for balance in balances))
        within = yield from steps(replace(discounted, quotas=quotas))
        plans.append((yield from pricing.priced_steps(within)))
    best = yield from pricing.written_steps(min(plans, key=lambda plan: _plan_rank(plan, options)))
    bounds = (plan.cost.lower_bound for plan in (listed, alike))
    known = [bound for bound in bounds if bound is not None]
    bound = min(known) if len(known) == 2 else None  # noqa: PLR2004 - of both plans
    first_fit = listed.cost.first_fit_hourly
    cost = replace(best.cost, lower_bound=bound, first_fit_hourly=first_fit)
    return replace(best, cost=cost)


def _plan_rank(priced: PricedPlan, options: SolveOptions) -> tuple[bool, int, float]:
    """Return the order of plans: whole ones, fewest pods left, then the price with the fee."""
    plan = priced.plan
    fee = options.node_fee_per_hour * len(plan.claims)
    return plan.partial, len(plan.unschedulable), priced.hourly + fee


def _is_beyond(
    problem: SchedulingProblem, listed: SchedulingPlan, balances: Sequence[CommitmentBalance]
) -> bool:
    """Tell whether nodes within the commitments only would leave pods that the plan places.

    That is so when nothing is for sale that is not committed, and the pods request more of a resource
    than is left of it: a plan with quotas would lose, and is not made.
    """
    resource = balances[0].commitment.resource
    if resource not in (CPU, MEMORY):
        return False
    if any(balance.commitment.resource != resource for balance in balances):
        return False
    requested = sum(claim.requests.get(resource, 0) for claim in listed.claims)
    if requested <= sum(balance.remaining for balance in balances):
        return False
    return all(
        any(is_covered(balance, SoldNode(item, offering)) for balance in balances)
        for pool in problem.pools
        if pool.name in problem.catalogues
        for item, offering in _offerings_of(problem, pool)
    )


def _offerings_of(
    problem: SchedulingProblem, pool: NodePool
) -> Iterator[tuple[InstanceType, Offering]]:
    """Yield what a NodePool may launch now, and maybe more."""
    requirements = Requirements.from_specs(
        pool.spec.template.spec.requirements, aliases=problem.aliases
    )
    well_known = WELL_KNOWN | problem.well_known
    for item in problem.catalogues[pool.name].instance_types:
        for offering in compatible_offerings(item, requirements, well_known=well_known):
            yield item, offering


def _quota(balance: CommitmentBalance) -> LaunchQuota:
    """Return a quota that lets new nodes take no more than is left."""
    on_demand = Requirements((Requirement.of(CAPACITY_TYPE, "In", (ON_DEMAND,)),))
    return LaunchQuota(
        name=f'{COMMITTED_SOURCE}{balance.commitment.name}"',
        requirements=balance.requirements.merge(on_demand),
        limits={balance.commitment.resource: balance.remaining},
    )


def _discounted_catalogues_steps(
    problem: SchedulingProblem, balances: Sequence[CommitmentBalance]
) -> Generator[int, None, dict[str, Catalogue]]:
    made: dict[int, Catalogue] = {}
    for catalogue in problem.catalogues.values():
        if id(catalogue) not in made:
            made[id(catalogue)] = yield from discounted_catalogue_steps(catalogue, balances)
    return {name: made[id(catalogue)] for name, catalogue in problem.catalogues.items()}
