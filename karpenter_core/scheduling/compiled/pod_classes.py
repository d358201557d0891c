"""Groups pods that are equal to the scheduler into pod classes.

Members differ in name, UID and age only. A class has a list of relaxation steps (`relaxation`). A
class whose step leaves pods over goes on with the next step; members are alike, so the result is
the same as pod by pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, final

from msgspec import Struct, field

from karpenter_core.api.labels import (
    ALIASES,
    CPU,
    MEMORY,
    PODS,
)
from karpenter_core.scheduling.compiled.pod_constraints import MOST_RESOURCES, PodConstraintsReader
from karpenter_core.scheduling.compiled.topology import TopologyGroup, TopologyGroups, TopologyKind
from karpenter_core.scheduling.compiled.volumes import VolumeAttachments
from karpenter_core.scheduling.problem import PodVolumes

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Mapping, Sequence

    from karpenter_core.api.records import (
        HostPort,
        PodShape,
        PodView,
        Resources,
        Toleration,
    )
    from karpenter_core.scheduling.compiled.pod_constraints import PodConstraints
    from karpenter_core.scheduling.compiled.relaxation import RelaxationStep
    from karpenter_core.scheduling.problem import PoolRejection, SchedulingProblem, SolveOptions
    from karpenter_core.scheduling.requirements import Requirements

__all__ = [
    "ClassRelaxationStep",
    "NodeConstraints",
    "PodClass",
    "PodClassifier",
    "classify_pods_steps",
]

PODS_PER_STEP: Final = 1000
"""The number of pods processed between two yields: one to three milliseconds, or two work units."""

_BEGINNING: Final = datetime.min.replace(tzinfo=UTC)
_NO_VOLUMES: Final = PodVolumes()
_MAX_SHAPES: Final = 10_000
"""Shapes of new pods whose class is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeConstraints:
    """The constraints of pods on the node itself; interned, `index` is its identity.

    One of `alternatives` must hold, tried in order (the zones a volume may be attached in).
    `present` are labels that must exist although their requirement alone does not demand it.
    """

    index: int
    alternatives: tuple[Requirements, ...]
    tolerations: tuple[Toleration, ...]
    host_ports: tuple[HostPort, ...]
    present: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassRelaxationStep:
    """The constraints of a class at one relaxation step: on the node, and on other pods.

    `strict` are its labels without preferences and volumes: the domains it may be in at all.
    `owned` are the groups of its own constraints, `bound` all groups that restrict it.
    """

    node_constraints: NodeConstraints
    requirements: Requirements
    strict: Requirements
    owned: tuple[TopologyGroup, ...]
    bound: tuple[TopologyGroup, ...]


class PodClass(Struct, kw_only=True, eq=False):
    """Pods that are alike to the scheduler, oldest first.

    `blocked` says why none of them can be placed anywhere, whatever there is. `counted` are the
    groups whose counts grow with every member. `volumes` are the volume claims that members share
    with other pods, by driver (a volume of one pod alone is a resource).
    """

    shape: PodShape
    requests: Resources
    relaxation_steps: tuple[ClassRelaxationStep, ...]
    last_relaxation_step: int = 0
    """Index of the last relaxation step; an equal one may come before others."""
    counted: tuple[TopologyGroup, ...] = ()
    shared_volumes: tuple[tuple[str, str], ...] = ()
    volume_alternatives: tuple[Requirements, ...] = ()
    """Alternatives for nodes that can attach its volumes; one must hold (none: any node)."""
    members: list[PodView] = field(default_factory=list["PodView"])
    blocked: PoolRejection | None = None

    @property
    def queue_order(self) -> tuple[bool, int, int, datetime, str]:
        """Large pods first, then old ones (upstream's order, by the oldest member).

        Virtual pods that give way come after all others.
        """
        created, uid = pod_order(self.members[0])
        cpu, memory = self.requests.get(CPU, 0), self.requests.get(MEMORY, 0)
        return (self.shape.gives_way, -cpu, -memory, created, uid)


def pod_order(pod: PodView) -> tuple[datetime, str]:
    """Sort pods by age, then UID."""
    return (pod.created or _BEGINNING, pod.uid)


