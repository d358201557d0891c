"""Pods that a scheduler cannot tell apart are one class, placed as one.

Members differ in name, UID and age only. What a class asks is a ladder of rungs, one for each step
of relaxation (`ladder`). A class whose rung fails goes on with the next; members are alike, so that
equals the procedure pod by pod.
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
from karpenter_core.scheduling.compiled.drafts import Drafts
from karpenter_core.scheduling.compiled.topology import Group, Groups, Kind
from karpenter_core.scheduling.compiled.volumes import Attachments
from karpenter_core.scheduling.problem import PodVolumes

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from karpenter_core.api.records import (
        HostPort,
        PodShape,
        PodView,
        Resources,
        Toleration,
    )
    from karpenter_core.scheduling.compiled.drafts import Draft
    from karpenter_core.scheduling.compiled.ladder import Step
    from karpenter_core.scheduling.problem import PoolRejection, Problem, SolveOptions
    from karpenter_core.scheduling.requirements import Requirements

__all__ = ["Ask", "ClassIndex", "PodClass", "Rung", "classify_steps"]

PODS_PER_STEP: Final = 1000
"""Pods looked at between two yields: one to three milliseconds, or two work units."""

_BEGINNING: Final = datetime.min.replace(tzinfo=UTC)
_NO_VOLUMES: Final = PodVolumes()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ask:
    """What is asked of a node itself; interned, `index` is its identity.

    One of `alternatives` must hold, tried in order (the zones a volume may be attached in).
    `present` are labels that must be there although their requirement alone does not say so.
    """

    index: int
    alternatives: tuple[Requirements, ...]
    tolerations: tuple[Toleration, ...]
    host_ports: tuple[HostPort, ...]
    present: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rung:
    """What a class asks at one step of relaxation: of the node, and of the pods around.

    `strict` are its labels without preferences and volumes: the domains it may be in at all.
    `owned` are the groups of its own constraints, `bound` all groups that restrict it.
    """

    ask: Ask
    requirements: Requirements
    strict: Requirements
    owned: tuple[Group, ...]
    bound: tuple[Group, ...]


class PodClass(Struct, kw_only=True, eq=False):
    """Pods that are alike to the scheduler, oldest first.

    `blocked` says why none of them can be placed anywhere, whatever there is. `counted` are the
    groups whose counts grow with every member. `volumes` are the volume claims that members share
    with other pods, by driver (a volume of one pod alone is a resource).
    """

    shape: PodShape
    requests: Resources
    rungs: tuple[Rung, ...]
    last_rung: int = 0
    """The rung of the last step of relaxation; one like it may come before others."""
    counted: tuple[Group, ...] = ()
    shared_volumes: tuple[tuple[str, str], ...] = ()
    volume_alternatives: tuple[Requirements, ...] = ()
    """Where its volumes can be attached; one must hold (none: anywhere)."""
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
) -> Generator[int, None, tuple[tuple[PodClass, ...], ClassIndex]]:
    """Sort the pods of a problem into classes, in the order in which they are to be placed.

    Returns the classes, and what finds the class of a pod that comes later.
    """
    reader = _Reader(problem, options)
    drafts: dict[int, Draft] = {}
    for number, pod in enumerate(problem.pods, start=1):
        if id(pod.shape) not in drafts:
            drafts[id(pod.shape)] = reader.drafts.of(pod.shape)
        if number % PODS_PER_STEP == 0:
            yield 2
    reader.read_bound_pods()
    yield 5
    keys: dict[int, object] = {}
    classes: dict[object, PodClass] = {}
    volumes, attachments = problem.volumes, Attachments(problem)
    for number, pod in enumerate(problem.pods, start=1):
        shape = pod.shape
        key = keys.get(id(shape))
        if key is None:
            key = keys[id(shape)] = reader.key(shape, drafts[id(shape)])
        own = volumes.get(pod.uid) if volumes else None
        whole = key if own is None else (key, own.alternatives, attachments.signature(own))
        found = classes.get(whole)
        if found is None:
            found = classes[whole] = reader.make(
                shape, drafts[id(shape)], own or _NO_VOLUMES, attachments
            )
        found.members.append(pod)
        if number % PODS_PER_STEP == 0:
            yield 2
    for found in classes.values():
        if len(found.members) > 1:
            found.members.sort(key=pod_order)
    ordered = sorted(classes.values(), key=lambda pod_class: pod_class.queue_order)
    return tuple(ordered), ClassIndex(reader, classes, attachments)


@final
class ClassIndex:
    """The classes of a pass by what makes them; `groups` are all topology groups of the pass."""

    def __init__(
        self, reader: _Reader, classes: Mapping[object, PodClass], attachments: Attachments
    ) -> None:
        self.groups: Final = reader.groups
        self._reader: Final = reader
        self._classes: Final = classes
        self._attachments: Final = attachments

    def find(self, shape: PodShape, volumes: PodVolumes | None = None) -> PodClass | None:
        """Return the class of a pod that was not there when the pass was compiled.

        None when there is no such class; then the pass has to be compiled anew, for the pod may
        have brought groups that nobody has counted.
        """
        known = len(self.groups.all)
        draft = self._reader.drafts.of(shape)
        if len(self.groups.all) != known:
            return None
        key: object = self._reader.key(shape, draft)
        if volumes is not None:
            if not self._attachments.knows(volumes):
                return None
            key = (key, volumes.alternatives, self._attachments.signature(volumes))
        return self._classes.get(key)


@final
class _Reader:
    """Makes classes of what shapes ask for, and interns it."""

    def __init__(self, problem: Problem, options: SolveOptions) -> None:
        self._problem: Final = problem
        aliases = {**ALIASES, **problem.aliases}
        self.groups: Final = Groups(lambda: _namespaces(problem), aliases=aliases)
        self.drafts: Final = Drafts(problem, options, self.groups)
        self._asks: Final = dict[object, Ask]()
        self._rungs: Final = dict[object, tuple[tuple[Rung, ...], int]]()

    def read_bound_pods(self) -> None:
        """Know the pods that others must keep away from, wherever they run."""
        seen: set[int] = set()
        for node in self._problem.nodes:
            for pod in node.pods:
                shape = pod.shape
                if id(shape) not in seen:
                    seen.add(id(shape))
                    if shape.pod_anti_affinity:
                        self.groups.inverse_of(shape)

    def key(self, shape: PodShape, draft: Draft) -> object:
        """Return everything a placement reads of a shape; equal keys are one class."""
        return (
            draft.number,
            tuple(sorted(shape.requests.items())),
            _ports(shape),
            self.groups.selecting(shape),
        )

    def make(
        self, shape: PodShape, draft: Draft, volumes: PodVolumes, attachments: Attachments
    ) -> PodClass:
        """Make a class of the pods of a shape with such volumes."""
        selecting = self.groups.selecting(shape)
        avoided_by = tuple([group for group in selecting if group.kind is Kind.INVERSE])
        key = (draft.number, avoided_by, _ports(shape), volumes.alternatives)
        known = self._rungs.get(key)
        if known is None:
            known = self._rungs[key] = self._make_rungs(shape, draft, volumes, avoided_by)
        rungs, last = known
        return PodClass(
            shape=shape,
            requests={
                PODS: 1,
                **{name: max(amount, 0) for name, amount in shape.requests.items()},
                **attachments.requests(volumes),
            },
            rungs=rungs,
            last_rung=last,
            counted=(*[g for g in selecting if g.kind is not Kind.INVERSE], *draft.inverse),
            shared_volumes=attachments.shared(volumes),
            volume_alternatives=volumes.alternatives,
            blocked=draft.blocked,
        )

    def _make_rungs(
        self,
        shape: PodShape,
        draft: Draft,
        volumes: PodVolumes,
        avoided_by: tuple[Group, ...],
    ) -> tuple[tuple[Rung, ...], int]:
        """Return the rungs, and which of them is that of the last step."""
        rungs = [
            Rung(
                ask=self._ask(step, volumes, _ports(shape)),
                requirements=step.requirements,
                strict=step.strict,
                owned=owned,
                bound=tuple(dict.fromkeys((*owned, *avoided_by))),
            )
            for step, owned in zip(draft.steps, draft.owned, strict=True)
        ]
        distinct = _distinct(rungs)
        last = next((n for n, rung in enumerate(distinct) if _like(rung) == _like(rungs[-1])), 0)
        return distinct, last

    def _ask(self, step: Step, volumes: PodVolumes, ports: tuple[HostPort, ...]) -> Ask:
        alternatives = (step.requirements,)
        if volumes.alternatives:
            alternatives = tuple(
                dict.fromkeys(
                    step.requirements.merge(one)
                    for one in volumes.alternatives
                    if all(step.requirements.get(r.key).admits(r) for r in one.values())
                )
            )
        key = (alternatives, step.tolerations, ports, step.present)
        known = self._asks.get(key)
        if known is None:
            known = self._asks[key] = Ask(
                index=len(self._asks),
                alternatives=alternatives,
                tolerations=step.tolerations,
                host_ports=ports,
                present=step.present,
            )
        return known


def _ports(shape: PodShape) -> tuple[HostPort, ...]:
    return tuple(sorted(shape.host_ports, key=str)) if shape.host_ports else ()


def _distinct(rungs: Iterable[Rung]) -> tuple[Rung, ...]:
    """Return one of each kind, where it comes first: the one that asks for the least."""
    kept: dict[object, Rung] = {}
    for rung in rungs:
        kept[_like(rung)] = rung
    return tuple(kept.values())


def _like(rung: Rung) -> object:
    """Return what makes two rungs the same."""
    return rung.ask.index, rung.strict, rung.bound


def _namespaces(problem: Problem) -> Mapping[str, Mapping[str, str]]:
    """Return the labels of all namespaces; of one that nobody described, none."""
    names = {pod.shape.namespace for pod in problem.pods}
    names.update(pod.shape.namespace for node in problem.nodes for pod in node.pods)
    return {**{name: dict[str, str]() for name in sorted(names)}, **problem.namespaces}
