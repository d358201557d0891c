"""Keeps what the scheduling problems of successive snapshots have in common.

Of thousands of nodes, those on which nothing changed between two passes are the same `ExistingNode`
again, and what NodePools hold is not added up again. The problem is the same with and without.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, final

from karpenter_core.scheduling.identity_memo import IdentityMemo, are_same, replaced_places
from karpenter_core.state.node_pool_usage import is_launched, pool_usage, priced_pools, shared_pools
from karpenter_core.state.state_nodes import has_lost_node

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from karpenter_core.api.storage_records import CSINodeView
    from karpenter_core.scheduling.problem import ExistingNode, PodVolumes
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["MovablePods", "NodeMemory", "PlaceableNodes"]


class _ReadNode(NamedTuple):
    """An existing node, and what beside its state node it depends on."""

    node: ExistingNode
    csi_node: CSINodeView | None
    has_volumes: bool
    is_settled: bool
    """False for a claim without an instance, whose resources are those of a catalogue."""


class _Admission(NamedTuple):
    """Whether a state node may take pods, and what its place among the others depends on."""

    is_placeable: bool
    is_starting: bool
    has_node: bool


class PlaceableNodes(NamedTuple):
    """The state nodes that may take pods, in the order in which they are filled."""

    state_nodes: list[StateNode]
    node_count: int
    """The number of Nodes among them."""


class MovablePods(NamedTuple):
    """The pods of a node that would have to move, by UID, and what their volumes require."""

    uids: frozenset[str]
    volumes: Mapping[str, PodVolumes]
    is_timed: bool
    """Whether that may change with the time, or with volumes of the pods."""


_NODE_OF_READ: Final[Callable[[_ReadNode], ExistingNode]] = attrgetter("node")


@final
class NodeMemory:
    """The nodes of the last problem, and what NodePools held then; one for each series of passes."""

    __slots__ = (
        "_admissions", "_admitted", "_catalogues", "_counted", "_csi_nodes", "_movable",
        "_node_count", "_nodes", "_order", "_unsettled", "_usage", "_volumes",
    )  # fmt: skip

    def __init__(self) -> None:
        self._admissions: Final = IdentityMemo["StateNode", _Admission]()
        self._admitted: tuple[_Admission, ...] = ()
        self._order: list[int] | None = None
        """The places of the placeable ones among the state nodes, which are sorted by name."""
        self._node_count = 0
        """The number of Nodes among the placeable ones."""
        self._unsettled = frozenset[int]()
        """The places of existing nodes that are read anew in every pass."""
        self._nodes: IdentityMemo[StateNode, _ReadNode] = IdentityMemo()
        self._movable: IdentityMemo[StateNode, MovablePods] = IdentityMemo()
        self._csi_nodes: Mapping[str, CSINodeView] | None = None
        self._volumes: tuple[object, ...] = ()
        self._counted: tuple[StateNode, ...] = ()
        self._catalogues: tuple[object, ...] = ()
        self._usage: dict[str, dict[str, int]] | None = None

    def placeable(self, snapshot: Snapshot, launching: Container[StateNode]) -> PlaceableNodes:
        """Return the nodes that may take pods: initialised ones first, then by name.

        Those that are `launching` may not.
        """
        state_nodes = snapshot.state_nodes
        admitted = self._admissions.values(state_nodes, _admission)
        if self._order is None or admitted != self._admitted:
            order = [place for place, found in enumerate(admitted) if found.is_placeable]
            order.sort(key=lambda place: admitted[place].is_starting)
            self._order = order
            self._node_count = sum(admitted[place].has_node for place in order)
        self._admitted = admitted
        placed = list(map(state_nodes.__getitem__, self._order))
        if launching:
            placed = [state_node for state_node in placed if state_node not in launching]
            return PlaceableNodes(placed, sum(each.node is not None for each in placed))
        return PlaceableNodes(placed, self._node_count)

    def existing_nodes(
        self,
        snapshot: Snapshot,
        state_nodes: Sequence[StateNode],
        read: Callable[[StateNode], ExistingNode],
        *,
        same: tuple[object, ...],
        equal: object,
    ) -> list[ExistingNode]:
        """Return every node, in their order; those that are as they were are the same objects.

        Beside its state node, the CSINode and the volumes of its pods, a node may depend on `same`,
        which are immutable objects, and on `equal`, which is compared by value.
        """

        def read_again(state_node: StateNode) -> _ReadNode:
            return _ReadNode(
                node=read(state_node),
                csi_node=_csi_node(snapshot, state_node),
                has_volumes=any(pod.shape.volumes for pod in state_node.pods),
                is_settled=is_launched(state_node) or state_node.claim is None,
            )

        found = self._nodes.values(state_nodes, read_again, same=same, equal=equal)
        volumes = (snapshot.volume_claims, snapshot.volumes, snapshot.storage_classes)
        outdated = self._unsettled_places(found)
        if not are_same(volumes, self._volumes):
            outdated += [place for place, item in enumerate(found) if item.has_volumes]
        if snapshot.csi_nodes is not self._csi_nodes:
            outdated += [
                place
                for place, (state_node, item) in enumerate(zip(state_nodes, found, strict=True))
                if item.csi_node is not _csi_node(snapshot, state_node)
            ]
        if outdated:
            found = self._nodes.renew(dict.fromkeys(outdated), read_again)
        self._volumes, self._csi_nodes = volumes, snapshot.csi_nodes
        return list(map(_NODE_OF_READ, found))

    def _unsettled_places(self, found: Sequence[_ReadNode]) -> list[int]:
        """Return the places of nodes without an instance; only changed ones are read again."""
        changed = self._nodes.changed
        if changed is None:
            places = {place for place, item in enumerate(found) if not item.is_settled}
        else:
            settled = {place for place in changed if found[place].is_settled}
            places = (self._unsettled | set(changed)) - settled
        self._unsettled = frozenset(places)
        return sorted(places)

    def movable_pods(
        self,
        state_nodes: Sequence[StateNode],
        read: Callable[[StateNode], MovablePods],
        *,
        equal: object,
    ) -> Sequence[MovablePods]:
        """Return the movable pods of every node, in their order.

        Beside its state node a node may depend on `equal`, which is compared by value.
        """
        found = self._movable.values(state_nodes, read, equal=equal)
        timed = [place for place, item in enumerate(found) if item.is_timed]
        return self._movable.renew(timed, read) if timed else found

    def pool_usage(
        self, snapshot: Snapshot, rates: Mapping[str, float] | None = None
    ) -> dict[str, dict[str, int]]:
        """Return what `node_pool_usage.pool_usage` does."""
        if priced_pools(snapshot) or shared_pools(snapshot):
            return pool_usage(snapshot, rates)
        catalogues, counted = tuple(snapshot.catalogues.values()), snapshot.counted_nodes
        if (
            self._usage is None
            or not are_same(catalogues, self._catalogues)
            or not _hold_alike(self._counted, counted)
        ):
            self._usage = pool_usage(snapshot, rates)
        self._counted, self._catalogues = counted, catalogues
        return {pool: dict(amounts) for pool, amounts in self._usage.items()}


def _csi_node(snapshot: Snapshot, state_node: StateNode) -> CSINodeView | None:
    return None if state_node.node is None else snapshot.csi_nodes.get(state_node.node.name)


def _hold_alike(before: tuple[StateNode, ...], after: tuple[StateNode, ...]) -> bool:
    """Tell whether every node holds as much as the node that was in its place."""
    return len(before) == len(after) and all(
        _holds_alike(before[place], after[place]) for place in replaced_places(before, after)
    )


def _holds_alike(old: StateNode, new: StateNode) -> bool:
    return (
        old.pool == new.pool
        and old.marked_for_deletion == new.marked_for_deletion
        and is_launched(old)
        and is_launched(new)
        and old.capacity == new.capacity
    )


def _admission(state_node: StateNode) -> _Admission:
    has_node = state_node.node is not None
    return _Admission(
        is_placeable=not state_node.marked_for_deletion and not has_lost_node(state_node),
        is_starting=not state_node.initialized,
        has_node=has_node,
    )
