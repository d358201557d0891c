"""Replace machines whose Nodes are broken: the controller `node.health`.

Which Nodes those are is decided by `lifecycle.node.repair`; the provider and the users say what
counts as broken.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.labels import NODE_POOL
from karpenter_core.controllers.forced import record_forced
from karpenter_core.controllers.freshness import Consumer
from karpenter_core.controllers.reconciler import DONE, Backoff, Outcome, Reconciler
from karpenter_core.errors import NotFoundError
from karpenter_core.lifecycle.node.repair import (
    DEFAULT_LIMIT,
    Repair,
    RepairAction,
    ailment_of,
    repair,
    take_census,
)
from karpenter_core.state.objects import Kind
from karpenter_core.state.pause import why_kept

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim, NodeClassRef
    from karpenter_core.api.records import NodeView
    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.freshness import Freshness
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.lifecycle.node.repair import Census, HealthPolicy, UnhealthyLimit
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["NodeHealth"]

CONCURRENCY: Final = (10, 1000)  # upstream's bounds
PAUSED_SECONDS: Final = 60.0


@final
class NodeHealth:
    """The controller `node.health`."""

    def __init__(
        self,
        *,
        hands: Hands,
        providers: Providers,
        runtime: Runtime,
        freshness: Freshness,
        policies: Mapping[str, Sequence[HealthPolicy]],
        limit: UnhealthyLimit = DEFAULT_LIMIT,
        paused: bool = False,
    ) -> None:
        """`policies` are by provider; `paused` is the setting that pauses all disruption."""
        self._freshness = freshness
        self._hands = hands
        self._feed = hands.feed
        self._providers = providers
        self._runtime = runtime
        self._policies = policies
        self._limit = limit
        self._paused = paused
        self._census: dict[tuple[str, str], Census] = {}
        self._census_version = -1
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._reconciler: Reconciler[str] = Reconciler(
            self.name,
            self.reconcile,
            runtime=runtime,
            backoff=Backoff(base_seconds=0.1, maximum_seconds=60.0),
            concurrency=runtime.workers(*CONCURRENCY),
            log_field="Node",
        )
        hands.feed.subscribe(Kind.NODE, self._reconciler.wake)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "node.health"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._feed.wait_synced()
        for name in self._feed.snapshot().nodes:
            self._reconciler.wake(name)
        await self._reconciler.run()

    async def reconcile(self, name: str) -> Outcome:
        """Look at one Node, and let its claim go if it has been broken for too long."""
        snapshot = self._feed.snapshot()
        node = snapshot.nodes.get(name)
        claims = () if node is None else snapshot.claims_of(node)
        if node is None or len(claims) != 1:
            return DONE
        (claim,) = claims
        if not snapshot.manages(claim.spec.node_class_ref):
            return DONE
        policies = self._policies[self._providers.provider_of(claim.spec.node_class_ref)]
        now = self._runtime.clock.now()
        ailment = ailment_of(node, policies)
        if ailment is None:
            return DONE
        pool = claim.metadata.labels.get(NODE_POOL, "")
        is_due = ailment.due <= now
        if is_due and self._freshness.hold(
            Consumer.REPAIR, name, partial(self._reconciler.wake, name)
        ):
            return DONE
        if is_due and why_kept(snapshot.node_pools.get(pool), everywhere=self._paused):
            return Outcome(requeue_after=PAUSED_SECONDS)
        found = repair(
            snapshot,
            node,
            policies,
            now=now,
            census=self._count(snapshot, pool, claim.spec.node_class_ref) if is_due else None,
            limit=self._limit,
        )
        return await self._act(snapshot, node, claim, found)

    async def _act(
        self, snapshot: Snapshot, node: NodeView, claim: NodeClaim, found: Repair
    ) -> Outcome:
        if found.action is RepairAction.REPAIR and found.claim is not None:
            try:
                stored = await self._hands.write_claim(claim, found.claim)
            except NotFoundError:
                return DONE
            if await self._hands.delete_claim(stored):
                self._hands.count(found.facts)
                await self._tell(snapshot, node, claim, found)
            return DONE
        self._hands.tell(found.notices)
        wait = found.requeue_after
        return DONE if wait is None else Outcome(requeue_after=wait.total_seconds())

    async def _tell(
        self, snapshot: Snapshot, node: NodeView, claim: NodeClaim, found: Repair
    ) -> None:
        condition = "" if found.ailment is None else found.ailment.condition_type
        self._log.info(
            "deleting unhealthy node",
            NodeClaim={"name": claim.name},
            condition=condition,
            **{"provider-id": node.provider_id},
        )
        await record_forced(
            self._runtime,
            snapshot,
            claim,
            method="repair",
            reason="Unhealthy",
            cause=f"node {node.name} has been broken for too long: {condition}",
        )

    def _count(self, snapshot: Snapshot, pool: str, ref: NodeClassRef) -> Census:
        """Count the broken Nodes around one, once for each state of the cluster.

        When a network breaks, every Node asks for it at the same moment.
        """
        if snapshot.version != self._census_version:
            self._census.clear()
            self._census_version = snapshot.version
        provider = self._providers.provider_of(ref)
        census = self._census.get((pool, provider))
        if census is None:
            census = self._census[pool, provider] = take_census(
                snapshot, pool, self._policies[provider]
            )
        return census
