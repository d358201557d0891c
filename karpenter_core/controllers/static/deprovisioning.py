"""Deletes surplus claims of static NodePools: `static.deprovisioning`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.controllers.forceful_disruption import record_forceful_disruption
from karpenter_core.controllers.reconciling.freshness import FreshnessConsumer
from karpenter_core.controllers.reconciling.reconciler import DONE, ReconcileResult
from karpenter_core.controllers.static.pool_changes import SETTLED_SECONDS, StaticPoolReconciler
from karpenter_core.disruption.static_scale_down import OVERPROVISIONED, scale_down_order
from karpenter_core.errors import ApiError
from karpenter_core.lifecycle.changes import LifecycleMetric, MetricUpdate
from karpenter_core.lifecycle.claim_status import disrupted_labels
from karpenter_core.provider.kit.bounded_gather import gather_bounded
from karpenter_core.state.events import DeletionMarked
from karpenter_core.state.static_pools import (
    is_managed_static,
    static_pool_claims,
    surplus_replicas,
)

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.reconciling.freshness import FreshnessGuard
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["StaticDeprovisioningController"]

DELETIONS: Final = 32
"""Deletions of one pool that are sent at a time."""


@final
class StaticDeprovisioningController:
    """The controller `static.deprovisioning`."""

    def __init__(
        self, *, writer: ObjectWriter, runtime: ControllerRuntime, freshness: FreshnessGuard
    ) -> None:
        self._writer = writer
        self._cluster_state = writer.cluster_state
        self._runtime = runtime
        self._freshness = freshness
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._pools = StaticPoolReconciler(
            self.name, self.reconcile, cluster_state=writer.cluster_state, runtime=runtime
        )

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "static.deprovisioning"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._pools.run()

    async def reconcile(self, name: str) -> ReconcileResult:
        """Delete the claims that a pool has beyond its replicas."""
        snapshot = self._cluster_state.snapshot()
        pool = snapshot.node_pools.get(name)
        if pool is None or not is_managed_static(pool, snapshot):
            return DONE
        schedule = snapshot.pool_schedules.get(name)
        if schedule is not None and (schedule.error or schedule.shutdown is not None):
            # The replicas are unknown, or disruption drains the pool within its budgets.
            return ReconcileResult(requeue_after=SETTLED_SECONDS)
        claims = static_pool_claims(snapshot, name)
        surplus = surplus_replicas(pool, claims)
        if not surplus:
            return ReconcileResult(requeue_after=SETTLED_SECONDS)
        if self._freshness.stale_or_wake(
            FreshnessConsumer.STATIC_DEPROVISIONING, name, lambda: self._pools.wake(name)
        ):
            return DONE
        order = scale_down_order(snapshot, claims.active, now=self._runtime.clock.now())
        self._log.info(
            "deprovisioning nodeclaims beyond replicas",
            current=len(claims.active),
            desired=pool.spec.replicas,
            count=surplus,
        )
        done = await gather_bounded(
            lambda claim: self._delete(pool, claim, snapshot), order[:surplus], at_once=DELETIONS
        )
        if not all(done):
            return ReconcileResult(back_off=True)
        return ReconcileResult(requeue_after=SETTLED_SECONDS)

    async def _delete(self, pool: NodePool, claim: NodeClaim, snapshot: Snapshot) -> bool:
        """Delete a claim; tell whether it is deleted now."""
        try:
            deleted = await self._writer.delete_claim(claim)
        except ApiError as error:
            self._log.error(
                "could not delete nodeclaim", NodeClaim={"name": claim.name}, error=str(error)
            )
            self._runtime.metrics.reconcile_errors.labels(controller=self.name).inc()
            return False
        if not deleted:
            return True
        self._cluster_state.fold(DeletionMarked(names=(claim.name,), cause=OVERPROVISIONED))
        labels = disrupted_labels(claim, OVERPROVISIONED)
        state_node = snapshot.state_nodes_by_claim.get(claim.name)
        pods = () if state_node is None else state_node.pods
        self._writer.record_metrics(
            (
                MetricUpdate(metric=LifecycleMetric.NODECLAIMS_DISRUPTED, labels=labels),
                MetricUpdate(
                    metric=LifecycleMetric.PODS_DISRUPTION_INITIATED,
                    labels=labels,
                    value=sum(pod.is_reschedulable for pod in pods),
                ),
            )
        )
        self._log.info("deleted surplus nodeclaim", NodeClaim={"name": claim.name})
        await record_forceful_disruption(
            self._runtime,
            snapshot,
            claim,
            method="static",
            reason="Overprovisioned",
            cause=f"nodepool {pool.name} has more nodes than replicas ({pool.spec.replicas})",
        )
        return True
