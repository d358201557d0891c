"""Runs the solver's engine for what-ifs that need more than existing nodes.

The engine gets a small problem: the classes that are left, and only the nodes that take any of
them. Everything else of the compiled problem is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar, final, overload

import numpy as np
from msgspec.structs import replace

from karpenter_core.scheduling.compiled.domain_counts import InitialCounts
from karpenter_core.scheduling.compiled.topology import TopologyKind
from karpenter_core.scheduling.placement.engine import PlacementEngine
from karpenter_core.scheduling.portfolio.finished_plan import emit_steps, finish_steps, place_steps
from karpenter_core.scheduling.portfolio.plan_portfolio import portfolio_steps
from karpenter_core.scheduling.portfolio.plan_profiles import FIRST_FIT
from karpenter_core.scheduling.steps import run_steps

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from numpy.typing import NDArray

    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.arrays import Amounts, Counts, Mask, Numbers
    from karpenter_core.scheduling.compiled.class_topology import ClassTopology
    from karpenter_core.scheduling.compiled.pod_classes import PodClass
    from karpenter_core.scheduling.compiled.problem import CompiledProblem
    from karpenter_core.scheduling.portfolio.finished_plan import FinishedPlan, PlanPlacement
    from karpenter_core.scheduling.problem import ExistingNode, PlannedNodeClaim
    from karpenter_core.scheduling.whatif.base_state import BaseState
    from karpenter_core.scheduling.whatif.first_fit import ClassPods
    from karpenter_core.scheduling.whatif.overlay import ClusterOverlay

__all__ = ["SolverRun", "run_first_fit", "run_plans"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _SolverProblem:
    """A small problem: `classes` and `slots` say what its classes and nodes are in the base."""

    compiled: CompiledProblem
    classes: tuple[int, ...]
    slots: tuple[int, ...]


@final
class SolverRun:
    """The engine's result: pods on nodes, claims to open, and the pods that are left.

    Of several runs most are needed for their price alone: placements are computed on demand.
    """

    def __init__(self, question: _SolverProblem, plan: FinishedPlan) -> None:
        self._question: Final = question
        self._plan: Final = plan
        self.cost_per_hour: Final = plan.cost_per_hour
        self.claims: Final = len(plan.sized_claims)
        """The number of planned claims."""
        self.waiting: Final = sum(plan.left.values())
        """The number of pods that remain."""

    @cached_property
    def _placement(self) -> PlanPlacement:
        return run_steps(place_steps(self._plan))

    @cached_property
    def left(self) -> tuple[PodView, ...]:
        """The pods that are left."""
        return tuple(pod for _, pods in sorted(self._placement.left.items()) for pod in pods)

    @property
    def sequence(self) -> tuple[str, ...]:
        """UIDs in the order of placing."""
        return tuple(self._placement.sequence)

    def moves(self) -> list[tuple[int, int, tuple[PodView, ...]]]:
        """Return what goes to nodes: class, slot, pods."""
        existing = len(self._question.slots)
        members = [iter(c.members) for c in self._question.compiled.classes]
        moves: list[tuple[int, int, tuple[PodView, ...]]] = []
        for index, columns, counts in self._plan.engine.nodes.log:
            for column, count in zip(columns, counts, strict=True):
                pods = tuple(next(members[index]) for _ in range(count))
                if column < existing:
                    moves.append(
                        (self._question.classes[index], self._question.slots[column], pods)
                    )
        return moves

    def changed(self) -> dict[int, tuple[list[int], int]]:
        """Return what is then free on nodes, and their signatures, by slot."""
        nodes = self._plan.engine.nodes
        used = np.flatnonzero(nodes.used[:, : nodes.existing].any(axis=0))
        return {
            self._question.slots[column]: (
                nodes.free[:, column].tolist(),
                int(nodes.signature[column]),
            )
            for column in used.tolist()
        }

    def planned(self) -> tuple[PlannedNodeClaim, ...]:
        """Write the claims down."""
        return run_steps(emit_steps(self._plan, self._placement))


def run_first_fit(
    base: BaseState,
    overlay: ClusterOverlay,
    class_pods: Sequence[ClassPods],
    *,
    placed: Iterable[ClassPods],
    nodes: bool,
    max_claims: int | None,
) -> SolverRun | None:
    """Place pods as the first-fit plan does, after those that are `placed`.

    Without `nodes` on new claims only. None as soon as there are more than `max_claims`.
    """
    question = _solver_problem(base, overlay, class_pods, placed=placed, nodes=nodes)
    engine = PlacementEngine(question.compiled, FIRST_FIT)
    most = inf if max_claims is None else len(question.slots) + max_claims
    for _ in engine.steps():
        if engine.nodes.count > most:
            return None
    return SolverRun(question, run_steps(finish_steps(engine)))


def run_plans(
    base: BaseState, overlay: ClusterOverlay, class_pods: Sequence[ClassPods]
) -> tuple[SolverRun, ...]:
    """Place pods as the best of the solver's plans does, and as the first-fit plan."""
    question = _solver_problem(base, overlay, class_pods, placed=(), nodes=True)
    plans = run_steps(portfolio_steps(question.compiled, reported=False))
    if plans.best is plans.first_fit:
        return (SolverRun(question, plans.best),)
    return SolverRun(question, plans.best), SolverRun(question, plans.first_fit)


