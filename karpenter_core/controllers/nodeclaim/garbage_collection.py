"""Deletes claims without an instance, terminates instances without a claim.

The rules that make this safe are pure functions (`lifecycle.nodeclaim.garbage_collection`); this module
lists instances and claims, and applies the results.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.labels import TERMINATION_FINALIZER
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.clock import SteadyClock
from karpenter_core.controllers.cluster_state import ChangedNames
from karpenter_core.controllers.forceful_disruption import record_forceful_disruption
from karpenter_core.controllers.reconciling.freshness import FreshnessConsumer
from karpenter_core.controllers.reconciling.reconciler import PeriodicLoop
from karpenter_core.errors import ApiError
from karpenter_core.lifecycle.nodeclaim.garbage_collection import (
    DRAIN_LIMIT,
    ORPHAN_GRACE,
    STOPPED_GRACE,
    blocking_pods,
    claims_with_stopped_instance,
    claims_without_instance,
    exclude_claimed,
    orphaned_instances,
    surplus_instances,
    surplus_notice,
    was_registered,
)
from karpenter_core.state.object_kinds import ObjectKind

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.records import NodeView
    from karpenter_core.controllers.live_reader import LiveReader
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.reconciling.freshness import FreshnessGuard
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.lifecycle.nodeclaim.garbage_collection import ClaimWithoutInstance
    from karpenter_core.provider.contract import InstanceListing
    from karpenter_core.provider.host.facade import Providers

__all__ = ["GarbageCollectionController"]

BATCH_SIZE: Final = 20  # upstream default
REMEMBERED_CLAIMS: Final = 50_000
"""The number of claim UIDs that are remembered, to identify surplus of our own launches."""


@final
class GarbageCollectionController:
    """The controller `nodeclaim.garbagecollection`."""

    def __init__(
        self,
        *,
        writer: ObjectWriter,
        providers: Providers,
        runtime: ControllerRuntime,
        freshness: FreshnessGuard,
        claims: LiveReader,
        pods: LiveReader,
    ) -> None:
        self._pods = pods
        self._freshness = freshness
        self._writer = writer
        self._claims = claims
        self._cluster_state = writer.cluster_state
        self._providers = providers
        self._runtime = runtime
        self._changed = ChangedNames(writer.cluster_state, ObjectKind.NODE_CLAIM)
        self._uids: dict[str, None] = {}
        """UIDs of claims that this process has seen, the oldest first."""
        self._steady = SteadyClock(runtime.clock)
        self._missing_since: dict[str, dict[str, datetime]] = {name: {} for name in providers.names}
        """Times at which instances were first seen without a claim, by provider and instance."""
        self._stopped_since: dict[str, datetime] = {}
        """Times at which the instances of claims, by UID, were first seen as stopped."""
        self._busy_since: dict[str, dict[str, datetime]] = {name: {} for name in providers.names}
        """Times at which pods that keep an instance were first seen, by provider and instance."""
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._loops = {
            name: PeriodicLoop(self.name, partial(self.step, name), runtime=runtime)
            for name in providers.names
        }

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "nodeclaim.garbagecollection"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._cluster_state.wait_synced()
        self._remember(self._cluster_state.snapshot().node_claims)
        async with asyncio.TaskGroup() as group:
            for loop in self._loops.values():
                group.create_task(loop.run())
            group.create_task(self._remember_changed())

    async def _remember_changed(self) -> None:
        """Remember the UIDs of changed claims: failed ones are gone before the next pass."""
        while True:
            changes = await self._changed.take()
            self._remember(changes.get(ObjectKind.NODE_CLAIM, ()))

    def _remember(self, names: Iterable[str]) -> None:
        claims = self._cluster_state.snapshot().node_claims
        self._uids.update((claims[name].uid, None) for name in names if name in claims)
        excess = max(0, len(self._uids) - REMEMBERED_CLAIMS)
        for uid in tuple(islice(self._uids, excess)):
            del self._uids[uid]

    async def step(self, provider: str) -> float:
        """Compare a provider's listing with the claims once; return the seconds until the next pass."""
        period = self._providers.polling_periods(provider).instances
        if self._is_state_stale(provider):
            return period.total_seconds()
        await self._compare(provider)
        suspected = self._missing_since[provider]
        return (min(ORPHAN_GRACE, period) if suspected else period).total_seconds()

    def _is_state_stale(self, provider: str) -> bool:
        """Tell whether the state is too old to end anything; the next pass is when it is fresh."""
        return bool(
            self._freshness.stale_or_wake(
                FreshnessConsumer.GARBAGE_COLLECTION, provider, self._loops[provider].wake
            )
        )

    async def _compare(self, provider: str) -> None:
        listing = await self._providers.list_instances(provider)
        if not listing.complete:
            self._log.warning(
                "not all instances could be listed, garbage collection is skipped",
                provider=provider,
                problem=listing.problem,
            )
            return
        if self._is_state_stale(provider):
            return  # the listing may have taken minutes
        await self._collect_claims(provider, listing)
        await self._collect_instances(provider, listing)

    async def _collect_claims(self, provider: str, listing: InstanceListing) -> None:
        models = self._providers.infos()[provider].node_classes
        served = frozenset((model.resource.group, model.resource.kind) for model in models)
        now, snapshot = self._steady.now(), self._cluster_state.snapshot()
        stopped = claims_with_stopped_instance(snapshot)
        self._stopped_since = {uid: self._stopped_since.get(uid, now) for uid in stopped}
        without_instance = claims_without_instance(
            snapshot,
            listing.instances,
            complete=listing.complete,
            served_kinds=served,
            as_of=listing.as_of,
            stopped=frozenset(
                uid for uid, since in self._stopped_since.items() if now - since >= STOPPED_GRACE
            ),
        )
        for start in range(0, len(without_instance), BATCH_SIZE):
            batch = without_instance[start : start + BATCH_SIZE]
            await asyncio.gather(*(self._collect_claim(item) for item in batch))

    async def _collect_claim(self, without_instance: ClaimWithoutInstance) -> None:
        claim, snapshot = without_instance.claim, self._cluster_state.snapshot()
        try:
            is_deleted = await self._writer.delete_claim(claim)
        except ApiError as error:
            self._log.warning(
                "could not delete nodeclaim with no instance, trying again",
                NodeClaim={"name": claim.name},
                error=str(error),
            )
            return
        if is_deleted:
            self._writer.record_metrics(without_instance.metric_updates)
            self._writer.publish_all(without_instance.notices)
            stopped = without_instance.stopped
            self._log.debug(
                "garbage collecting nodeclaim with a stopped instance"
                if stopped
                else "garbage collecting nodeclaim with no instance",
                NodeClaim={"name": claim.name},
                **{"provider-id": claim.status.provider_id},
            )
            await record_forceful_disruption(
                self._runtime,
                snapshot,
                claim,
                method="garbage-collection",
                reason="GarbageCollected",
                cause=f"instance {claim.status.provider_id} has stopped"
                if stopped
                else f"its provider does not list instance {claim.status.provider_id}",
            )

    async def _collect_instances(self, provider: str, listing: InstanceListing) -> None:
        snapshot, now = self._cluster_state.snapshot(), self._steady.now() - self._lag(listing)
        report = orphaned_instances(
            snapshot,
            listing.instances,
            complete=listing.complete,
            now=now,
            missing_since=self._missing_since[provider],
        )
        self._missing_since[provider] = dict(report.missing_since)
        kept = self._busy_since[provider]
        for provider_id in kept.keys() - report.missing_since.keys():
            del kept[provider_id]
        if report.held_back:
            self._runtime.metrics.garbage_collection_held_back.labels(kind="instances").inc()
            self._log.error(
                "too many instances have no nodeclaim, they are kept because the cause may be a mistake",
                provider=provider,
                count=report.held_back,
            )
        surplus: tuple[str, ...] = ()
        if report.held_back:
            surplus = surplus_instances(
                snapshot,
                listing.instances,
                known_uids=self._uids,
                now=now,
                missing_since=report.missing_since,
            )
        to_terminate = await self._without_pods(
            provider,
            await self._confirmed_unclaimed(provider, report.terminate or surplus, listing),
        )
        outcomes = await asyncio.gather(
            *(self._providers.terminate_leaked(provider, item) for item in to_terminate)
        )
        for provider_id, outcome in zip(to_terminate, outcomes, strict=True):
            notice = surplus_notice(provider_id, listing.instances, snapshot)
            self._runtime.metrics.garbage_collection_instances.labels(provider=provider).inc()
            if surplus or notice is not None:
                self._runtime.metrics.garbage_collection_surplus.labels(provider=provider).inc()
            if notice is not None:
                self._writer.publish(notice)
            self._log.info(
                "terminating surplus instance of a launch"
                if surplus or notice is not None
                else "terminating instance without a nodeclaim",
                provider=provider,
                outcome=str(outcome),
                **{"provider-id": provider_id},
            )

    def _lag(self, listing: InstanceListing) -> timedelta:
        """Return how far a listing is behind."""
        if listing.as_of is None:
            return timedelta()
        return max(self._runtime.clock.now() - listing.as_of, timedelta())

    async def _without_pods(self, provider: str, to_terminate: tuple[str, ...]) -> tuple[str, ...]:
        """Return the instances that no pod keeps; delete the Nodes of the others.

        Such a Node is drained like any other, and its instance is terminated in a later pass: when the
        pods have left, or after DRAIN_LIMIT.
        """
        by_id = self._cluster_state.snapshot().nodes_by_provider_id
        kept_since, now = self._busy_since[provider], self._steady.now()
        ending: list[str] = []
        for provider_id in to_terminate:
            busy = await self._busy_nodes(by_id.get(provider_id, ()))
            if not busy:
                ending.append(provider_id)
                continue
            overdue = now - kept_since.setdefault(provider_id, now) >= DRAIN_LIMIT
            self._log.warning(
                _busy_message(busy, overdue=overdue),
                provider=provider,
                Node={"name": busy[0].name},
                **{"provider-id": provider_id},
            )
            if overdue:
                ending.append(provider_id)
                continue
            for node in busy:
                if TERMINATION_FINALIZER in node.finalizers:
                    await self._delete_busy_node(node)
        return tuple(ending)

    async def _delete_busy_node(self, node: NodeView) -> None:
        """Delete a Node so that it is drained; one that a webhook protects delays no other instance."""
        try:
            await self._writer.delete_node(node)
        except ApiError as error:
            self._log.warning(
                "could not delete the node of an instance without a nodeclaim, trying again",
                Node={"name": node.name},
                error=str(error),
            )

    async def _busy_nodes(self, names: Iterable[str]) -> tuple[NodeView, ...]:
        """Return the registered Nodes of an instance that have pods to drain.

        The pods are listed from the API server itself.
        """
        busy: list[NodeView] = []
        for name in names:
            node = self._cluster_state.snapshot().nodes.get(name)
            if node is None or not was_registered(node):
                continue
            _, unreadable = await self._pods.read_now(f"spec.nodeName={name}")
            snapshot = self._cluster_state.snapshot()
            pods = snapshot.pods_by_node.get(name, ())
            if unreadable or blocking_pods(pods, self._runtime.clock.now(), snapshot.ledger):
                busy.append(node)
        return tuple(busy)

    async def _confirmed_unclaimed(
        self, provider: str, to_terminate: tuple[str, ...], listing: InstanceListing
    ) -> tuple[str, ...]:
        """Return the instances that no claim uses according to a list from the API server."""
        if not to_terminate:
            return ()
        claims, unreadable = await self._claims.read_all()
        confirmed = exclude_claimed(
            to_terminate,
            listing.instances,
            (claim for claim in claims if isinstance(claim, NodeClaim)),
            unreadable=frozenset(text for item in unreadable for text in (item.uid, item.name)),
        )
        if len(confirmed) < len(to_terminate):
            self._log.error(
                "instances have nodeclaims that the watch has not reported, they are kept",
                provider=provider,
                count=len(to_terminate) - len(confirmed),
            )
        return confirmed


def _busy_message(busy: tuple[NodeView, ...], *, overdue: bool) -> str:
    """Return the log message about an instance whose Nodes have pods."""
    if overdue:
        return "instance without a nodeclaim is terminated with its pods, the drain limit is over"
    if any(TERMINATION_FINALIZER in node.finalizers for node in busy):
        return "instance without a nodeclaim has a node with pods, which is drained first"
    return "instance without a nodeclaim has a node with pods, it waits until they have left"