def classify_pods_steps(
    problem: SchedulingProblem,
    options: SolveOptions,
    *,
    repelling: Iterable[PodShape],
    with_devices: bool,
) -> Generator[int, None, tuple[tuple[PodClass, ...], PodClassifier]]:
    """Sort the pods of a problem into classes, in the order in which they are to be placed.

    Returns the classes, and the classifier with all topology groups of the pass. `repelling` are the shapes of running
    pods with anti-affinity, which keeps other pods away. `with_devices`: pods may have
    ResourceClaims, and each pod is a class of its own.
    """
    reader = _PodClassReader(problem, options, with_devices=with_devices)
    constraints_reader: dict[int, PodConstraints] = {}
    for number, pod in enumerate(problem.pods, start=1):
        if id(pod.shape) not in constraints_reader:
            constraints_reader[id(pod.shape)] = reader.constraints_reader.read(pod.shape)
        if number % PODS_PER_STEP == 0:
            yield 2
    reader.read_repelling(repelling)
    yield 5
    keys: dict[int, object] = {}
    classes: dict[object, PodClass] = {}
    volumes, attachments = problem.volumes, VolumeAttachments(problem)
    for number, pod in enumerate(problem.pods, start=1):
        shape = pod.shape
        key = keys.get(id(shape))
        if key is None:
            key = keys[id(shape)] = reader.key(shape, constraints_reader[id(shape)])
        own = volumes.get(pod.uid) if volumes else None
        whole = key if own is None else (key, own.alternatives, attachments.signature(own))
        if with_devices:
            whole = (whole, pod.uid)
        pod_class_found = classes.get(whole)
        if pod_class_found is None:
            pod_class_found = classes[whole] = reader.make(
                shape, constraints_reader[id(shape)], own or _NO_VOLUMES, attachments
            )
        pod_class_found.members.append(pod)
        if number % PODS_PER_STEP == 0:
            yield 2
    ordered = _in_queue_order(classes.values())
    return ordered, PodClassifier(reader, classes, ordered)


@final
class PodClassifier:
    """Finds the classes of pods that were not there when the classes were made."""

    def __init__(
        self,
        reader: _PodClassReader,
        classes: Mapping[object, PodClass],
        ordered: Sequence[PodClass],
    ) -> None:
        self.groups: Final = reader.groups
        self._reader: Final = reader
        self._groups_count: Final = len(reader.groups.all)
        positions = {id(pod_class): number for number, pod_class in enumerate(ordered)}
        self._numbers: Final = {key: positions[id(pod_class)] for key, pod_class in classes.items()}
        self._by_shape: Final = dict[int, "tuple[PodShape, int | None]"]()

    @property
    def is_outdated(self) -> bool:
        """Whether some pod has brought topology groups of its own: the classes are to be made anew."""
        return len(self.groups.all) > self._groups_count

    def class_number(self, shape: PodShape) -> int | None:
        """Return the class of pods of a shape without volumes; None if there is none."""
        known = self._by_shape.get(id(shape))
        if known is None:
            if len(self._by_shape) > _MAX_SHAPES:
                self._by_shape.clear()
            constraints = self._reader.constraints_reader.read(shape)
            number = None
            if not self.is_outdated:
                number = self._numbers.get(self._reader.key(shape, constraints))
            known = self._by_shape[id(shape)] = (shape, number)
        return known[1]

    def knows_groups_of(self, shape: PodShape) -> bool:
        """Whether the groups that a running pod's anti-affinity makes are there."""
        if shape.pod_anti_affinity:
            self.groups.inverse_of(shape)
        return not self.is_outdated


def _in_queue_order(classes: Collection[PodClass]) -> tuple[PodClass, ...]:
    for pod_class in classes:
        if len(pod_class.members) > 1:
            pod_class.members.sort(key=pod_order)
    return tuple(sorted(classes, key=lambda pod_class: pod_class.queue_order))