def _solver_problem(
    base: BaseState,
    overlay: ClusterOverlay,
    class_pods: Sequence[ClassPods],
    *,
    placed: Iterable[ClassPods],
    nodes: bool,
) -> _SolverProblem:
    compiled = base.compiled
    numbers = [number for number, _ in class_pods]
    requests = compiled.requests[:, numbers]
    in_play = frozenset[int]().union(*(base.plans[n].owned for n, _ in (*class_pods, *placed)))
    classes, topologies = zip(*(_narrowed(base, work, in_play) for work in class_pods), strict=True)
    host = {
        group.index: group
        for relaxation_steps in topologies
        for relaxation_step in relaxation_steps
        for group in relaxation_step.host
    }
    slots = np.empty(0, dtype=np.int64)
    free = np.empty((len(compiled.resources), 0), dtype=np.int64)
    if nodes:
        near = {
            slot
            for index, group in host.items()
            if group.kind is TopologyKind.AFFINITY
            for slot in overlay.counted_slots(index)
        }
        slots, free = _columns(base, overlay, numbers, near)
    chosen: list[int] = slots.tolist()
    signatures = base.fitting_nodes.signature[slots]
    for slot, signature in overlay.signatures.items():
        signatures[slots == slot] = signature
    return _SolverProblem(
        classes=tuple(numbers),
        slots=tuple(chosen),
        compiled=with_fields(
            compiled,
            classes=classes,
            requests=requests,
            topologies=topologies,
            pools=tuple(
                pool.with_freed_limits(overlay.freed(pool.name, pool.freed_names))
                if pool.freed_names
                else pool
                for pool in compiled.pools
            ),
            nodes=_NodeSequence(overlay, chosen),
            node_free=free,
            node_signatures=signatures,
            initial_counts=InitialCounts(
                known_domains=_known_domains(base, overlay),
                zonal=_zonal(base, overlay),
                possible_counts=_possible_counts(base, overlay),
                host={index: overlay.host_counts(index, slots) for index in host if len(slots)},
            ),
        ),
    )


@final
class _NodeSequence(Sequence["ExistingNode"]):
    """The nodes of a what-if, read on demand: mostly only their number is needed."""

    def __init__(self, overlay: ClusterOverlay, slots: Sequence[int]) -> None:
        self._overlay: Final = overlay
        self._slots: Final = slots

    def __len__(self) -> int:
        return len(self._slots)

    @overload
    def __getitem__(self, index: int) -> ExistingNode: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ExistingNode, ...]: ...
    def __getitem__(self, index: int | slice) -> ExistingNode | tuple[ExistingNode, ...]:
        if isinstance(index, slice):
            return tuple(self._overlay.node(slot) for slot in self._slots[index])
        return self._overlay.node(self._slots[index])


