"""Replaces unhealthy Nodes by force: the controller `node.health`.

`lifecycle.node.repair` decides which Nodes are replaced, by the unhealthy conditions that the provider
and the users define.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.labels import NODE_POOL
from karpenter_core.controllers.forceful_disruption import record_forceful_disruption
from karpenter_core.controllers.reconciling.freshness import FreshnessConsumer
from karpenter_core.controllers.reconciling.reconciler import (
    DONE,
    ExponentialBackoff,
    Reconciler,
    ReconcileResult,
)
from karpenter_core.controllers.reconciling.refusal_reports import reporting_refusals
from karpenter_core.errors import NotFoundError
from karpenter_core.lifecycle.node.repair import (
    RepairAction,
    RepairAdvice,
    find_unhealthy_condition,
    repair,
    summarise_node_health,
)
from karpenter_core.state.disruption_pause import replacement_pause_reason
from karpenter_core.state.object_kinds import ObjectKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim, NodeClassRef
    from karpenter_core.api.records import NodeView
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.reconciling.freshness import FreshnessGuard
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.lifecycle.node.repair import HealthPolicy, NodeHealthSummary, UnhealthyLimit
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["NodeHealthController"]

CONCURRENCY: Final = (10, 1000)  # upstream's bounds
PAUSED_SECONDS: Final = 60.0


@final
class NodeHealthController:
    """The controller `node.health`."""

    def __init__(
        self,
        *,
        writer: ObjectWriter,
        providers: Providers,
        runtime: ControllerRuntime,
        freshness: FreshnessGuard,
        policies: Mapping[str, Sequence[HealthPolicy]],
        limit: UnhealthyLimit,
        paused: bool,
        static_capacity: bool,
    ) -> None:
        """`policies` are by provider; `paused` is the setting that pauses all disruption.

        `static_capacity` is the feature gate `StaticCapacity`.
        """
        self._freshness = freshness
        self._writer = writer
        self._cluster_state = writer.cluster_state
        self._providers = providers
        self._runtime = runtime
        self._policies = policies
        self._limit = limit
        self._paused = paused
        self._static_capacity = static_capacity
        self._summaries: dict[tuple[str, str], NodeHealthSummary] = {}
        self._summaries_version = -1
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._reconciler: Reconciler[str] = Reconciler(
            self.name,
            reporting_refusals(
                self.reconcile,
                objects=lambda: self._cluster_state.snapshot().nodes,
                publish=writer.publish,
            ),
            runtime=runtime,
            backoff=ExponentialBackoff(base_seconds=0.1),
            concurrency=runtime.workers(*CONCURRENCY),
            log_field="Node",
        )
        writer.cluster_state.subscribe(ObjectKind.NODE, self._reconciler.wake)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "node.health"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._cluster_state.wait_synced()
        for name in self._cluster_state.snapshot().nodes:
            self._reconciler.wake(name)
        await self._reconciler.run()

    async def reconcile(self, name: str) -> ReconcileResult:
        """Delete the claim of a Node that has been unhealthy for too long."""
        snapshot = self._cluster_state.snapshot()
        node = snapshot.nodes.get(name)
        claims = () if node is None else snapshot.claims_of(node)
        if node is None or len(claims) != 1:
            return DONE
        (claim,) = claims
        if not snapshot.manages(claim.spec.node_class_ref):
            return DONE
        policies = self._policies[self._providers.provider_of(claim.spec.node_class_ref)]
        now = self._runtime.clock.now()
        unhealthy_condition = find_unhealthy_condition(node, policies)
        if unhealthy_condition is None:
            return DONE
        pool = claim.metadata.labels.get(NODE_POOL, "")
        is_due = unhealthy_condition.repair_at <= now
        if is_due and self._freshness.stale_or_wake(
            FreshnessConsumer.REPAIR, name, partial(self._reconciler.wake, name)
        ):
            return DONE
        if is_due and replacement_pause_reason(
            snapshot.node_pools.get(pool),
            is_paused_globally=self._paused,
            static_capacity=self._static_capacity,
        ):
            return ReconcileResult(requeue_after=PAUSED_SECONDS)
        advice = repair(
            snapshot,
            node,
            policies,
            now=now,
            health_summary=self._health_summary(snapshot, pool, claim.spec.node_class_ref)
            if is_due
            else None,
            limit=self._limit,
        )
        return await self._act(snapshot, node, claim, advice)

    async def _act(
        self, snapshot: Snapshot, node: NodeView, claim: NodeClaim, advice: RepairAdvice
    ) -> ReconcileResult:
        if advice.action is RepairAction.REPAIR and advice.claim is not None:
            try:
                stored = await self._writer.write_claim(claim, advice.claim)
            except NotFoundError:
                return DONE
            if await self._writer.delete_claim(stored):
                self._writer.record_metrics(advice.metric_updates)
                await self._record_repair(snapshot, node, claim, advice)
            return DONE
        self._writer.publish_all(advice.notices)
        wait = advice.requeue_after
        return DONE if wait is None else ReconcileResult(requeue_after=wait.total_seconds())

    async def _record_repair(
        self, snapshot: Snapshot, node: NodeView, claim: NodeClaim, advice: RepairAdvice
    ) -> None:
        condition = (
            "" if advice.unhealthy_condition is None else advice.unhealthy_condition.condition_type
        )
        self._log.debug(
            "deleting unhealthy node",
            NodeClaim={"name": claim.name},
            condition=condition,
            **{"provider-id": node.provider_id},
        )
        await record_forceful_disruption(
            self._runtime,
            snapshot,
            claim,
            method="repair",
            reason="Unhealthy",
            cause=f"node {node.name} has been unhealthy for too long: {condition}",
        )

    def _health_summary(
        self, snapshot: Snapshot, pool: str, ref: NodeClassRef
    ) -> NodeHealthSummary:
        """Return the health summary of a pool, computed once for each state of the cluster.

        When a network fails, every Node needs it at the same moment.
        """
        if snapshot.version != self._summaries_version:
            self._summaries.clear()
            self._summaries_version = snapshot.version
        provider = self._providers.provider_of(ref)
        health_summary = self._summaries.get((pool, provider))
        if health_summary is None:
            health_summary = self._summaries[pool, provider] = summarise_node_health(
                snapshot, pool, self._policies[provider]
            )
        return health_summary
