"""Updates names and tags of instances when their claims change.

The provider is called once a claim is registered, and again when the labels or annotations of the claim
or the spec of its NodeClass change. A new process calls it once for every claim.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeAlias, final

from karpenter_core.api.conditions import is_true
from karpenter_core.api.nodeclaim import REGISTERED
from karpenter_core.controllers.cluster_state import ChangedNames
from karpenter_core.controllers.nodeclass.node_class_text import spec_text
from karpenter_core.controllers.reconciling.reconciler import (
    DONE,
    ExponentialBackoff,
    Reconciler,
    ReconcileResult,
)
from karpenter_core.state.object_kinds import ObjectKind

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.controllers.cluster_state import ClusterState
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.provider.host.facade import Providers

__all__ = ["InstanceSyncController"]

CONCURRENCY: Final = 32

SyncedState: TypeAlias = "tuple[str, Mapping[str, str], Mapping[str, str], str]"
"""UID, labels and annotations of a claim, and the spec of its NodeClass as text."""


@final
class InstanceSyncController:
    """The controller `nodeclaim.sync`."""

    def __init__(
        self, *, cluster_state: ClusterState, providers: Providers, runtime: ControllerRuntime
    ) -> None:
        self._cluster_state = cluster_state
        self._providers = providers
        self._synced: dict[str, SyncedState] = {}
        self._spec_texts: dict[Hashable, tuple[NodeClass, str]] = {}
        self._reconciler: Reconciler[str] = Reconciler(
            self.name,
            self.reconcile,
            runtime=runtime,
            backoff=ExponentialBackoff(base_seconds=1.0),
            concurrency=CONCURRENCY,
            log_field="NodeClaim",
        )
        self._change_queue = ChangedNames(cluster_state, ObjectKind.NODE_CLASS)
        cluster_state.subscribe(ObjectKind.NODE_CLAIM, self._reconciler.wake)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "nodeclaim.sync"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._cluster_state.wait_synced()
        for name in self._cluster_state.snapshot().node_claims:
            self._reconciler.wake(name)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._dispatch_changes())
            group.create_task(self._reconciler.run())

    async def reconcile(self, name: str) -> ReconcileResult:
        """Have the provider update the instance of one claim, unless it is up to date."""
        snapshot = self._cluster_state.snapshot()
        claim = snapshot.node_claims.get(name)
        if claim is None:
            self._synced.pop(name, None)
            return DONE
        ref = claim.spec.node_class_ref
        if (
            claim.is_deleting
            or not snapshot.manages(ref)
            or not self._providers.syncs(ref)
            or not is_true(claim.status.conditions, REGISTERED)
        ):
            return DONE
        nodes = snapshot.nodes_of(claim)
        node_class = snapshot.node_classes.get((ref.group, ref.kind, ref.name))
        desired = self._desired_state(claim, node_class)
        if len(nodes) != 1 or self._synced.get(name) == desired:
            return DONE
        await self._providers.sync_instance(claim, nodes[0])
        self._synced[name] = desired
        return DONE

    def _desired_state(self, claim: NodeClaim, node_class: NodeClass | None) -> SyncedState:
        spec = "" if node_class is None else self._spec_text_of(node_class)
        return claim.uid, claim.metadata.labels, claim.metadata.annotations, spec

    def _spec_text_of(self, node_class: NodeClass) -> str:
        """Return the text of a NodeClass' spec, computed once for all of its claims."""
        key = (type(node_class), node_class.name)
        cached = self._spec_texts.get(key)
        if cached is None or cached[0] is not node_class:
            cached = self._spec_texts[key] = node_class, spec_text(node_class)
        return cached[1]

    async def _dispatch_changes(self) -> None:
        """Wake the claims of NodeClasses that changed."""
        while True:
            changed = set((await self._change_queue.take()).get(ObjectKind.NODE_CLASS, ()))
            for name, claim in self._cluster_state.snapshot().node_claims.items():
                if claim.spec.node_class_ref.name in changed:
                    self._reconciler.wake(name)
