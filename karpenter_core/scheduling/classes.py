"""Pods that a scheduler cannot tell apart are one class, placed as one.

Members differ in name, UID and age only. What a class asks of a node is a ladder of rungs: the
first has every preference, each next one gives up one thing, in upstream's order. A class whose
rung fails goes on with the next; members are alike, so that equals the procedure pod by pod.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import (
    ALIASES,
    CPU,
    MEMORY,
    PODS,
    WELL_KNOWN,
)
from karpenter_core.errors import BadInputError
from karpenter_core.scheduling.pod_selectors import opts_out, selector_error
from karpenter_core.scheduling.problem import Constraint, PoolRejection, PreferencePolicy
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.scheduling.taints import PREFERENCE_TOLERATION

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from karpenter_core.api.records import (
        HostPort,
        NodeSelectorTerm,
        PodShape,
        PodView,
        Resources,
        Toleration,
    )
    from karpenter_core.scheduling.problem import Problem, SolveOptions

__all__ = ["PodClass", "Rung", "classify_steps", "rungs_of"]

PODS_PER_STEP: Final = 1000
"""Pods classified between two yields: about two milliseconds, or five work units."""

_BEGINNING: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rung:
    """What is asked of a node at one step of relaxation; interned, `index` is its identity."""

    index: int
    requirements: Requirements
    tolerations: tuple[Toleration, ...]
    host_ports: tuple[HostPort, ...]


@dataclass(slots=True, kw_only=True, eq=False)
class PodClass:
    """Pods that are alike to the scheduler, oldest first.

    `blocked` says why none of them can be placed anywhere, whatever there is.
    """

    shape: PodShape
    requests: Resources
    rungs: tuple[Rung, ...]
    members: list[PodView] = field(default_factory=list["PodView"])
    blocked: PoolRejection | None = None

    @property
    def queue_order(self) -> tuple[int, int, datetime, str]:
        """Large pods first, then old ones (upstream's order, by the oldest member)."""
        created, uid = pod_order(self.members[0])
        return (-self.requests.get(CPU, 0), -self.requests.get(MEMORY, 0), created, uid)


def pod_order(pod: PodView) -> tuple[datetime, str]:
    """Sort pods by age, then UID."""
    return (pod.created or _BEGINNING, pod.uid)


def classify_steps(
    problem: Problem, options: SolveOptions
) -> Generator[int, None, tuple[PodClass, ...]]:
    """Sort the pods of a problem into classes, in the order in which they are to be placed."""
    aliases = {**ALIASES, **problem.aliases}
    well_known = WELL_KNOWN | problem.well_known
    reader = _LadderReader(
        aliases=aliases,
        respect_preferences=options.preferences is PreferencePolicy.RESPECT,
        softens_taints=any(
            taint.effect == "PreferNoSchedule"
            for pool in problem.pools
            for taint in pool.spec.template.spec.taints
        ),
    )
    by_shape: dict[int, PodClass] = {}
    by_key: dict[object, PodClass] = {}
    for number, pod in enumerate(problem.pods, start=1):
        shape = pod.shape
        found = by_shape.get(id(shape))
        if found is None:
            key = _class_key(shape)
            found = by_key.get(key)
            if found is None:
                found = by_key[key] = _make_class(shape, reader, aliases, well_known)
            by_shape[id(shape)] = found
        found.members.append(pod)
        if number % PODS_PER_STEP == 0:
            yield 5
    for found in by_key.values():
        found.members.sort(key=pod_order)
    return tuple(sorted(by_key.values(), key=lambda pod_class: pod_class.queue_order))


def _class_key(shape: PodShape) -> object:
    """Return everything a placement reads of a shape; equal keys are one class."""
    return (
        tuple(sorted(shape.requests.items())),
        tuple(sorted(shape.node_selector.items())),
        shape.required_node_terms,
        shape.preferred_node_terms,
        shape.tolerations,
        tuple(sorted(shape.host_ports, key=str)),
        _unsupported(shape),
    )


def _make_class(
    shape: PodShape,
    reader: _LadderReader,
    aliases: Mapping[str, str],
    well_known: AbstractSet[str],
) -> PodClass:
    requests = {PODS: 1, **{name: max(amount, 0) for name, amount in shape.requests.items()}}
    blocked = _invalid(shape, aliases, well_known)
    rungs: tuple[Rung, ...] = ()
    if blocked is None:
        try:
            rungs = reader.read(shape)
        except BadInputError as error:
            blocked = PoolRejection(constraint=Constraint.REQUIREMENT, detail=str(error))
    return PodClass(
        shape=shape, requests=requests, rungs=rungs, blocked=blocked or _unsupported_reason(shape)
    )


class _LadderReader:
    """Reads what shapes ask for, and interns it."""

    def __init__(
        self, *, aliases: Mapping[str, str], respect_preferences: bool, softens_taints: bool
    ) -> None:
        self._aliases: Final = aliases
        self._respect_preferences: Final = respect_preferences
        self._softens_taints: Final = softens_taints
        self._interned: Final = dict[object, Rung]()

    def read(self, shape: PodShape) -> tuple[Rung, ...]:
        ports = tuple(sorted(shape.host_ports, key=str))
        tolerations = shape.tolerations
        ladder = rungs_of(
            shape, aliases=self._aliases, respect_preferences=self._respect_preferences
        )
        rungs = [self._intern(requirements, tolerations, ports) for requirements in ladder]
        if self._softens_taints and PREFERENCE_TOLERATION not in tolerations:
            rungs.append(self._intern(ladder[-1], (*tolerations, PREFERENCE_TOLERATION), ports))
        return tuple(dict.fromkeys(rungs))

    def _intern(
        self,
        requirements: Requirements,
        tolerations: tuple[Toleration, ...],
        ports: tuple[HostPort, ...],
    ) -> Rung:
        key = (requirements, tolerations, ports)
        known = self._interned.get(key)
        if known is None:
            known = self._interned[key] = Rung(
                index=len(self._interned),
                requirements=requirements,
                tolerations=tolerations,
                host_ports=ports,
            )
        return known


def rungs_of(
    shape: PodShape, *, aliases: Mapping[str, str] = ALIASES, respect_preferences: bool = True
) -> tuple[Requirements, ...]:
    """Return what a pod asks of a node's labels, step by step of relaxation.

    Required terms are alternatives: all but the last are dropped from the front, before any
    preference is given up; then preferred terms go, heaviest first. Each step has the heaviest
    preference that is left as if it were required.

    Raises:
        BadInputError: required expressions cannot be read, or exclude each other.
    """
    base = [Requirement.of(k, "In", (v,), aliases=aliases) for k, v in shape.node_selector.items()]
    terms = [_read(term, aliases) for term in shape.required_node_terms if term.match_expressions]
    preferences: list[list[Requirement]] = []
    if respect_preferences:
        for preferred in sorted(shape.preferred_node_terms, key=lambda wish: -wish.weight):
            try:
                preferences.append(_read(preferred.term, aliases))
            except BadInputError:
                continue  # a wish nobody can read is given up at once
    terms = terms or [[]]
    steps = [(term, preferences[0] if preferences else []) for term in terms]
    steps += [(terms[-1], preference) for preference in (*preferences[1:], [])]
    met = (_all_of((*base, *term, *preference)) for term, preference in steps)
    ladder = tuple(dict.fromkeys(requirements for requirements in met if requirements is not None))
    if not ladder:
        raise BadInputError("node selector and required node affinity exclude each other")
    return ladder


def _read(term: NodeSelectorTerm, aliases: Mapping[str, str]) -> list[Requirement]:
    return [
        Requirement.of(expression.key, expression.operator, expression.values, aliases=aliases)
        for expression in term.match_expressions
    ]


def _all_of(requirements: Sequence[Requirement]) -> Requirements | None:
    """Return what all allow; None when two of them leave nothing.

    Without this, two values that exclude each other would end as "the label must not exist".
    """
    met = Requirements()
    for requirement in requirements:
        if requirement.key in met and not met.get(requirement.key).admits(requirement):
            return None
        met = met.add(requirement)
    return met


def _invalid(
    shape: PodShape, aliases: Mapping[str, str], well_known: AbstractSet[str]
) -> PoolRejection | None:
    """Say why a pod's node selector or required node affinity cannot be honoured by anybody."""
    terms = shape.required_node_terms
    if terms and not any(term.match_expressions or term.match_fields for term in terms):
        return _refusal("a node selector term without expressions matches no node")
    if opts_out(shape, aliases=aliases):
        return _refusal("the pod asks for nodes outside of every NodePool")
    error = selector_error(shape, well_known=well_known, aliases=aliases)
    return _refusal(error) if error else None


def _refusal(detail: str) -> PoolRejection:
    return PoolRejection(constraint=Constraint.REQUIREMENT, detail=detail)


def _unsupported(shape: PodShape) -> tuple[Constraint, str] | None:
    """Name the first thing a pod needs that this solver does not place yet.

    Preferred pod (anti-)affinity and ScheduleAnyway spread are wishes and do not count.
    """
    for spread in shape.topology_spread:
        if spread.when_unsatisfiable == "DoNotSchedule":
            return Constraint.TOPOLOGY, f'topology spread over "{spread.topology_key}"'
    for term in shape.pod_affinity:
        return Constraint.AFFINITY, f'required pod affinity over "{term.topology_key}"'
    for term in shape.pod_anti_affinity:
        return Constraint.AFFINITY, f'required pod anti-affinity over "{term.topology_key}"'
    for volume in shape.volumes:
        return Constraint.VOLUME, f'volume "{volume.name}" on a PersistentVolumeClaim'
    for claim in shape.resource_claims:
        return Constraint.RESOURCE, f'resource claim "{claim}"'
    return None


def _unsupported_reason(shape: PodShape) -> PoolRejection | None:
    unsupported = _unsupported(shape)
    if unsupported is None:
        return None
    constraint, what = unsupported
    return PoolRejection(constraint=constraint, detail=f"{what} is not supported yet")
