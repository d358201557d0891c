"""Compiles the cluster for what-ifs: every node with its movable pods.

Compiled once with every pod that may ever have to move, so that all classes and groups are known. A
node has a *slot*. The counts of its pods are kept for each node, so that removing a node is one
subtraction.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

import numpy as np

from karpenter_core.scheduling.compiled.domain_counts import (
    counting_groups,
    counts_on_node,
    domains_of,
    known_domains,
    open_domains_of,
)
from karpenter_core.scheduling.compiled.pod_classes import pod_order
from karpenter_core.scheduling.compiled.signatures import NO_MATCH, DomainPin
from karpenter_core.scheduling.compiled.topology import TopologyKind
from karpenter_core.scheduling.whatif.fitting_nodes import FittingNodes, class_plan
from karpenter_core.scheduling.whatif.host_counts import HostCounts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from karpenter_core.api.records import PodShape, PodView
    from karpenter_core.scheduling.arrays import Mask
    from karpenter_core.scheduling.compiled.problem import CompiledProblem
    from karpenter_core.scheduling.compiled.topology import TopologyGroup
    from karpenter_core.scheduling.problem import ExistingNode

__all__ = ["BaseNode", "BaseState", "CountEffects", "PodChange"]

_AMPLE: Final = 1000
"""New nodes for which limits leave room where it does not matter how many a question takes."""


@dataclass(slots=True)
class CountEffects:
    """The counts that pods add: by group on their node, by cell in their domains.

    `possible_counts` are cells where they may be, on claims whose domain is still open.
    """

    host: dict[int, int] = field(default_factory=dict[int, int])
    cells: dict[int, int] = field(default_factory=dict[int, int])
    possible_counts: dict[int, int] = field(default_factory=dict[int, int])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BaseNode:
    """One node: its free resources, and the pods that leave with it, by class.

    `leaving_pods` are in the order in which the solver places them.
    """

    node: ExistingNode
    signature: int
    free: list[int]
    leaving_pods: tuple[tuple[int, tuple[PodView, ...]], ...]
    staying: CountEffects
    moving: CountEffects


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PodChange:
    """The pods that came and went between two states; one that only moved is both.

    `came` are those that may have to move, now or later, `staying` others on changed nodes. `left` are
    those that might have had to move.
    """

    came: Sequence[PodView]
    staying: Sequence[PodView]
    left: Sequence[PodView]
    with_volumes: Collection[str]
    """UIDs of pods whose class depends on their volumes, too."""


@final
class BaseState:
    """All nodes of a compiled problem whose pods are `movable` (UIDs), with every count."""

    def __init__(
        self,
        compiled: CompiledProblem,
        movable: Mapping[str, Collection[str]],
    ) -> None:
        self.compiled: Final = compiled
        self.slots: Final = dict[str, int]()
        """Slots by the names of nodes."""
        self.base_nodes: Final = dict[int, BaseNode]()
        self.host: Final = HostCounts()
        """Pods counted by each host name group, by slot."""
        self.offsets: Final = list[int]()
        """Index of the first cell (group row times domains) of each axis."""
        self.made: Final = self._lay_out_cells()
        """Whether the domain of each cell is known because pools launch nodes there."""
        self.plans: Final = tuple(
            class_plan(compiled, number, self.cell) for number in range(len(compiled.classes))
        )
        self.fitting_nodes: Final = FittingNodes(compiled, self.plans, self.host)
        self.cells: Final = array("q", bytes(8 * len(self.made)))
        """Pods counted in each cell."""
        self.possible_counts: Final = dict[int, int]()
        """Pods that affinity asks for and that may turn out to be in a cell."""
        self.witnesses: Final = dict[int, int]()
        """Nodes that make any other cell's domain known."""
        self._class_of: Final = {
            pod.uid: number for number, c in enumerate(compiled.classes) for pod in c.members
        }
        self._groups_of: Final = dict[int, "tuple[PodShape, tuple[TopologyGroup, ...]]"]()
        self._axes: Final = {axis.key: axis.number for axis in compiled.axes}
        self._cells_of: Final = dict[tuple[int, int], "tuple[int, ...] | None"]()
        self._effects: Final = dict[tuple[int, int], tuple[tuple[int, ...], tuple[int, ...]]]()
        self._made_from: Final = dict[tuple[int, int], tuple[bool, ...]]()
        self._can_open: Final = dict[tuple[int, int, int], bool]()
        self._witnessed: Final = dict[int, tuple[int, ...]]()
        self._members: Final = [len(c.members) for c in compiled.classes]
        """The number of pods of each class."""
        for node in compiled.nodes:
            self._put(node, frozenset(movable.get(node.name, ())))

    def _lay_out_cells(self) -> bytes:
        known_by_axis: list[Mask] = []
        total = 0
        for axis in self.compiled.axes:
            self.offsets.append(total)
            total += len(axis.groups) * len(axis.names)
            nothing = np.empty(0, dtype=np.int64)
            known_by_axis.append(known_domains(axis, (), self.compiled.signatures, nothing).ravel())
        return np.concatenate(known_by_axis).tobytes() if known_by_axis else b""

    # -- nodes ---------------------------------------------------------------------------------

    def _put(self, node: ExistingNode, uids: frozenset[str]) -> None:
        slot = self.slots[node.name] = len(self.slots)
        place = self.base_nodes[slot] = self._read(node, uids)
        self.fitting_nodes.put(slot, (not node.initialized, node.name), place.signature, place.free)
        self._count(slot, place)

    def _count(self, slot: int, place: BaseNode) -> None:
        for effects in (place.staying, place.moving):
            for group, count in effects.host.items():
                self.host.add(group, slot, count)
            for cell, count in effects.cells.items():
                self.cells[cell] += count
            for cell, count in effects.possible_counts.items():
                self.possible_counts[cell] = self.possible_counts.get(cell, 0) + count
        for cell in self.domains_known_by(place):
            self.witnesses[cell] = self.witnesses.get(cell, 0) + 1

    def _uncount(self, slot: int, place: BaseNode) -> None:
        for effects in (place.staying, place.moving):
            for group, count in effects.host.items():
                self.host.remove(group, slot, count)
            for cell, count in effects.cells.items():
                self.cells[cell] -= count
            for cell, count in effects.possible_counts.items():
                _subtract(self.possible_counts, cell, count)
        for cell in self.domains_known_by(place):
            _subtract(self.witnesses, cell, 1)

    def renew(
        self, nodes: Sequence[tuple[ExistingNode, frozenset[str]]], change: PodChange
    ) -> bool:
        """Replace nodes that have other pods now, with the UIDs of those that move.

        False if it takes classes or topology groups that are not there, or leaves some without
        pods: then nothing has changed, and the problem is to be compiled anew.
        """
        numbers = self._numbers_of(nodes, change)
        if numbers is None:
            return False
        gone = [self._class_of.pop(pod.uid) for pod in change.left if pod.uid in self._class_of]
        self._class_of.update(numbers)
        for number in gone:
            self._members[number] -= 1
        for number in numbers.values():
            self._members[number] += 1
        for node, uids in nodes:
            slot = self.slots[node.name]
            self._uncount(slot, self.base_nodes[slot])
            place = self.base_nodes[slot] = self._read(node, uids)
            self._count(slot, place)
            self.fitting_nodes.renew(slot, place.signature, place.free)
        return True

    def exclude(self, names: Iterable[str]) -> None:
        """Let no pods go to these nodes, and to any other again."""
        self.fitting_nodes.exclude(
            frozenset(self.slots[name] for name in names if name in self.slots)
        )

    def _read(self, node: ExistingNode, uids: frozenset[str]) -> BaseNode:
        compiled = self.compiled
        signature = compiled.signatures.number_of_node(compiled.reader.signature(node))
        effects = {True: CountEffects(), False: CountEffects()}
        movers: dict[int, list[PodView]] = {}
        for pod in node.pods:
            moves = pod.uid in uids
            if moves:
                movers.setdefault(self._class_of[pod.uid], []).append(pod)
            if groups := self._groups(pod.shape):
                self._add(effects[moves], groups, pod, signature)
        return BaseNode(
            node=node,
            signature=signature,
            free=compiled.reader.free(node),
            leaving_pods=self.sort_class_pods(movers.items()),
            staying=effects[False],
            moving=effects[True],
        )

    def _numbers_of(
        self, nodes: Sequence[tuple[ExistingNode, frozenset[str]]], change: PodChange
    ) -> dict[str, int] | None:
        """Return the classes of the pods that came; None if the compiled problem does not do."""
        classifier = self.compiled.classifier
        if not all(
            _differ_in_pods(self.base_nodes[self.slots[it.name]].node, it) for it, _ in nodes
        ):
            return None
        if not all(classifier.knows_groups_of(pod.shape) for pod in change.staying):
            return None
        members = self._members.copy()
        for pod in change.left:
            if pod.uid in self._class_of:
                members[self._class_of[pod.uid]] -= 1
        numbers: dict[str, int] = {}
        for pod in change.came:
            number = (
                self._class_of.get(pod.uid)
                if pod.uid in change.with_volumes
                else classifier.class_number(pod.shape)
            )
            if number is None:
                return None
            numbers[pod.uid] = number
            members[number] += 1
        if classifier.is_outdated:
            return None
        # The topology groups of a class without pods would not be there.
        if any(not count and self.plans[number].owned for number, count in enumerate(members)):
            return None
        return numbers

    def sort_class_pods(
        self, movers: Iterable[tuple[int, Sequence[PodView]]]
    ) -> tuple[tuple[int, tuple[PodView, ...]], ...]:
        """Sort pods of classes as the solver does: large ones first, then by their oldest."""
        pods = [(number, tuple(sorted(members, key=pod_order))) for number, members in movers]
        pods.sort(key=lambda work: (self.plans[work[0]].rank, pod_order(work[1][0])))
        return tuple(pods)

    def class_number(self, pod: PodView) -> int:
        """Return the class of a pod."""
        return self._class_of[pod.uid]

    def _groups(self, shape: PodShape) -> tuple[TopologyGroup, ...]:
        cached = self._groups_of.get(id(shape))
        if cached is None:
            counting = counting_groups(self.compiled.topology_groups, shape)
            cached = self._groups_of[id(shape)] = (shape, counting)
        return cached[1]

    # -- counts --------------------------------------------------------------------------------

    def cells_of(self, group: TopologyGroup, signature: int) -> tuple[int, ...] | None:
        """Return the cells in which a group counts a pod on a node; None: it does not count it.

        A host name group has no cells.
        """
        key = (group.index, signature)
        if key not in self._cells_of:
            self._cells_of[key] = self._find_cells(group, signature)
        return self._cells_of[key]

    def _find_cells(self, group: TopologyGroup, signature: int) -> tuple[int, ...] | None:
        signatures = self.compiled.signatures
        if not counts_on_node(group, signature, signatures):
            return None
        if group.is_host:
            return ()
        number = self._axes[group.key]
        start = self.cell(number, group, 0)
        return tuple(start + d for d in domains_of(group, number, signature, signatures))

    def effects_of(self, number: int, signature: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return what each pod of a class adds to: host name groups, and cells."""
        key = (number, signature)
        effects = self._effects.get(key)
        if effects is None:
            counting_cells = [(g, self.cells_of(g, signature)) for g in self.plans[number].counted]
            effects = self._effects[key] = (
                tuple(g.index for g, cells in counting_cells if g.is_host and cells is not None),
                tuple(cell for _, cells in counting_cells for cell in cells or ()),
            )
        return effects

    def made_from(self, start: int, size: int) -> tuple[bool, ...]:
        """Return which domains pools make, for the group whose cells start there."""
        made_flags = self._made_from.get((start, size))
        if made_flags is None:
            made_flags = tuple(bool(it) for it in self.made[start : start + size])
            self._made_from[start, size] = made_flags
        return made_flags

    def can_open(self, number: int, axis: int, domain: int) -> bool:
        """Whether a pool makes nodes for a class in a domain, whatever the rest of a pass takes."""
        key = (number, axis, domain)
        is_possible = self._can_open.get(key)
        if is_possible is None:
            is_possible = self._can_open[key] = any(
                self._can_make(pool, number, DomainPin(axis, (domain,)))
                for pool in range(len(self.compiled.pools))
            )
        return is_possible

    def _can_make(self, pool: int, number: int, pin: DomainPin) -> bool:
        compiled, signature = self.compiled, self.compiled.pool_signatures[pool]
        made = compiled.pools[pool]
        if signature == NO_MATCH or made.reservations:
            return False
        most = compiled.max_new_nodes
        if not made.has_ample_limits(made.remaining, _AMPLE) or (
            most is not None and most < _AMPLE
        ):
            return False
        node_constraints = compiled.classes[number].relaxation_steps[0].node_constraints
        met = compiled.signatures.join(signature, node_constraints, (pin,))
        if met == NO_MATCH:
            return False
        claim = compiled.signatures.claim(met)
        fits = claim.fitting(compiled.requests[:, number])
        return bool(fits.any()) and not claim.has_min_values

    def axis_of(self, group: TopologyGroup) -> int:
        """Return the number of the axis that a group counts on."""
        return self._axes[group.key]

    def cell(self, axis: int, group: TopologyGroup, domain: int) -> int:
        """Return the cell of a group in a domain."""
        return self.offsets[axis] + group.row * len(self.compiled.axes[axis].names) + domain

    def _add(
        self, effects: CountEffects, groups: Sequence[TopologyGroup], pod: PodView, signature: int
    ) -> None:
        """Count a pod that runs, as a pass does."""
        for group in () if pod.is_terminal else groups:
            cells = self.cells_of(group, signature)
            if cells is None or (pod.is_terminating and group.kind is not TopologyKind.INVERSE):
                continue
            if group.is_host:
                effects.host[group.index] = effects.host.get(group.index, 0) + 1
            for cell in cells:
                effects.cells[cell] = effects.cells.get(cell, 0) + 1
            for cell in self.possible_cells_of(group, signature):
                effects.possible_counts[cell] = effects.possible_counts.get(cell, 0) + 1

    def possible_cells_of(self, group: TopologyGroup, signature: int) -> tuple[int, ...]:
        """Return the cells in which pods that affinity asks for may turn out to be."""
        if group.is_host:
            return ()
        axis = self._axes[group.key]
        domains = open_domains_of(group, axis, signature, self.compiled.signatures)
        return tuple(self.cell(axis, group, domain) for domain in domains)

    def domains_known_by(self, place: BaseNode) -> tuple[int, ...]:
        """Return the cells whose domain is known through nodes alone, this one among them.

        Of one that takes nothing any more, through the pods that are still there.
        """
        if place.node.requirements is not None:
            return ()
        if place.node.closed:
            return tuple(cell for cell in place.staying.cells if not self.made[cell])
        witnessed = self._witnessed.get(place.signature)
        if witnessed is None:
            witnessed = self._witnessed[place.signature] = self._find_witnessed(place.signature)
        return witnessed

    def _find_witnessed(self, signature: int) -> tuple[int, ...]:
        cells: list[int] = []
        for axis in self.compiled.axes:
            domain = self.compiled.signatures.domain(axis.number, signature)
            for group in axis.groups if domain >= 0 else ():
                cell = self.cell(axis.number, group, domain)
                if not self.made[cell] and counts_on_node(
                    group, signature, self.compiled.signatures
                ):
                    cells.append(cell)
        return tuple(cells)


def _subtract(counts: dict[int, int], key: int, count: int) -> None:
    counts[key] -= count
    if not counts[key]:
        del counts[key]


def _differ_in_pods(old: ExistingNode, new: ExistingNode) -> bool:
    """Tell whether nothing but the pods of a node has changed, and what these take."""
    return (
        old.labels == new.labels
        and old.taints == new.taints
        and old.requirements == new.requirements
        and old.capacity == new.capacity
        and old.initialized == new.initialized
        and old.closed == new.closed
        and old.is_planned == new.is_planned
        and old.pool == new.pool
        and old.volume_limits == new.volume_limits
        and old.volumes == new.volumes
        and (old.claim_name, old.node_name) == (new.claim_name, new.node_name)
    )