@final
class _PodClassReader:
    """Makes classes of what shapes ask for, and interns it."""

    def __init__(
        self, problem: SchedulingProblem, options: SolveOptions, *, with_devices: bool
    ) -> None:
        aliases = {**ALIASES, **problem.aliases}
        self.groups: Final = TopologyGroups(lambda: _namespaces(problem), aliases=aliases)
        self.constraints_reader: Final = PodConstraintsReader(
            problem, options, self.groups, with_devices=with_devices
        )
        self._asks: Final = dict[object, NodeConstraints]()
        self._relaxation_steps: Final = dict[object, tuple[tuple[ClassRelaxationStep, ...], int]]()

    def read_repelling(self, shapes: Iterable[PodShape]) -> None:
        """Read the anti-affinity of running pods, which keeps other pods away."""
        seen: set[int] = set()
        for shape in shapes:
            if id(shape) not in seen:
                seen.add(id(shape))
                self.groups.inverse_of(shape)

    def key(self, shape: PodShape, constraints: PodConstraints) -> object:
        """Return everything a placement reads of a shape; equal keys are one class."""
        return (
            constraints.number,
            tuple(sorted(shape.requests.items())),
            _ports(shape),
            self.groups.selecting(shape),
            shape.virtual_source,
        )

    def make(
        self,
        shape: PodShape,
        constraints: PodConstraints,
        volumes: PodVolumes,
        attachments: VolumeAttachments,
    ) -> PodClass:
        """Make a class of the pods of a shape with such volumes."""
        selecting = self.groups.selecting(shape)
        avoided_by = tuple([group for group in selecting if group.kind is TopologyKind.INVERSE])
        key = (constraints.number, avoided_by, _ports(shape), volumes.alternatives)
        cached_steps = self._relaxation_steps.get(key)
        if cached_steps is None:
            cached_steps = self._relaxation_steps[key] = self._make_relaxation_steps(
                shape, constraints, volumes, avoided_by
            )
        relaxation_steps, last = cached_steps
        # A pod that requests too many is never placed.
        is_placed = len(shape.requests) <= MOST_RESOURCES
        return PodClass(
            shape=shape,
            requests={
                PODS: 1,
                **{name: max(amount, 0) for name, amount in shape.requests.items() if is_placed},
                **attachments.requests(volumes),
            },
            relaxation_steps=relaxation_steps,
            last_relaxation_step=last,
            counted=(
                *[g for g in selecting if g.kind is not TopologyKind.INVERSE],
                *constraints.inverse,
            ),
            shared_volumes=attachments.shared(volumes),
            volume_alternatives=volumes.alternatives,
            blocked=constraints.blocked,
        )

    def _make_relaxation_steps(
        self,
        shape: PodShape,
        constraints: PodConstraints,
        volumes: PodVolumes,
        avoided_by: tuple[TopologyGroup, ...],
    ) -> tuple[tuple[ClassRelaxationStep, ...], int]:
        """Return the distinct steps, and the index of the last one among them."""
        relaxation_steps = [
            ClassRelaxationStep(
                node_constraints=self._node_constraints(step, volumes, _ports(shape)),
                requirements=step.labels.requirements,
                strict=step.strict,
                owned=owned,
                bound=tuple(dict.fromkeys((*owned, *avoided_by))),
            )
            for step, owned in zip(constraints.steps, constraints.owned, strict=True)
        ]
        distinct = _distinct(relaxation_steps)
        last = next(
            (
                n
                for n, relaxation_step in enumerate(distinct)
                if _identity(relaxation_step) == _identity(relaxation_steps[-1])
            ),
            0,
        )
        return distinct, last

    def _node_constraints(
        self, step: RelaxationStep, volumes: PodVolumes, ports: tuple[HostPort, ...]
    ) -> NodeConstraints:
        requirements, present = step.labels.requirements, step.labels.present
        alternatives = (requirements,)
        if volumes.alternatives:
            alternatives = tuple(
                dict.fromkeys(
                    requirements.merge(one)
                    for one in volumes.alternatives
                    if all(requirements.get(r.key).admits(r) for r in one.values())
                )
            )
        key = (alternatives, step.tolerations, ports, present)
        node_constraints = self._asks.get(key)
        if node_constraints is None:
            node_constraints = self._asks[key] = NodeConstraints(
                index=len(self._asks),
                alternatives=alternatives,
                tolerations=step.tolerations,
                host_ports=ports,
                present=present,
            )
        return node_constraints


def _ports(shape: PodShape) -> tuple[HostPort, ...]:
    return tuple(sorted(shape.host_ports, key=str)) if shape.host_ports else ()


def _distinct(relaxation_steps: Iterable[ClassRelaxationStep]) -> tuple[ClassRelaxationStep, ...]:
    """Return one of each kind, where it comes first: the one that asks for the least."""
    kept: dict[object, ClassRelaxationStep] = {}
    for relaxation_step in relaxation_steps:
        kept[_identity(relaxation_step)] = relaxation_step
    return tuple(kept.values())


def _identity(relaxation_step: ClassRelaxationStep) -> object:
    """Return the key by which two relaxation steps are equal."""
    return relaxation_step.node_constraints.index, relaxation_step.strict, relaxation_step.bound


def _namespaces(problem: SchedulingProblem) -> Mapping[str, Mapping[str, str]]:
    """Return the labels of all namespaces; none for unknown ones."""
    names = {pod.shape.namespace for pod in problem.pods}
    names.update(pod.shape.namespace for node in problem.nodes for pod in node.pods)
    return {**{name: dict[str, str]() for name in sorted(names)}, **problem.namespaces}
