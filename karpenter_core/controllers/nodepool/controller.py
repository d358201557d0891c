"""Updates hash, conditions and usage of NodePools: controller `nodepool`.

A reconcile sends at most one patch of the annotations and one of the status. Usage changes all the time
during a scale-up, so it is written every few seconds at most, together with other changes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast, final

import structlog

from karpenter_core.api.labels import NODE_POOL, NODE_POOL_HASH, NODE_POOL_HASH_VERSION
from karpenter_core.controllers.cluster_state import ChangedNames
from karpenter_core.controllers.reconciling.reconciler import DONE, Reconciler, ReconcileResult
from karpenter_core.controllers.reconciling.refusal_reports import (
    despite_refusal,
    reporting_refusals,
)
from karpenter_core.kube.wire.codecs import NODE_POOLS
from karpenter_core.lifecycle.nodepool.exchange_rates import with_exchange_rates
from karpenter_core.lifecycle.nodepool.failing_passes import with_failing_passes
from karpenter_core.lifecycle.nodepool.hashing import HASH_VERSION, with_current_hash, with_hash
from karpenter_core.lifecycle.nodepool.instance_types_listed import with_instance_types_listed
from karpenter_core.lifecycle.nodepool.launches_held_back import with_launches_held_back
from karpenter_core.lifecycle.nodepool.open_windows import schedule_notices, with_open_windows
from karpenter_core.lifecycle.nodepool.pool_usage import with_usage
from karpenter_core.lifecycle.nodepool.readiness import with_readiness
from karpenter_core.lifecycle.nodepool.registration_health import with_registration_health
from karpenter_core.lifecycle.nodepool.static_capacity import (
    replicas_notices,
    replicas_problem,
    with_replicas_conditions,
)
from karpenter_core.lifecycle.nodepool.status import node_pool_status_patch
from karpenter_core.lifecycle.nodepool.validation import (
    LabelRules,
    validate_node_pool,
    with_validation,
)
from karpenter_core.state.node_pool_usage import PoolStatusSums
from karpenter_core.state.object_kinds import ObjectKind
from karpenter_core.state.static_pools import is_static

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.lifecycle.nodepool.static_capacity import ReplicasProblem
    from karpenter_core.scheduling.problem import SolveOptions
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["NodePoolController"]

COUNT_SECONDS: Final = 5.0  # upstream default: how often usage is written at most


@final
class NodePoolController:
    """The controller `nodepool`: hash, validation, readiness, registration health, counter."""

    def __init__(
        self,
        *,
        writer: ObjectWriter,
        runtime: ControllerRuntime,
        label_rules: LabelRules,
        catalogue_problem: Callable[[NodePool], str],
        currencies: Callable[[NodePool], frozenset[str]],
        solve: SolveOptions,
        static_capacity: bool,
    ) -> None:
        """`static_capacity` is the feature gate `StaticCapacity`."""
        self._writer = writer
        self._cluster_state = writer.cluster_state
        self._runtime = runtime
        self._rules = label_rules
        self._catalogue_problem = catalogue_problem
        self._currencies = currencies
        self._currency = solve.currency
        self._solve = solve
        self._static_capacity = static_capacity
        self._rates = {solve.currency: 1.0, **solve.exchange_rates}
        self._rated = frozenset(self._rates)
        self._counted: dict[str, float] = {}
        self._sums = PoolStatusSums(self._rates)
        self._warned: dict[str, tuple[str, ...]] = {}
        self._failing = ""
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._reconciler: Reconciler[str] = Reconciler(
            self.name,
            reporting_refusals(
                self.reconcile,
                objects=lambda: self._cluster_state.snapshot().node_pools,
                publish=writer.publish,
            ),
            runtime=runtime,
            log_field="NodePool",
        )
        self._change_queue = ChangedNames(
            writer.cluster_state,
            ObjectKind.NODE_CLASS,
            ObjectKind.NODE,
            ObjectKind.NODE_CLAIM,
            ObjectKind.CATALOGUE,
        )
        writer.cluster_state.subscribe(ObjectKind.NODE_POOL, self._reconciler.wake)
        runtime.passes.subscribe(lambda _streak: self._wake_on_failing_passes())

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "nodepool"

    def wake(self, name: str) -> None:
        """Have a pool reconciled soon."""
        self._reconciler.wake(name)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._cluster_state.wait_synced()
        for name in self._cluster_state.snapshot().node_pools:
            self._reconciler.wake(name)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._dispatch_changes())
            group.create_task(self._reconciler.run())

    async def reconcile(self, name: str) -> ReconcileResult:
        """Update one pool's annotations and status; without its annotations it is usable too."""
        snapshot = self._cluster_state.snapshot()
        pool = snapshot.node_pools.get(name)
        if pool is None:
            self._counted.pop(name, None)
            self._warned.pop(name, None)
            return DONE
        if not snapshot.manages(pool.spec.template.spec.node_class_ref) or pool.is_deleting:
            return DONE
        return await despite_refusal(
            self._hash(pool, snapshot),
            # Read again: the answer of the API server has the spec without open windows.
            lambda: self._status(self._cluster_state.snapshot().node_pools.get(name, pool)),
        )

    async def _hash(self, pool: NodePool, snapshot: Snapshot) -> None:
        """Write the pool's hash, after the claims that have a hash of another version."""
        hashed = with_hash(pool)
        if hashed is pool:
            return
        if pool.metadata.annotations.get(NODE_POOL_HASH_VERSION) != HASH_VERSION:
            for claim in snapshot.node_claims.values():
                owned = claim.metadata.labels.get(NODE_POOL) == pool.name
                if owned and not claim.is_deleting:
                    await self._writer.write_claim(claim, with_current_hash(claim, pool))
        annotations = {
            key: hashed.metadata.annotations[key]
            for key in (NODE_POOL_HASH, NODE_POOL_HASH_VERSION)
        }
        await self._patch(pool, {"metadata": {"annotations": annotations}})

    async def _status(self, pool: NodePool) -> ReconcileResult:
        now = self._runtime.clock.now()
        snapshot = self._cluster_state.snapshot()
        ref = pool.spec.template.spec.node_class_ref
        node_class = snapshot.node_classes.get((ref.group, ref.kind, ref.name))
        updated = with_validation(pool, now=now, rules=self._rules)
        updated = with_readiness(updated, node_class, now=now)
        if node_class is not None:
            step = with_registration_health(
                updated,
                node_class,
                snapshot.ledger.registration_health.get(pool.uid),
                now=now,
                failure=snapshot.ledger.registration_failures.get(pool.uid, ("", "")),
            )
            updated = step.pool
            if step.reset is not None:
                self._cluster_state.fold(step.reset)
        # Read again: the results may have been reset just now.
        pauses = self._cluster_state.snapshot().ledger.launch_pauses
        updated = with_launches_held_back(updated, pauses.get(pool.uid), now=now)
        updated = with_open_windows(updated, snapshot.pool_schedules.get(pool.name), now=now)
        updated = with_replicas_conditions(updated, self._replicas_problem(pool), now=now)
        self._writer.publish_all((*replicas_notices(updated), *schedule_notices(updated)))
        updated = with_instance_types_listed(updated, self._catalogue_problem(pool), now=now)
        unrated = self._currencies(pool) - self._rated
        updated = with_exchange_rates(updated, unrated, currency=self._currency, now=now)
        updated = with_failing_passes(updated, self._runtime.passes.failing, now=now)
        self._warn(pool)
        settled = updated is pool
        updated = with_usage(updated, snapshot, self._sums)
        left = self._schedule_count(pool.name)
        if settled and updated is not pool and left > 0:
            return ReconcileResult(requeue_after=left)
        patch = node_pool_status_patch(pool, updated)
        if patch is None:
            return DONE
        await self._patch(
            pool, patch.body, subresource="status", resource_version=patch.resource_version
        )
        self._counted[pool.name] = self._runtime.clock.monotonic()
        return DONE

    def _replicas_problem(self, pool: NodePool) -> ReplicasProblem | None:
        """Return why a static pool has fewer nodes than replicas; None for every other pool."""
        if not is_static(pool):
            return None
        return replicas_problem(
            self._cluster_state.snapshot(),
            pool,
            static_capacity=self._static_capacity,
            aliases=self._rules.aliases,
            well_known=self._rules.well_known,
            solve=self._solve,
        )

    def _wake_on_failing_passes(self) -> None:
        """Wake all pools when the set of failing controllers changes."""
        failing = self._runtime.passes.failing
        if failing != self._failing:
            self._failing = failing
            for name in self._cluster_state.snapshot().node_pools:
                self._reconciler.wake(name)

    def _warn(self, pool: NodePool) -> None:
        """Log the warnings about a pool when they change."""
        warnings = validate_node_pool(pool, rules=self._rules).warnings
        if warnings != self._warned.get(pool.name, ()):
            for warning in warnings:
                self._log.warning("nodepool has a field without effect", warning=warning)
        self._warned[pool.name] = warnings

    def _schedule_count(self, name: str) -> float:
        last = self._counted.get(name)
        return 0.0 if last is None else last + COUNT_SECONDS - self._runtime.clock.monotonic()

    async def _patch(
        self,
        pool: NodePool,
        body: Mapping[str, object],
        *,
        subresource: str = "",
        resource_version: str | None = None,
    ) -> NodePool:
        stored = await self._writer.kube_writer.patch(
            NODE_POOLS,
            pool.name,
            body,
            subresource=subresource,
            resource_version=resource_version,
        )
        return cast("NodePool", stored)

    async def _dispatch_changes(self) -> None:
        """Wake the pools that changes of other objects affect."""
        while True:
            changes = await self._change_queue.take()
            snapshot = self._cluster_state.snapshot()
            classes = set(changes.get(ObjectKind.NODE_CLASS, ()))
            for name, pool in snapshot.node_pools.items():
                if pool.spec.template.spec.node_class_ref.name in classes:
                    self._reconciler.wake(name)
            changed_nodes = (
                *changes.get(ObjectKind.NODE, ()),
                *changes.get(ObjectKind.NODE_CLAIM, ()),
            )
            if changed_nodes:
                for name in snapshot.node_pools:
                    self._reconciler.wake_after(name, max(self._schedule_count(name), 0.001))
            for name in changes.get(ObjectKind.CATALOGUE, ()):
                self._reconciler.wake(name)
