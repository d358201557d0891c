"""Plans pods evenly over zones if they are too many to be nominated for nodes.

Such pods are bound as kube-scheduler likes: it spreads the pods of a ReplicaSet over zones and prefers
empty nodes. Planned in the cheapest zone and bound in all, they take the capacity that the plan has in
the other zones for pods that must be there. So pods without constraints on other pods are divided among
their zones beforehand, and the rest of the plan is made around that. The plan is one of the original
problem too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from karpenter_core.api.labels import CPU, ZONE
from karpenter_core.scheduling.compiled.signatures import NO_MATCH

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from karpenter_core.api.records import PodShape, PodView
    from karpenter_core.scheduling.compiled.pod_classes import PodClass
    from karpenter_core.scheduling.compiled.problem import CompiledProblem
    from karpenter_core.scheduling.problem import SchedulingPlan, SchedulingProblem

    PlanSteps = Callable[[SchedulingProblem], Generator[int, None, SchedulingPlan]]

__all__ = ["MOST_COST", "even_zones_steps"]

MOST_COST: Final = 1.05
"""The most that the even plan may cost, fees of nodes included, as a ratio to the cheapest plan.

The nodes that are bought later, for pods to which the cheapest plan leaves no room, cost more than that.
"""

_MOST_CLASSES: Final = 128
"""The number of classes up to which the even plan is made: of more, the second plan takes seconds."""

_DIVIDED_PODS: Final = 8
"""The number of pods from which a class is divided; a smaller one is not worth a class for each zone."""


def even_zones_steps(
    compiled: CompiledProblem,
    problem: SchedulingProblem,
    cheapest: SchedulingPlan,
    plan_steps: PlanSteps,
) -> Generator[int, None, SchedulingPlan]:
    """Return a plan with such pods in all zones, or `cheapest` where that will not do.

    The even plan must leave the same pods, and cost little more and no more than first-fit. It is not
    made if no pod is bound to zones: then pods that are bound elsewhere than planned take no other's
    place.
    """
    if cheapest.partial or len(cheapest.claims) < 2 or len(compiled.classes) > _MOST_CLASSES:  # noqa: PLR2004
        return cheapest
    zones_of_classes = [
        _launch_zones(compiled, index, pod_class)
        for index, pod_class in enumerate(compiled.classes)
    ]
    yield 1
    if not _has_bound_pods(compiled, zones_of_classes):
        return cheapest
    zones = dict(_assigned_zones(compiled, zones_of_classes))
    if not zones:
        return cheapest
    even = yield from plan_steps(replace(problem, pods=_bound_pods(problem.pods, zones)))
    if even.partial or even.unschedulable.keys() != cheapest.unschedulable.keys():
        return cheapest
    first_fit = cheapest.cost.first_fit_hourly
    if first_fit is None or even.cost.hourly > first_fit:
        return cheapest
    fee = compiled.options.node_fee_per_hour
    if _cost(even, fee) > MOST_COST * _cost(cheapest, fee):
        return cheapest
    pods = {pod.uid: pod for pod in problem.pods}
    return replace(
        cheapest,
        claims=tuple(
            replace(claim, pods=tuple([pods[pod.uid] for pod in claim.pods]))
            for claim in even.claims
        ),
        existing={
            name: tuple([pods[pod.uid] for pod in placed]) for name, placed in even.existing.items()
        },
        sequence=even.sequence,
        cost=replace(cheapest.cost, hourly=even.cost.hourly),
    )


def _cost(plan: SchedulingPlan, fee: float) -> float:
    return plan.cost.hourly + fee * len(plan.claims)


def _has_bound_pods(compiled: CompiledProblem, zones_of_classes: Sequence[frozenset[str]]) -> bool:
    """Tell whether some pods must be in certain zones: others bind them, or not all zones will do."""
    return len(set(zones_of_classes)) > 1 or any(
        topology.zonal for steps in compiled.topologies for topology in steps
    )


def _assigned_zones(
    compiled: CompiledProblem, zones_of_classes: Sequence[frozenset[str]]
) -> Iterator[tuple[str, str]]:
    """Yield a zone for each pod of the classes that no other pods bind, by UID.

    A class is divided evenly, oldest pods first; what is left over, and classes of few pods, go where the
    fewest CPUs are.
    """
    cpu_milli: Counter[str] = Counter()
    for pod_class, zones in zip(compiled.classes, zones_of_classes, strict=True):
        if len(zones) < 2 or not _is_free(pod_class):  # noqa: PLR2004 - nothing to choose
            continue
        count = len(pod_class.members)
        share = count // len(zones) if count >= _DIVIDED_PODS else 0
        counts = dict.fromkeys(zones, share)
        emptiest = sorted(zones, key=lambda zone: (cpu_milli[zone], zone))
        rest = count - share * len(zones)
        for zone in emptiest[:rest] if share else [emptiest[0]] * rest:
            counts[zone] += 1
        members = iter(pod_class.members)
        for zone in emptiest:
            cpu_milli[zone] += counts[zone] * pod_class.requests.get(CPU, 0)
            for pod in islice(members, counts[zone]):
                yield pod.uid, zone


def _is_free(pod_class: PodClass) -> bool:
    """Tell whether the node alone decides where pods of a class may be.

    Preferences may name zones, and volumes are in zones: such classes are left alone.
    """
    return (
        len(pod_class.relaxation_steps) == 1
        and not pod_class.relaxation_steps[0].bound
        and not pod_class.volume_alternatives
        and not pod_class.shared_volumes
    )


def _launch_zones(compiled: CompiledProblem, index: int, pod_class: PodClass) -> frozenset[str]:
    """Return the zones in which a node can be launched for pods of a class."""
    zones: set[str] = set()
    for signature in compiled.pool_signatures if pod_class.relaxation_steps else ():
        if signature == NO_MATCH:
            continue
        constraints = pod_class.relaxation_steps[0].node_constraints
        joined = compiled.signatures.join(signature, constraints)
        if joined == NO_MATCH:
            continue
        claim = compiled.signatures.claim(joined)
        rows = claim.rows[claim.fitting(compiled.requests[:, index])]
        zones.update(claim.pool.catalogue.groups[group].zone for group in claim.groups_of(rows))
    return frozenset(zones - {""})


def _bound_pods(pods: Sequence[PodView], zones: Mapping[str, str]) -> tuple[PodView, ...]:
    """Return the pods, each bound to its zone; those of one shape and zone share their shape again."""
    shapes: dict[tuple[int, str], PodShape] = {}
    bound: list[PodView] = []
    for pod in pods:
        zone = zones.get(pod.uid)
        if zone is None:
            bound.append(pod)
            continue
        key = (id(pod.shape), zone)
        shape = shapes.get(key)
        if shape is None:
            shape = shapes[key] = msgspec.structs.replace(
                pod.shape, node_selector={**pod.shape.node_selector, ZONE: zone}
            )
        bound.append(msgspec.structs.replace(pod, shape=shape))
    return tuple(bound)