def _narrowed(
    base: BaseState, work: ClassPods, in_play: frozenset[int]
) -> tuple[PodClass, tuple[ClassTopology, ...]]:
    """Return a class with these pods, counted only by groups that are read.

    Others would only make it choose a domain where it need not have one.
    """
    (number, pods), compiled = work, base.compiled
    pod_class, topology = compiled.classes[number], compiled.topologies[number]
    counted = tuple(
        g for g in pod_class.counted if g.index in in_play or g.kind is TopologyKind.INVERSE
    )
    if len(counted) < len(pod_class.counted):
        axes = {base.axis_of(group) for group in counted if not group.is_host}
        topology = tuple(
            replace(one, counted_axes=tuple(axis for axis in one.counted_axes if axis in axes))
            for one in topology
        )
    return replace(pod_class, members=list(pods), counted=counted), topology


def _columns(
    base: BaseState, overlay: ClusterOverlay, numbers: Sequence[int], near: set[int]
) -> tuple[Numbers, Amounts]:
    """Return the nodes that may take anything, in their order, and resources x nodes free there.

    Beside them those `near` which some pods want to be, even if nothing fits there.
    """
    fitting_nodes = base.fitting_nodes
    may = fitting_nodes.fitting_mask(numbers)
    may[fitting_nodes.positions(overlay.removed)] = False
    may[fitting_nodes.positions(near)] = True
    slots = fitting_nodes.order[may]
    free = fitting_nodes.free[:, slots]
    closed = [slot for slot in near if slot in overlay.removed or slot in fitting_nodes.excluded]
    if overlay.free or closed:
        columns = {slot: column for column, slot in enumerate(slots.tolist())}
        for slot, room in overlay.free.items():
            if slot in columns:
                free[:, columns[slot]] = room
        free[:, [columns[slot] for slot in closed]] = -1
    return slots, free


def _zonal(base: BaseState, overlay: ClusterOverlay) -> tuple[Counts, ...]:
    cells = np.frombuffer(base.cells, dtype=np.int64).copy()
    for cell, difference in overlay.cells.items():
        cells[cell] += difference
    return tuple(_by_axis(base, cells))


def _possible_counts(base: BaseState, overlay: ClusterOverlay) -> dict[tuple[int, int], Counts]:
    """Return the pods that may turn out to be somewhere: by axis and group, domains."""
    if not base.possible_counts and not overlay.possible_counts:
        return {}
    counts = np.zeros(len(base.made), dtype=np.int64)
    for cells in (base.possible_counts, overlay.possible_counts):
        for cell, count in cells.items():
            counts[cell] += count
    return {
        (axis, int(line)): table[line]
        for axis, table in enumerate(_by_axis(base, counts))
        for line in np.flatnonzero(table.any(axis=1))
    }


def _known_domains(base: BaseState, overlay: ClusterOverlay) -> tuple[Mask, ...]:
    known = np.frombuffer(base.made, dtype=np.bool_).copy()
    for cell, witnesses in base.witnesses.items():
        known[cell] = witnesses > 0
    for cell, is_known in overlay.known.items():
        known[cell] = is_known
    return tuple(_by_axis(base, known))


_Kind = TypeVar("_Kind", bound=np.generic)


def _by_axis(base: BaseState, cells: NDArray[_Kind]) -> Generator[NDArray[_Kind], None, None]:
    for axis, start in zip(base.compiled.axes, base.offsets, strict=True):
        size = len(axis.groups) * len(axis.names)
        yield cells[start : start + size].reshape(len(axis.groups), len(axis.names))
