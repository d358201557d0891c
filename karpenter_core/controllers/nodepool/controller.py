"""Keep every NodePool's annotations and status: one patch of each at most for a look.

Counts of nodes move all the time during a scale-up; they are written every few seconds at most,
together with whatever else has changed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast, final

import structlog

from karpenter_core.api.labels import NODE_POOL, NODE_POOL_HASH, NODE_POOL_HASH_VERSION
from karpenter_core.controllers.feed import Inbox
from karpenter_core.controllers.reconciler import DONE, Outcome, Reconciler
from karpenter_core.kube.wire.codecs import NODE_POOLS
from karpenter_core.lifecycle.nodepool.counter import with_usage
from karpenter_core.lifecycle.nodepool.exchange_rates import with_exchange_rates
from karpenter_core.lifecycle.nodepool.failing_passes import with_failing_passes
from karpenter_core.lifecycle.nodepool.hashing import HASH_VERSION, with_current_hash, with_hash
from karpenter_core.lifecycle.nodepool.held_back import with_held_back
from karpenter_core.lifecycle.nodepool.listing import with_listing
from karpenter_core.lifecycle.nodepool.readiness import with_readiness
from karpenter_core.lifecycle.nodepool.registration_health import with_registration_health
from karpenter_core.lifecycle.nodepool.static_capacity import (
    static_notices,
    with_replicas_ignored,
)
from karpenter_core.lifecycle.nodepool.status import node_pool_status_patch
from karpenter_core.lifecycle.nodepool.validation import (
    LabelRules,
    validate_node_pool,
    with_validation,
)
from karpenter_core.state.objects import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.reconciler import Runtime
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
        hands: Hands,
        runtime: Runtime,
        label_rules: LabelRules,
        catalogue_problem: Callable[[NodePool], str],
        currencies: Callable[[NodePool], frozenset[str]],
        solve: SolveOptions,
    ) -> None:
        self._hands = hands
        self._feed = hands.feed
        self._runtime = runtime
        self._rules = label_rules
        self._catalogue_problem = catalogue_problem
        self._currencies = currencies
        self._currency = solve.currency
        self._rated = frozenset({solve.currency, *solve.exchange_rates})
        self._counted: dict[str, float] = {}
        self._warned: dict[str, tuple[str, ...]] = {}
        self._failing = ""
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._reconciler: Reconciler[str] = Reconciler(
            self.name, self.reconcile, runtime=runtime, log_field="NodePool"
        )
        self._inbox = Inbox(hands.feed, Kind.NODE_CLASS, Kind.NODE, Kind.NODE_CLAIM, Kind.CATALOGUE)
        hands.feed.subscribe(Kind.NODE_POOL, self._reconciler.wake)
        runtime.passes.subscribe(lambda _streak: self._note_passes())

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "nodepool"

    def wake(self, name: str) -> None:
        """Look at a pool soon."""
        self._reconciler.wake(name)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._feed.wait_synced()
        for name in self._feed.snapshot().node_pools:
            self._reconciler.wake(name)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sort())
            group.create_task(self._reconciler.run())

    async def reconcile(self, name: str) -> Outcome:
        """Bring one pool up to date."""
        snapshot = self._feed.snapshot()
        pool = snapshot.node_pools.get(name)
        if pool is None:
            self._counted.pop(name, None)
            self._warned.pop(name, None)
            return DONE
        if not snapshot.manages(pool.spec.template.spec.node_class_ref) or pool.is_deleting:
            return DONE
        pool = await self._hash(pool, snapshot)
        return await self._status(pool)

    async def _hash(self, pool: NodePool, snapshot: Snapshot) -> NodePool:
        """Write the pool's hash; claims stamped by another version of it come first."""
        hashed = with_hash(pool)
        if hashed is pool:
            return pool
        if pool.metadata.annotations.get(NODE_POOL_HASH_VERSION) != HASH_VERSION:
            for claim in snapshot.node_claims.values():
                owned = claim.metadata.labels.get(NODE_POOL) == pool.name
                if owned and not claim.is_deleting:
                    await self._hands.write_claim(claim, with_current_hash(claim, pool))
        annotations = {
            key: hashed.metadata.annotations[key]
            for key in (NODE_POOL_HASH, NODE_POOL_HASH_VERSION)
        }
        return await self._patch(pool, {"metadata": {"annotations": annotations}})

    async def _status(self, pool: NodePool) -> Outcome:
        now = self._runtime.clock.now()
        snapshot = self._feed.snapshot()
        ref = pool.spec.template.spec.node_class_ref
        node_class = snapshot.node_classes.get((ref.group, ref.kind, ref.name))
        wanted = with_validation(pool, now=now, rules=self._rules)
        wanted = with_readiness(wanted, node_class, now=now)
        if node_class is not None:
            step = with_registration_health(
                wanted,
                node_class,
                snapshot.ledger.registration_health.get(pool.uid),
                now=now,
                failure=snapshot.ledger.registration_failures.get(pool.uid, ("", "")),
            )
            wanted = step.pool
            if step.reset is not None:
                self._feed.fold(step.reset)
        # Read again: the account may have been begun anew just now.
        pauses = self._feed.snapshot().ledger.launch_pauses
        wanted = with_held_back(wanted, pauses.get(pool.uid), now=now)
        wanted = with_replicas_ignored(wanted, now=now)
        self._hands.tell(static_notices(pool))
        wanted = with_listing(wanted, self._catalogue_problem(pool), now=now)
        unrated = self._currencies(pool) - self._rated
        wanted = with_exchange_rates(wanted, unrated, currency=self._currency, now=now)
        wanted = with_failing_passes(wanted, self._runtime.passes.failing, now=now)
        self._warn(pool)
        settled = wanted is pool
        wanted = with_usage(wanted, snapshot)
        left = self._count_in(pool.name)
        if settled and wanted is not pool and left > 0:
            return Outcome(requeue_after=left)
        patch = node_pool_status_patch(pool, wanted)
        if patch is None:
            return DONE
        await self._patch(
            pool, patch.body, subresource="status", resource_version=patch.resource_version
        )
        self._counted[pool.name] = self._runtime.clock.monotonic()
        return DONE

    def _note_passes(self) -> None:
        """Wake all pools when another controller stands still, or none does any more."""
        failing = self._runtime.passes.failing
        if failing != self._failing:
            self._failing = failing
            for name in self._feed.snapshot().node_pools:
                self._reconciler.wake(name)

    def _warn(self, pool: NodePool) -> None:
        """Log what is doubtful about a pool, once for each wording."""
        warnings = validate_node_pool(pool, rules=self._rules).warnings
        if warnings != self._warned.get(pool.name, ()):
            for warning in warnings:
                self._log.warning("nodepool is doubtful", warning=warning)
        self._warned[pool.name] = warnings

    def _count_in(self, name: str) -> float:
        last = self._counted.get(name)
        return 0.0 if last is None else last + COUNT_SECONDS - self._runtime.clock.monotonic()

    async def _patch(
        self,
        pool: NodePool,
        body: Mapping[str, Any],
        *,
        subresource: str = "",
        resource_version: str | None = None,
    ) -> NodePool:
        stored = await self._hands.writer.patch(
            NODE_POOLS,
            pool.name,
            body,
            subresource=subresource,
            resource_version=resource_version,
        )
        return cast("NodePool", stored)

    async def _sort(self) -> None:
        """Wake the pools that changes of other objects are about."""
        while True:
            changes = await self._inbox.take()
            snapshot = self._feed.snapshot()
            classes = set(changes.get(Kind.NODE_CLASS, ()))
            for name, pool in snapshot.node_pools.items():
                if pool.spec.template.spec.node_class_ref.name in classes:
                    self._reconciler.wake(name)
            machines = (*changes.get(Kind.NODE, ()), *changes.get(Kind.NODE_CLAIM, ()))
            if machines:
                for name in snapshot.node_pools:
                    self._reconciler.wake_after(name, max(self._count_in(name), 0.001))
            for name in changes.get(Kind.CATALOGUE, ()):
                self._reconciler.wake(name)
