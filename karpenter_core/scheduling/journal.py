"""Writes scheduling plans as records of the decision journal."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from karpenter_core.api.decisions import (
    PROVISION,
    Decision,
    DecisionLaunch,
    DecisionObstacle,
    DecisionPlacement,
    bounded,
    obstacles_of,
)
from karpenter_core.api.judgements import JUDGEMENT_FAILED
from karpenter_core.api.labels import SCHEDULES
from karpenter_core.api.notices import ObjectRef
from karpenter_core.api.prices import Price
from karpenter_core.scheduling.problem import PoolConstraint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.scheduling.problem import (
        PlannedNodeClaim,
        SchedulingPlan,
        SchedulingProblem,
        SolveOptions,
    )

__all__ = ["inputs_digest", "plan_decision", "planned_launch"]

_NAMED_PODS = 5


def inputs_digest(problem: SchedulingProblem) -> str:
    """Return a digest of a problem: the same in every process that sees the same objects.

    Takes some milliseconds for tens of thousands of pods; not meant for the event loop.
    """
    parts: list[Iterable[object]] = [
        sorted((pod.uid, pod.resource_version) for pod in problem.pods),
        sorted((pool.name, pool.uid, pool.metadata.generation) for pool in problem.pools),
        sorted((name, catalogue.version) for name, catalogue in problem.catalogues.items()),
        sorted(
            (node.name, node.closed, node.initialized, sum(node.available.values()))
            for node in problem.nodes
        ),
        [problem.max_new_nodes],
    ]
    if problem.quotas:
        parts.append(
            (q.name, str(q.requirements), sorted(q.limits.items()), sorted(q.used.items()))
            for q in problem.quotas
        )
    # Windows of schedules change limits without a new generation.
    if changing := [pool for pool in problem.pools if SCHEDULES in pool.metadata.annotations]:
        parts.append(
            (pool.name, sorted((name, str(most)) for name, most in pool.spec.limits.items()))
            for pool in changing
        )
    digest = blake2b(digest_size=8)
    for part in parts:
        digest.update(repr(part if isinstance(part, list) else [*part]).encode())
    return digest.hexdigest()


def plan_decision(
    plan: SchedulingPlan,
    problem: SchedulingProblem,
    *,
    options: SolveOptions,
    id: str,  # noqa: A002 - the name of the field
    cause: str,
    at: datetime,
    names: Sequence[str | None] = (),
    refused: Mapping[int, str] | None = None,
) -> Decision:
    """Return the record of a plan; `names` are those of the claims that were created for it.

    `refused` has, by a claim's number, the limit or launch limit that refuses it now. Prices are in
    the reporting currency; nothing is removed, so the price before is zero. Not meant for the event
    loop: see `inputs_digest`.
    """
    created = [*names, *[None] * (len(plan.claims) - len(names))]
    cost = plan.cost
    compared = {"first-fit": cost.first_fit_hourly, "lower-bound": cost.lower_bound}
    return Decision(
        id=id,
        cause=cause,
        kind=PROVISION,
        at=at,
        summary=_summary(plan),
        inputs=inputs_digest(problem),
        method=str(options.packing),
        price_per_hour_before=Price(0.0, options.currency),
        price_per_hour_after=Price(cost.hourly, options.currency),
        alternatives={name: price for name, price in compared.items() if price is not None},
        **bounded(
            objects=[
                ObjectRef(api_version="karpenter.sh/v1", kind="NodeClaim", name=name)
                for name in names
                if name is not None
            ],
            launches=[
                planned_launch(planned, name=name or "", currency=options.currency)
                for planned, name in zip(plan.claims, created, strict=True)
            ],
            placements=[
                DecisionPlacement(node=name, pods=len(pods))
                for name, pods in sorted(plan.existing.items())
                if pods
            ],
            obstacles=_obstacles(plan, problem, refused or {}),
        ),
    )


def _summary(plan: SchedulingPlan) -> str:
    launched = sum(len(planned.pods) for planned in plan.claims)
    placed = sum(map(len, plan.existing.values()))
    parts = (
        f"{len(plan.claims)} nodeclaim(s) for {launched} pod(s)" if plan.claims else "",
        f"{placed} pod(s) on existing nodes" if placed else "",
        f"{len(plan.unschedulable)} pod(s) pending" if plan.unschedulable else "",
    )
    text = ", ".join(filter(None, parts)) or "no pod to place"
    return f"{text}; stopped early, because it took too long" if plan.partial else text


def planned_launch(planned: PlannedNodeClaim, *, name: str, currency: str) -> DecisionLaunch:
    """Return the record of a planned node; `name` is its claim's, empty without one.

    Its price is in `currency`.
    """
    cheapest = planned.cheapest
    return DecisionLaunch(
        node_claim=name,
        node_pool=planned.pool,
        instance_type=cheapest.instance_type,
        zone=cheapest.zone,
        capacity_type=cheapest.capacity_type,
        instance_types=len(planned.instance_types),
        price_per_hour=Price(cheapest.price_per_hour, currency),
        list_price_per_hour=None
        if cheapest.list_price_per_hour is None
        else Price(cheapest.list_price_per_hour, currency),
        price_source=cheapest.price_source,
        pods=len(planned.pods),
    )


def _obstacles(
    plan: SchedulingPlan, problem: SchedulingProblem, refused: Mapping[int, str]
) -> list[DecisionObstacle]:
    """Group the pods without a place by reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for number, why in refused.items():
        pods = groups.setdefault((PoolConstraint.LIMIT.value, why), [])
        pods += (pod.key for pod in plan.claims[number].pods)
    keys = {pod.uid: pod.key for pod in problem.pods if pod.uid in plan.unschedulable}
    for uid, why in plan.unschedulable.items():
        constraints = sorted({rejection.constraint.value for rejection in why.pools.values()})
        groups.setdefault((",".join(constraints), why.message), []).append(keys.get(uid, uid))
    obstacles = [
        DecisionObstacle(
            kind="Pod",
            reason=reason,
            message=message,
            count=len(pods),
            names=tuple(sorted(pods)[:_NAMED_PODS]),
        )
        for (reason, message), pods in groups.items()
    ]
    aside = (item for item in plan.set_aside if item.regarding.kind != "Pod")
    obstacles += obstacles_of(
        (item.notice for item in aside),
        kinds=("DaemonSet", "Node", "NodePool"),
        reasons=(JUDGEMENT_FAILED,),
    )
    return sorted(obstacles, key=lambda item: (-item.count, item.reason, item.message))
