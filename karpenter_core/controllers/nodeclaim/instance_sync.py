"""Keep instances in line with their claims in place: names, tags.

A provider is asked once a claim is registered, and again when labels or annotations of the claim
change, or what its NodeClass asks for. What a new process cannot know was done, it asks for once more.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeAlias, final

from karpenter_core.api.conditions import is_true
from karpenter_core.api.nodeclaim import REGISTERED
from karpenter_core.controllers.feed import Inbox
from karpenter_core.controllers.nodeclass.content import wishes_of
from karpenter_core.controllers.reconciler import DONE, Backoff, Outcome, Reconciler
from karpenter_core.state.objects import Kind

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.provider.host.facade import Providers

__all__ = ["InstanceSync"]

CONCURRENCY: Final = 32

Synced: TypeAlias = "tuple[str, Mapping[str, str], Mapping[str, str], str]"
"""UID, labels and annotations of a claim, and what its NodeClass asked for."""


@final
class InstanceSync:
    """The controller `nodeclaim.sync`."""

    def __init__(self, *, hands: Hands, providers: Providers, runtime: Runtime) -> None:
        self._feed = hands.feed
        self._providers = providers
        self._synced: dict[str, Synced] = {}
        self._wishes: dict[Hashable, tuple[NodeClass, str]] = {}
        self._reconciler: Reconciler[str] = Reconciler(
            self.name,
            self.reconcile,
            runtime=runtime,
            backoff=Backoff(base_seconds=1.0),
            concurrency=CONCURRENCY,
            log_field="NodeClaim",
        )
        self._inbox = Inbox(hands.feed, Kind.NODE_CLASS)
        hands.feed.subscribe(Kind.NODE_CLAIM, self._reconciler.wake)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "nodeclaim.sync"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._feed.wait_synced()
        for name in self._feed.snapshot().node_claims:
            self._reconciler.wake(name)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sort())
            group.create_task(self._reconciler.run())

    async def reconcile(self, name: str) -> Outcome:
        """Have one claim's instance brought in line, unless it is."""
        snapshot = self._feed.snapshot()
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
        wanted = self._wanted(claim, node_class)
        if len(nodes) != 1 or self._synced.get(name) == wanted:
            return DONE
        await self._providers.sync_instance(claim, nodes[0])
        self._synced[name] = wanted
        return DONE

    def _wanted(self, claim: NodeClaim, node_class: NodeClass | None) -> Synced:
        wishes = "" if node_class is None else self._wishes_of(node_class)
        return claim.uid, claim.metadata.labels, claim.metadata.annotations, wishes

    def _wishes_of(self, node_class: NodeClass) -> str:
        """Read a NodeClass once, however many claims have it."""
        key = (type(node_class), node_class.name)
        known = self._wishes.get(key)
        if known is None or known[0] is not node_class:
            known = self._wishes[key] = node_class, wishes_of(node_class)
        return known[1]

    async def _sort(self) -> None:
        """Wake the claims of NodeClasses that changed."""
        while True:
            changed = set((await self._inbox.take()).get(Kind.NODE_CLASS, ()))
            for name, claim in self._feed.snapshot().node_claims.items():
                if claim.spec.node_class_ref.name in changed:
                    self._reconciler.wake(name)
