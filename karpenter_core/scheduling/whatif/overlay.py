"""Records what a what-if changes beside the base state; all can be undone.

Nothing is copied: an overlay holds the differences (removed nodes, used resources, counts). A
journal records every change, so that undoing costs as much as doing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar, final

from karpenter_core.api.labels import NODES
from karpenter_core.scheduling.whatif.open_fitting_nodes import OpenFittingNodes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.records import PodView, Resources
    from karpenter_core.scheduling.arrays import Counts, Numbers
    from karpenter_core.scheduling.problem import ExistingNode, PodVolumes
    from karpenter_core.scheduling.whatif.base_state import BaseState

__all__ = ["ClusterOverlay"]

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_ABSENT: Final = object()


@final
class ClusterOverlay:
    """Differences from a base. Only `undo` may take anything back."""

    def __init__(self, base: BaseState) -> None:
        self.base: Final = base
        self.removed: Final = dict[int, bool]()
        """Slots of the removed nodes; those of their pods that stay still count."""
        self.free: Final = dict[int, list[int]]()
        """Free resources of nodes on which pods were put."""
        self.cells: Final = dict[int, int]()
        """By how much the count of a cell differs."""
        self.host: Final = dict[int, dict[int, int]]()
        """By how much the counts of a group differ, by slot."""
        self.possible_counts: Final = dict[int, int]()
        """By how much the possible count of a cell differs."""
        self.known: Final = dict[int, bool]()
        """Cells whose domains have become known, or unknown."""
        self.added_pods: Final = dict[int, "tuple[tuple[int, tuple[PodView, ...]], ...]"]()
        """Pods that were put on nodes, by class."""
        self.signatures: Final = dict[int, int]()
        self.nodes: Final = dict[int, "ExistingNode"]()
        """Nodes that have other volumes now."""
        self.open: Final = OpenFittingNodes(base.fitting_nodes, base.plans)
        """Lists of fitting nodes after the changes that will stay."""
        self._kept_length = 0
        """The length of the journal when `expect_to_keep` was called."""
        self._witnesses: Final = dict[int, int]()
        self._journal: Final = list[tuple[dict[object, object], object, object]]()

    def mark(self) -> int:
        """Return the point to which `undo` goes back."""
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Undo all changes since a mark."""
        journal = self._journal
        for table, key, value in reversed(journal[mark:]):
            if value is _ABSENT:
                table.pop(key, None)
            else:
                table[key] = value
        del journal[mark:]
        if mark < self._kept_length:
            self._kept_length = 0
            self.open.reset()

    def _set(self, table: dict[_Key, _Value], key: _Key, value: _Value) -> None:
        self._journal.append((table, key, table.get(key, _ABSENT)))  # pyright: ignore[reportArgumentType] - tables of all kinds
        table[key] = value

    # -- changes -------------------------------------------------------------------------------

    def remove(self, slot: int) -> None:
        """Remove a node, with all pods that would leave it."""
        base, cells = self.base, self.cells
        place = base.base_nodes[slot]
        self._set(self.removed, slot, value=True)
        journal = self._journal
        for cell, count in place.moving.cells.items():
            before = cells.get(cell)
            journal.append((cells, cell, _ABSENT if before is None else before))  # pyright: ignore[reportArgumentType] - tables of all kinds
            cells[cell] = -count if before is None else before - count
        for cell, count in place.moving.possible_counts.items():
            self._set(self.possible_counts, cell, self.possible_counts.get(cell, 0) - count)
        for number, pods in self.added_pods.get(slot, ()):
            for cell in base.effects_of(number, self.signature(slot))[1]:
                self._set(cells, cell, cells.get(cell, 0) - len(pods))
            self._may_be(slot, number, -len(pods))
        for cell in base.domains_known_by(place):
            if cell in place.staying.cells:
                continue  # the pods that are still there tell
            fewer = self._witnesses.get(cell, 0) - 1
            self._set(self._witnesses, cell, fewer)
            if base.witnesses.get(cell, 0) + fewer <= 0:
                self._set(self.known, cell, value=False)

    def put(self, slot: int, number: int, count: int, free: list[int]) -> None:
        """Put pods of a class on a node, which then has so much free."""
        journal, cells, changed_free = self._journal, self.cells, self.free
        place = self.base.base_nodes[slot]
        signature = self.signatures.get(slot, place.signature)
        groups, counted = self.base.effects_of(number, signature)
        room = changed_free.get(slot)
        journal.append((changed_free, slot, _ABSENT if room is None else room))  # pyright: ignore[reportArgumentType] - tables of all kinds
        changed_free[slot] = free
        host = self.host
        for group in groups:
            row = host.get(group)
            if row is None:
                row = host[group] = {}
            before = row.get(slot)
            journal.append((row, slot, _ABSENT if before is None else before))  # pyright: ignore[reportArgumentType] - tables of all kinds
            row[slot] = count if before is None else before + count
        for cell in counted:
            before = cells.get(cell)
            journal.append((cells, cell, _ABSENT if before is None else before))  # pyright: ignore[reportArgumentType] - tables of all kinds
            cells[cell] = count if before is None else before + count
        if counted and place.node.requirements is not None:
            for cell in counted:
                if not self.is_known(cell):  # of what is not there yet only pods tell the domain
                    self._set(self.known, cell, value=True)

    def count(self, cell: int, count: int) -> None:
        """Count pods in a domain that are on no node."""
        self._set(self.cells, cell, self.cells.get(cell, 0) + count)

    def record_pods(self, slot: int, number: int, pods: tuple[PodView, ...]) -> None:
        """Record the pods put on a node, for when the node is removed itself."""
        self._set(self.added_pods, slot, (*self.added_pods.get(slot, ()), (number, pods)))
        self._may_be(slot, number, len(pods))

    def _may_be(self, slot: int, number: int, count: int) -> None:
        signature = self.signature(slot)
        for group in self.base.plans[number].counted:
            for cell in self.base.possible_cells_of(group, signature):
                self._set(self.possible_counts, cell, self.possible_counts.get(cell, 0) + count)

    def set_signature(self, slot: int, signature: int) -> None:
        """Give a node the signature that it has with the pods that joined."""
        if signature != self.signature(slot):
            self._set(self.signatures, slot, signature)

    def attach(self, slot: int, asked: Iterable[PodVolumes]) -> None:
        """Give a node the volumes of pods that joined."""
        node = self.node(slot)
        volumes = dict(node.volumes)
        for one in asked:
            for driver, claims in one.attached.items():
                volumes[driver] = volumes.get(driver, frozenset()) | claims
        self._set(self.nodes, slot, replace(node, volumes=volumes))

    # -- present state -------------------------------------------------------------------------

    def node(self, slot: int) -> ExistingNode:
        """Return a node with its volumes."""
        return self.nodes.get(slot) or self.base.base_nodes[slot].node

    def signature(self, slot: int) -> int:
        """Return the signature of a node."""
        changed_signature = self.signatures.get(slot)
        return (
            self.base.base_nodes[slot].signature if changed_signature is None else changed_signature
        )

    def is_known(self, cell: int) -> bool:
        """Whether the domain of a cell is known to its group."""
        is_known = self.known.get(cell)
        if is_known is None:
            is_known = bool(self.base.made[cell]) or self.base.witnesses.get(cell, 0) > 0
        return is_known

    def usable(self, start: int, size: int) -> tuple[bool, ...]:
        """Return which domains are known to the group whose cells start there."""
        if not self.known and not self.base.witnesses:
            return self.base.made_from(start, size)
        return tuple(self.is_known(cell) for cell in range(start, start + size))

    def may_be_in(self, start: int, size: int) -> list[bool]:
        """Return the domains in which pods that the group selects may turn out to be."""
        base, more = self.base.possible_counts, self.possible_counts
        cells = range(start, start + size)
        return [base.get(cell, 0) + more.get(cell, 0) > 0 for cell in cells]

    def counts(self, start: int, size: int) -> list[int]:
        """Return how many pods the group whose cells start there counts in each domain."""
        counts = self.base.cells[start : start + size].tolist()
        cells = self.cells
        if cells:
            for domain in range(size):
                if start + domain in cells:
                    counts[domain] += cells[start + domain]
        return counts

    def host_counts(self, group: int, slots: Numbers) -> Counts:
        """Return the counts of a host name group on nodes; on removed ones, of pods that stay."""
        size = self.base.fitting_nodes.signature.shape[0]
        counts: Counts = self.base.host.array(group, size).copy()
        for slot, more in self.host.get(group, {}).items():
            counts[slot] += more
        for slot in self.removed:
            counts[slot] = self.base.base_nodes[slot].staying.host.get(group, 0)
        return counts[slots]

    def counted_slots(self, group: int) -> set[int]:
        """Return the slots on which a host name group may count any."""
        return {*self.base.host.rows.get(group, ()), *self.host.get(group, ())}

    def freed(self, pool: str, resources: Iterable[str]) -> Resources:
        """Return the resources that the removed nodes free within the limits of a pool."""
        return self.freed_by(self.removed, pool, resources)

    def freed_by(self, slots: Iterable[int], pool: str, resources: Iterable[str]) -> Resources:
        """Return the resources that nodes free within the limits of a pool when they are removed."""
        freed = dict.fromkeys(resources, 0)
        for slot in slots:
            node = self.base.base_nodes[slot].node
            if node.pool == pool:
                for name in freed:
                    freed[name] += 1 if name == NODES else node.capacity.get(name, 0)
        return freed

    def expect_to_keep(self) -> None:
        """Expect the present changes to stay: drop full nodes from the lists of fitting nodes."""
        free, removed, journal = self.free, self.removed, self._journal
        if len(journal) == self._kept_length:
            return
        changed: dict[int, list[int] | None] = {}
        for table, slot, _ in journal[self._kept_length :]:
            if table is free or table is removed:
                changed[slot] = None if slot in removed else free.get(slot)  # pyright: ignore[reportArgumentType] - both are by slot
        self.open.advance(changed)
        self._kept_length = len(journal)
