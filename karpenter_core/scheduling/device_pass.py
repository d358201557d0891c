"""Plans passes with pods that have ResourceClaims.

These pods come first, one by one in the order of first-fit: few nodes have devices. Then all other
pods are planned as always, with the claims of the first plan as nodes that they may share. Claims
keep their instance types: what is added to one fits on each of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from karpenter_core.api.labels import NODES, PODS
from karpenter_core.scheduling.compiled.problem import compile_steps
from karpenter_core.scheduling.node_pods import with_pods
from karpenter_core.scheduling.placement.effective_zone import pending_pods_by_zone
from karpenter_core.scheduling.portfolio.plan_portfolio import first_fit_steps
from karpenter_core.scheduling.problem import Catalogue, ExistingNode, PlanCost
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.scheduling.written_plan import write_plan_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from karpenter_core.api.records import HostPort, PodView, Resources
    from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
    from karpenter_core.scheduling.compiled.problem import CompiledProblem
    from karpenter_core.scheduling.compiled.reservations import Reservation
    from karpenter_core.scheduling.placement.engine import HaltRequest
    from karpenter_core.scheduling.portfolio.finished_plan import SizedClaim
    from karpenter_core.scheduling.problem import (
        LaunchQuota,
        PlannedNodeClaim,
        SchedulingPlan,
        SchedulingProblem,
        SolveOptions,
    )

    PlanSteps = Callable[[SchedulingProblem], Generator[int, None, SchedulingPlan]]

__all__ = ["device_plan_steps", "has_device_pods"]

_PLANNED: Final = "planned claim "
"""The beginning of the names that planned claims have as nodes; no object has such a name."""


def has_device_pods(problem: SchedulingProblem) -> bool:
    """Tell whether some pod has ResourceClaims, and these are to be allocated."""
    return problem.devices is not None and any(pod.shape.resource_claims for pod in problem.pods)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _DevicePlan:
    """The plan of the pods with claims, and its claims as nodes for other pods."""

    plan: SchedulingPlan
    compiled: CompiledProblem
    sized_claims: tuple[SizedClaim, ...]


def device_plan_steps(
    problem: SchedulingProblem,
    options: SolveOptions,
    cache: CatalogueCache,
    plan_steps: PlanSteps,
    halt: HaltRequest | None,
) -> Generator[int, None, SchedulingPlan]:
    """Plan a problem with such pods; `plan_steps` plans the others."""
    first = yield from _device_steps(problem, options, cache, halt)
    others = tuple(pod for pod in problem.pods if not pod.shape.resource_claims)
    if not others or first.plan.partial:
        return first.plan
    second = yield from plan_steps(_problem_after(problem, others, first))
    return _merged(first, second)


def _device_steps(
    problem: SchedulingProblem,
    options: SolveOptions,
    cache: CatalogueCache,
    halt: HaltRequest | None,
) -> Generator[int, None, _DevicePlan]:
    """Place the pods with claims alone."""
    # The others wait too: those that run are not counted where they are.
    waiting = {pod.uid for pod in problem.pods}
    owners = _constraint_owners(problem)
    asked = replace(
        problem,
        pods=(*(pod for pod in problem.pods if pod.shape.resource_claims), *owners),
        nodes=tuple(
            replace(node, pods=tuple(pod for pod in node.pods if pod.uid not in waiting))
            for node in problem.nodes
        ),
    )
    compiled = yield from compile_steps(asked, options, cache, devices=problem.devices)
    pending_by_zone = pending_pods_by_zone(asked, compiled)
    yield 5
    left_out = {
        index: len(pod_class.members)
        for index, pod_class in enumerate(compiled.classes)
        if not pod_class.shape.resource_claims
    }
    finished = yield from first_fit_steps(compiled, halt, left_out=left_out)
    plan = yield from write_plan_steps(
        finished, pending_by_zone=pending_by_zone, lower_bound=None, first_fit=finished
    )
    left = dict(plan.unschedulable)
    for owner in owners:
        left.pop(owner.uid, None)
    plan = replace(plan, unschedulable=left)
    devices = finished.engine.devices
    if devices is not None:
        drivers = (
            devices.drivers(column, sized.rows) for column, sized in finished.sized_claims.items()
        )
        plan = replace(
            plan,
            claims=tuple(
                replace(claim, device_drivers=names)
                for claim, names in zip(plan.claims, drivers, strict=True)
            ),
        )
    return _DevicePlan(
        plan=plan, compiled=compiled, sized_claims=tuple(finished.sized_claims.values())
    )


def _constraint_owners(problem: SchedulingProblem) -> tuple[PodView, ...]:
    """Return one pod without claims for each constraint on the places of other pods.

    Such a constraint may count pods with claims, whose nodes are then given a domain. (The pods are not
    placed, and in no phase, as those that are pending are counted in the other plan.)
    """
    owners: dict[int, PodView] = {}
    for pod in problem.pods:
        shape = pod.shape
        if shape.resource_claims or id(shape) in owners:
            continue
        preferred = shape.preferred_pod_affinity or shape.preferred_pod_anti_affinity
        if shape.topology_spread or shape.pod_affinity or shape.pod_anti_affinity or preferred:
            owners[id(shape)] = structs.replace(pod, phase="")
    return tuple(owners.values())


def _problem_after(
    problem: SchedulingProblem, pods: tuple[PodView, ...], first: _DevicePlan
) -> SchedulingProblem:
    """Return the problem of the other pods, once those with claims are in their places."""
    existing = first.plan.existing
    usage, quotas = _usage_after(problem, first)
    placed = {pod.uid for pod in problem.pods if pod.shape.resource_claims}
    most = problem.max_new_nodes
    return replace(
        problem,
        pods=pods,
        nodes=(
            *(
                with_pods(
                    replace(node, pods=tuple(pod for pod in node.pods if pod.uid not in placed)),
                    existing.get(node.name, ()),
                    problem.volumes,
                )
                for node in problem.nodes
            ),
            *_planned_nodes(problem, pods, first),
        ),
        catalogues=_catalogues_after(problem, first),
        pool_usage=usage,
        quotas=quotas,
        max_new_nodes=None if most is None else max(most - len(first.plan.claims), 0),
    )


def _usage_after(
    problem: SchedulingProblem, first: _DevicePlan
) -> tuple[dict[str, Resources], tuple[LaunchQuota, ...]]:
    """Return what is used of the limits of NodePools and of quotas, with the planned claims."""
    of_pools = {pool: Counter(amounts) for pool, amounts in problem.pool_usage.items()}
    of_quotas = {quota.name: Counter(quota.used) for quota in problem.quotas}
    for sized in first.sized_claims:
        pool = sized.claim.pool
        of_pool = of_pools.setdefault(pool.name, Counter())
        of_pool.update({NODES: 1, sized.claim.spot_count: 1})
        for name, amount in sized.claim.charge(sized.rows).items():
            line = pool.quota_lines.get(name)
            if line is None:
                of_pool[name] += amount
            else:
                of_quotas[line.quota.name][line.resource] += amount
    quotas = tuple(replace(quota, used=dict(of_quotas[quota.name])) for quota in problem.quotas)
    return {pool: dict(used) for pool, used in of_pools.items()}, quotas


def _planned_nodes(
    problem: SchedulingProblem, pods: Iterable[PodView], first: _DevicePlan
) -> Generator[ExistingNode]:
    """Yield the planned claims as nodes, with what is free on each of their types."""
    every_pod = (*pods, *(pod for claim in first.plan.claims for pod in claim.pods))
    names = sorted({PODS, *(name for pod in every_pod for name in pod.shape.requests)})
    for number, (claim, sized) in enumerate(
        zip(first.plan.claims, first.sized_claims, strict=True)
    ):
        pool = sized.claim.pool
        free = pool.free(names)[:, sized.rows].min(axis=1)
        capacity = [int(pool.catalogue.capacity(name)[sized.rows].min()) for name in names]
        requirements = (
            Requirements(claim.requirements)
            .merge(Requirements.from_labels(claim.labels, aliases=problem.aliases))
            .merge(_labels_of_variants(sized))
        )
        yield with_pods(
            ExistingNode(
                name=f"{_PLANNED}{number:06}",
                labels=claim.labels,
                taints=pool.taints,
                available=dict(zip(names, free.tolist(), strict=True)),
                capacity=dict(zip(names, capacity, strict=True)),
                initialized=False,
                pool=claim.pool,
                requirements=requirements,
                host_ports=(*sized.claim.host_ports, *_daemon_ports(sized)),
                is_planned=True,
            ),
            claim.pods,
            problem.volumes,
        )


def _labels_of_variants(sized: SizedClaim) -> Requirements:
    """Return the labels that a claim will have whatever is launched, with the values they may have.

    A claim does not say of its one type that it is sold in one zone only; yet a spread constraint of
    pods that are bound to this zone counts the pods of the claim.
    """
    catalogue = sized.claim.pool.catalogue
    rows: list[int] = sized.rows.tolist()
    types = [catalogue.instance_types[row].requirements for row in rows]
    groups = sized.claim.groups_of(sized.rows)
    offerings = [catalogue.groups[group].requirements for group in groups]
    return Requirements(
        {one.key: one for one in (*_common_labels(types), *_common_labels(offerings))}.values()
    )


def _common_labels(variants: Sequence[Requirements]) -> Generator[Requirement]:
    """Yield the labels that each of some variants has, with the values of all."""
    defined = [{one.key for one in each.values() if one.operator == "In"} for each in variants]
    for key in sorted(set[str].intersection(*defined)) if defined else ():
        values = frozenset[str]().union(*(each.get(key).values for each in variants))
        yield Requirement(key=key, complement=False, values=values)


def _daemon_ports(sized: SizedClaim) -> Generator[HostPort]:
    """Yield the ports that daemons take on some instance type of a claim."""
    pool = sized.claim.pool
    for daemon, bits in pool.daemons:
        if daemon.shape.host_ports and pool.catalogue.mask(bits)[sized.rows].any():
            yield from daemon.shape.host_ports


def _catalogues_after(problem: SchedulingProblem, first: _DevicePlan) -> Mapping[str, Catalogue]:
    """Return the catalogues without the reserved instances that the planned claims hold."""
    held: Counter[Reservation] = Counter(
        reservation for sized in first.sized_claims for reservation in sized.claim.held or ()
    )
    if not held:
        return problem.catalogues
    reservation_of = first.compiled.reservations.reservation_of
    version = ",".join(f"{dict(one)}:{count}" for one, count in sorted(held.items()))

    def reduced(catalogue: Catalogue) -> Catalogue:
        return Catalogue(
            version=f"{catalogue.version} without {version}",
            instance_types=tuple(
                replace(
                    it,
                    offerings=tuple(
                        replace(
                            one,
                            reservation_capacity=max(
                                one.reservation_capacity - held[reservation_of(one.requirements)], 0
                            ),
                        )
                        if one.reservation_capacity
                        else one
                        for one in it.offerings
                    ),
                )
                for it in catalogue.instance_types
            ),
        )

    return {name: reduced(catalogue) for name, catalogue in problem.catalogues.items()}


def _merged(first: _DevicePlan, second: SchedulingPlan) -> SchedulingPlan:
    """Return one plan of both; what went on planned claims is added to these."""
    claims: list[PlannedNodeClaim] = []
    for number, claim in enumerate(first.plan.claims):
        added = second.existing.get(f"{_PLANNED}{number:06}", ())
        claims.append(_with_more_pods(claim, added) if added else claim)
    existing = dict(first.plan.existing)
    for name, pods in second.existing.items():
        if not name.startswith(_PLANNED):
            existing[name] = (*existing.get(name, ()), *pods)
    by_zone = Counter(first.plan.pending_by_zone)
    by_zone.update(second.pending_by_zone)
    own = first.plan.cost.hourly
    first_fit = second.cost.first_fit_hourly
    return replace(
        second,
        claims=(*claims, *second.claims),
        existing=existing,
        unschedulable={**first.plan.unschedulable, **second.unschedulable},
        sequence=(*first.plan.sequence, *second.sequence),
        pending_by_zone=dict(by_zone),
        cost=PlanCost(
            hourly=round(own + second.cost.hourly, 9),
            lower_bound=None if first.plan.claims else second.cost.lower_bound,
            first_fit_hourly=None if first_fit is None else round(own + first_fit, 9),
        ),
    )


def _with_more_pods(claim: PlannedNodeClaim, pods: tuple[PodView, ...]) -> PlannedNodeClaim:
    requests = dict(claim.requests)
    for pod in pods:
        for name, amount in pod.shape.requests.items():
            if name != PODS:
                requests[name] = requests.get(name, 0) + max(amount, 0)
        requests[PODS] = requests.get(PODS, 0) + 1
    return replace(claim, pods=(*claim.pods, *pods), requests=requests)
