"""Collect claims without an instance, and instances without a claim.

The rules that make this safe are pure (`lifecycle.nodeclaim.garbage_collection`); here is the asking.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, final

import structlog

from karpenter_core.api.labels import TERMINATION_FINALIZER
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.clock import SteadyClock
from karpenter_core.controllers.feed import Inbox
from karpenter_core.controllers.forced import record_forced
from karpenter_core.controllers.freshness import Consumer
from karpenter_core.controllers.reconciler import Loop
from karpenter_core.errors import ApiError, CloudProviderError, KarpenterError
from karpenter_core.lifecycle.nodeclaim.garbage_collection import (
    DRAIN_LIMIT,
    ORPHAN_GRACE,
    PERIOD,
    keeping_pods,
    orphaned_instances,
    surplus_instances,
    surplus_notice,
    vanished_claims,
    was_let_in,
    without_claimed,
)
from karpenter_core.state.objects import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.records import NodeView
    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.freshness import Freshness
    from karpenter_core.controllers.live import LiveReader
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.kube.wire.codecs import InvalidObject
    from karpenter_core.lifecycle.nodeclaim.garbage_collection import VanishedClaim
    from karpenter_core.provider.contract import InstanceListing
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.state.events import Object

__all__ = ["GarbageCollection"]

PARALLEL: Final = 20  # upstream default
REMEMBERED_CLAIMS: Final = 50_000
"""How many UIDs of claims are remembered, to know surplus of our own launches by."""


class ClaimReader(Protocol):
    """Asks the API server for claims; the informer of NodeClaims is one."""

    async def read_all(self) -> tuple[list[Object], list[InvalidObject]]:
        """Return every claim there is now, and those that cannot be read."""
        ...


@final
class GarbageCollection:
    """The controller `nodeclaim.garbagecollection`."""

    def __init__(
        self,
        *,
        hands: Hands,
        providers: Providers,
        runtime: Runtime,
        freshness: Freshness,
        claims: ClaimReader,
        pods: LiveReader,
    ) -> None:
        self._pods = pods
        self._freshness = freshness
        self._hands = hands
        self._claims = claims
        self._feed = hands.feed
        self._providers = providers
        self._runtime = runtime
        self._changed = Inbox(hands.feed, Kind.NODE_CLAIM)
        self._uids: dict[str, None] = {}
        """UIDs of claims that this process has seen, the oldest first."""
        self._steady = SteadyClock(runtime.clock)
        self._missing: dict[str, dict[str, datetime]] = {name: {} for name in providers.names}
        """Since when instances have had no claim, by provider and instance."""
        self._kept_since: dict[str, dict[str, datetime]] = {name: {} for name in providers.names}
        """Since when pods keep an instance that would end otherwise, by provider and instance."""
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._loop = Loop(self.name, self.step, runtime=runtime)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "nodeclaim.garbagecollection"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._feed.wait_synced()
        self._remember(self._feed.snapshot().node_claims)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._loop.run())
            group.create_task(self._remember_changed())

    async def _remember_changed(self) -> None:
        """Remember the UIDs of claims: those that fail are gone before the next look."""
        while True:
            changes = await self._changed.take()
            self._remember(changes.get(Kind.NODE_CLAIM, ()))

    def _remember(self, names: Iterable[str]) -> None:
        claims = self._feed.snapshot().node_claims
        self._uids.update((claims[name].uid, None) for name in names if name in claims)
        excess = max(0, len(self._uids) - REMEMBERED_CLAIMS)
        for uid in tuple(islice(self._uids, excess)):
            del self._uids[uid]

    async def step(self) -> float:
        """Compare every provider's listing with the claims once."""
        if self._is_held():
            return PERIOD.total_seconds()
        failure: KarpenterError | None = None
        for provider in self._providers.names:
            try:
                await self._compare(provider)
            except (CloudProviderError, ApiError) as error:
                failure = error  # the other providers are looked at all the same
        if failure is not None:
            raise failure
        suspected = any(self._missing.values())
        return (ORPHAN_GRACE if suspected else PERIOD).total_seconds()

    def _is_held(self) -> bool:
        """Whether the state is too old to end anything; the next look is when it is fresh again."""
        return bool(self._freshness.hold(Consumer.GARBAGE_COLLECTION, self.name, self._loop.wake))

    async def _compare(self, provider: str) -> None:
        listing = await self._providers.list_instances(provider)
        if not listing.complete:
            self._log.warning(
                "instances could not all be listed, nothing is collected",
                provider=provider,
                problem=listing.problem,
            )
            return
        if self._is_held():
            return  # the listing may have taken minutes
        await self._collect_claims(provider, listing)
        await self._collect_instances(provider, listing)

    async def _collect_claims(self, provider: str, listing: InstanceListing) -> None:
        models = self._providers.infos()[provider].node_classes
        served = frozenset((model.resource.group, model.resource.kind) for model in models)
        vanished = vanished_claims(
            self._feed.snapshot(), listing.instances, complete=listing.complete, served=served
        )
        for start in range(0, len(vanished), PARALLEL):
            batch = vanished[start : start + PARALLEL]
            await asyncio.gather(*(self._collect_claim(item) for item in batch))

    async def _collect_claim(self, vanished: VanishedClaim) -> None:
        claim, snapshot = vanished.claim, self._feed.snapshot()
        try:
            is_deleted = await self._hands.delete_claim(claim)
        except ApiError as error:
            self._log.warning(
                "could not delete nodeclaim with no instance, trying again",
                NodeClaim={"name": claim.name},
                error=str(error),
            )
            return
        if is_deleted:
            self._hands.count(vanished.facts)
            self._log.info(
                "garbage collecting nodeclaim with no instance",
                NodeClaim={"name": claim.name},
                **{"provider-id": claim.status.provider_id},
            )
            await record_forced(
                self._runtime,
                snapshot,
                claim,
                method="garbage-collection",
                reason="GarbageCollected",
                cause=f"its provider does not list instance {claim.status.provider_id}",
            )

    async def _collect_instances(self, provider: str, listing: InstanceListing) -> None:
        snapshot, now = self._feed.snapshot(), self._steady.now()
        report = orphaned_instances(
            snapshot,
            listing.instances,
            complete=listing.complete,
            now=now,
            missing_since=self._missing[provider],
        )
        self._missing[provider] = dict(report.missing_since)
        kept = self._kept_since[provider]
        for provider_id in kept.keys() - report.missing_since.keys():
            del kept[provider_id]
        if report.held_back:
            self._runtime.metrics.garbage_collection_held_back.labels(kind="instances").inc()
            self._log.error(
                "so many instances have no nodeclaim that this is taken for a mistake",
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
        condemned = await self._drained(
            provider, await self._confirmed(provider, report.terminate or surplus, listing)
        )
        outcomes = await asyncio.gather(
            *(self._providers.terminate_leaked(provider, item) for item in condemned)
        )
        for provider_id, outcome in zip(condemned, outcomes, strict=True):
            notice = surplus_notice(provider_id, listing.instances, snapshot)
            if surplus or notice is not None:
                self._runtime.metrics.garbage_collection_surplus.labels(provider=provider).inc()
            if notice is not None:
                self._hands.publish(notice)
            self._log.info(
                "terminating surplus instance of a launch"
                if surplus or notice is not None
                else "terminating instance without a nodeclaim",
                provider=provider,
                outcome=str(outcome),
                **{"provider-id": provider_id},
            )

    async def _drained(self, provider: str, condemned: tuple[str, ...]) -> tuple[str, ...]:
        """Return the instances that no pod keeps any more; the Nodes of the others are deleted.

        Such a Node is drained like any other, and its instance goes at a later look: when the pods
        have left, or when they have kept it for as long as they may.
        """
        by_id = self._feed.snapshot().nodes_by_provider_id
        kept_since, now = self._kept_since[provider], self._steady.now()
        ending: list[str] = []
        for provider_id in condemned:
            busy = await self._busy(by_id.get(provider_id, ()))
            if not busy:
                ending.append(provider_id)
                continue
            overdue = now - kept_since.setdefault(provider_id, now) >= DRAIN_LIMIT
            self._log.warning(
                _kept_message(busy, overdue=overdue),
                provider=provider,
                Node={"name": busy[0].name},
                **{"provider-id": provider_id},
            )
            if overdue:
                ending.append(provider_id)
                continue
            for node in busy:
                if TERMINATION_FINALIZER in node.finalizers:
                    await self._hands.delete_node(node)
        return tuple(ending)

    async def _busy(self, names: Iterable[str]) -> tuple[NodeView, ...]:
        """Return those of an instance's Nodes that were let in and have pods that have to leave.

        The API server itself is asked for the pods.
        """
        busy: list[NodeView] = []
        for name in names:
            node = self._feed.snapshot().nodes.get(name)
            if node is None or not was_let_in(node):
                continue
            _, unreadable = await self._pods.read_now(f"spec.nodeName={name}")
            pods = self._feed.snapshot().pods_by_node.get(name, ())
            if unreadable or keeping_pods(pods, self._runtime.clock.now()):
                busy.append(node)
        return tuple(busy)

    async def _confirmed(
        self, provider: str, condemned: tuple[str, ...], listing: InstanceListing
    ) -> tuple[str, ...]:
        """Return the instances that no claim stands for in the API server's own words either."""
        if not condemned:
            return ()
        claims, unreadable = await self._claims.read_all()
        confirmed = without_claimed(
            condemned,
            listing.instances,
            (claim for claim in claims if isinstance(claim, NodeClaim)),
            unreadable=frozenset(text for item in unreadable for text in (item.uid, item.name)),
        )
        if len(confirmed) < len(condemned):
            self._log.error(
                "instances have nodeclaims that the watch has not shown, they are kept",
                provider=provider,
                count=len(condemned) - len(confirmed),
            )
        return confirmed


def _kept_message(busy: tuple[NodeView, ...], *, overdue: bool) -> str:
    """Say what becomes of an instance whose Nodes have pods."""
    if overdue:
        return "instance without a nodeclaim ends although pods are left, their time is over"
    if any(TERMINATION_FINALIZER in node.finalizers for node in busy):
        return "instance without a nodeclaim has a node with pods, which is drained first"
    return "instance without a nodeclaim has a node with pods, it waits until they have left"
