"""Wakes claims when pods, NodePools, catalogues or slices change."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from karpenter_core.api.labels import NODE_POOL
from karpenter_core.controllers.cluster_state import ChangedNames
from karpenter_core.state.object_kinds import ObjectKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from karpenter_core.controllers.cluster_state import ClusterState
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["ClaimWakeups"]


@final
class ClaimWakeups:
    """Follows the changes of other objects; `note_pod_event` gets the claims with a pod event."""

    def __init__(
        self,
        cluster_state: ClusterState,
        *,
        wake: Callable[[str], None],
        note_pod_event: Callable[[str], None],
    ) -> None:
        self._cluster_state = cluster_state
        self._wake = wake
        self._note_pod_event = note_pod_event
        self._editions: dict[str, tuple[int, tuple[str, ...]]] = {}
        """By NodePool: its generation, and the windows of its schedules that are open."""
        self._change_queue = ChangedNames(
            cluster_state,
            ObjectKind.POD_EVENT,
            ObjectKind.NODE_POOL,
            ObjectKind.CATALOGUE,
            ObjectKind.NODE_CLASS,
            ObjectKind.RESOURCE_SLICE,
        )

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            changes = await self._change_queue.take()
            snapshot = self._cluster_state.snapshot()
            for node in changes.get(ObjectKind.POD_EVENT, ()):
                state_node = snapshot.state_nodes_by_node.get(node)
                if state_node is not None and state_node.claim is not None:
                    self._note_pod_event(state_node.claim.name)
                    self._wake(state_node.claim.name)
            for name in changes.get(ObjectKind.RESOURCE_SLICE, ()):
                self._wake_claim_of_slice(snapshot, name)
            edited = self._edited_pools(snapshot, changes.get(ObjectKind.NODE_POOL, ()))
            listed = set(changes.get(ObjectKind.CATALOGUE, ()))
            classes = set(changes.get(ObjectKind.NODE_CLASS, ()))
            if edited or listed or classes:
                for name in _affected_claims(snapshot, edited, listed, classes):
                    self._wake(name)

    def _wake_claim_of_slice(self, snapshot: Snapshot, name: str) -> None:
        published = snapshot.resource_slices.get(name)
        if published is not None:
            node = published.node_name or published.owner_node
            state_node = snapshot.state_nodes_by_node.get(node)
            if state_node is not None and state_node.claim is not None:
                self._wake(state_node.claim.name)

    def _edited_pools(self, snapshot: Snapshot, pools: tuple[str, ...]) -> set[str]:
        """Return the pools whose spec in force changed; their status changes all the time."""
        edited: set[str] = set()
        for name in pools:
            pool, schedule = snapshot.node_pools.get(name), snapshot.pool_schedules.get(name)
            edition = (
                -1 if pool is None else pool.metadata.generation,
                () if schedule is None else tuple(one.window.name for one in schedule.open),
            )
            if self._editions.get(name) != edition:
                self._editions[name] = edition
                edited.add(name)
        return edited


def _affected_claims(
    snapshot: Snapshot, edited: set[str], listed: set[str], classes: set[str]
) -> Iterator[str]:
    """Yield the claims of edited pools, and claims without an instance that may launch now."""
    for name, claim in snapshot.node_claims.items():
        pool = claim.metadata.labels.get(NODE_POOL, "")
        if pool in edited or (
            not claim.status.provider_id
            and (pool in listed or claim.spec.node_class_ref.name in classes)
        ):
            yield name
