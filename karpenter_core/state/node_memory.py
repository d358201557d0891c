"""Keeps what the scheduling problems of successive snapshots have in common.

Of thousands of nodes, those on which nothing changed between two passes are the same `ExistingNode`
again, and what NodePools hold is not added up again. The problem is the same with and without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from karpenter_core.scheduling.identity_memo import IdentityMemo, are_same
from karpenter_core.state.node_pool_usage import is_launched, pool_usage, priced_pools, shared_pools

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from karpenter_core.api.records import CSINodeView
    from karpenter_core.scheduling.problem import ExistingNode, PodVolumes
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["MovablePods", "NodeMemory"]


class _ReadNode(NamedTuple):
    """An existing node, and what beside its state node it depends on."""

    node: ExistingNode
    csi_node: CSINodeView | None
    has_volumes: bool
    is_settled: bool
    """False for a claim without an instance, whose resources are those of a catalogue."""


class MovablePods(NamedTuple):
    """The pods of a node that would have to move, by UID, and what their volumes require."""

    uids: frozenset[str]
    volumes: Mapping[str, PodVolumes]
    is_timed: bool
    """Whether that may change with the time, or with volumes of the pods."""


@final
class NodeMemory:
    """The nodes of the last problem, and what NodePools held then; one for each series of passes."""

    __slots__ = (
        "_catalogues", "_counted", "_csi_nodes", "_movable", "_nodes", "_usage", "_volumes",
    )  # fmt: skip

    def __init__(self) -> None:
        self._nodes: IdentityMemo[StateNode, _ReadNode] = IdentityMemo()
        self._movable: IdentityMemo[StateNode, MovablePods] = IdentityMemo()
        self._csi_nodes: Mapping[str, CSINodeView] | None = None
        self._volumes: tuple[object, ...] = ()
        self._counted: tuple[StateNode, ...] = ()
        self._catalogues: tuple[object, ...] = ()
        self._usage: dict[str, dict[str, int]] | None = None

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
        has_new_volumes = not are_same(volumes, self._volumes)
        outdated = [
            place
            for place, item in enumerate(found)
            if not item.is_settled or (has_new_volumes and item.has_volumes)
        ]
        if snapshot.csi_nodes is not self._csi_nodes:
            outdated += [
                place
                for place, (state_node, item) in enumerate(zip(state_nodes, found, strict=True))
                if item.csi_node is not _csi_node(snapshot, state_node)
            ]
        if outdated:
            found = self._nodes.renew(outdated, read_again)
        self._volumes, self._csi_nodes = volumes, snapshot.csi_nodes
        return [item.node for item in found]

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
        old is new
        or (
            old.pool == new.pool
            and old.marked_for_deletion == new.marked_for_deletion
            and is_launched(old)
            and is_launched(new)
            and old.capacity == new.capacity
        )
        for old, new in zip(before, after, strict=True)
    )
