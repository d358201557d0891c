"""Reconciles the static NodePools that changes of objects affect."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import NODE_POOL
from karpenter_core.controllers.cluster_state import ChangedNames
from karpenter_core.controllers.reconciling.reconciler import Reconciler
from karpenter_core.state.object_kinds import ObjectKind
from karpenter_core.state.static_pools import is_static

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from karpenter_core.controllers.cluster_state import ClusterState
    from karpenter_core.controllers.reconciling.reconciler import (
        ControllerRuntime,
        ReconcileResult,
    )
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["SETTLED_SECONDS", "StaticPoolReconciler"]

CONCURRENCY: Final = 10  # upstream default
SETTLED_SECONDS: Final = 60.0
"""Time after which a pool with its replicas is reconciled again (upstream default)."""


@final
class StaticPoolReconciler:
    """Reconciles every static pool at start, and after changes that affect it."""

    def __init__(
        self,
        name: str,
        reconcile: Callable[[str], Awaitable[ReconcileResult]],
        *,
        cluster_state: ClusterState,
        runtime: ControllerRuntime,
    ) -> None:
        """`reconcile` gets the name of a pool."""
        self._cluster_state = cluster_state
        self._reconciler: Reconciler[str] = Reconciler(
            name, reconcile, runtime=runtime, concurrency=CONCURRENCY, log_field="NodePool"
        )
        self._change_queue = ChangedNames(
            cluster_state, ObjectKind.NODE_POOL, ObjectKind.NODE_CLAIM, ObjectKind.CATALOGUE
        )

    def wake(self, name: str) -> None:
        """Reconcile a pool soon."""
        self._reconciler.wake(name)

    async def run(self) -> None:
        """Work until cancelled; nothing is reconciled before every claim has been listed."""
        await self._cluster_state.wait_synced()
        for name in _static_pools(self._cluster_state.snapshot()):
            self._reconciler.wake(name)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._dispatch_changes())
            group.create_task(self._reconciler.run())

    async def _dispatch_changes(self) -> None:
        while True:
            changes = await self._change_queue.take()
            snapshot = self._cluster_state.snapshot()
            static = frozenset(_static_pools(snapshot))
            if not static:
                continue
            changed = {
                *changes.get(ObjectKind.NODE_POOL, ()),
                *changes.get(ObjectKind.CATALOGUE, ()),
                *_pools_of_claims(snapshot, changes.get(ObjectKind.NODE_CLAIM, ()), static),
            }
            for name in sorted(changed & static):
                self._reconciler.wake(name)


def _static_pools(snapshot: Snapshot) -> Iterator[str]:
    return (name for name, pool in sorted(snapshot.node_pools.items()) if is_static(pool))


def _pools_of_claims(
    snapshot: Snapshot, names: Iterable[str], static: frozenset[str]
) -> frozenset[str]:
    """Return the pools of changed claims; every static pool for a claim that is gone."""
    pools: set[str] = set()
    for name in names:
        claim = snapshot.node_claims.get(name)
        if claim is None:
            return static
        pools.add(claim.metadata.labels.get(NODE_POOL, ""))
    return frozenset(pools)
