"""Handles announced interruptions of instances: the controller `interruption`.

There are two sources. Providers are polled, each in its own loop, so that one whose queue is down
delays no other; their messages are acknowledged only after they were handled. And Nodes are read,
where an agent of the cloud writes announcements into their conditions. `lifecycle.node.interruption`
computes the effects of an announcement.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar, final

import structlog

from karpenter_core.api.interruptions import InterruptionKind
from karpenter_core.clock import SteadyClock
from karpenter_core.controllers.forceful_disruption import record_forceful_disruption
from karpenter_core.controllers.reconciling.reconciler import (
    DONE,
    PeriodicLoop,
    Reconciler,
    ReconcileResult,
    log_failure,
)
from karpenter_core.errors import ApiError, ConflictError, FencedError, NotFoundError
from karpenter_core.kube.refusals import is_refusal, refused_write_notice
from karpenter_core.lifecycle.node.interruption import (
    MESSAGE_TYPES,
    interruption_step,
    unclaimed_shortage,
)
from karpenter_core.provider.kit.bounded_gather import gather_bounded
from karpenter_core.state.events import OfferingsUnavailable
from karpenter_core.state.object_kinds import ObjectKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.errors import OfferingMask
    from karpenter_core.lifecycle.node.interruption import InterruptionStep
    from karpenter_core.provider.contract import Interruption
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["InterruptionController"]

V = TypeVar("V")

CONCURRENCY: Final = 10  # upstream's AWS provider
ATTEMPTS: Final = 4
RETRY_SECONDS: Final = 0.2
UNCLAIMED_GRACE: Final = timedelta(minutes=1)
"""The time for which a message about an instance without a claim is kept: a claim may appear."""
_REMEMBERED: Final = 10_000


@final
class InterruptionController:
    """The controller `interruption`: one loop for each provider that can be polled, and Nodes."""

    def __init__(
        self,
        *,
        writer: ObjectWriter,
        providers: Providers,
        runtime: ControllerRuntime,
        act_on_rebalance: bool,
    ) -> None:
        self._writer = writer
        self._cluster_state = writer.cluster_state
        self._providers = providers
        self._runtime = runtime
        self._act_on_rebalance = act_on_rebalance
        self._steady = SteadyClock(runtime.clock)
        self._first_seen: OrderedDict[str, datetime] = OrderedDict()
        self._handled: OrderedDict[str, None] = OrderedDict()
        self._masked: OrderedDict[str, None] = OrderedDict()
        """Messages whose offerings were made unavailable: a repetition must not prolong that."""
        self._deleted: OrderedDict[str, None] = OrderedDict()
        """UIDs of claims that were deleted here: of several messages about a claim one is counted."""
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._nodes: Reconciler[str] = Reconciler(
            self.name, self.read_node, runtime=runtime, log_field="Node"
        )
        self._reads_nodes = any(map(providers.reads_interruptions, providers.names))
        if self._reads_nodes:
            writer.cluster_state.subscribe(ObjectKind.NODE, self._nodes.wake)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "interruption"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._cluster_state.wait_synced()
        async with asyncio.TaskGroup() as group:
            for provider in filter(self._providers.polls_interruptions, self._providers.names):
                group.create_task(self._poll_forever(provider).run())
            if self._reads_nodes:
                for name in self._cluster_state.snapshot().nodes:
                    self._nodes.wake(name)
                group.create_task(self._nodes.run())

    def _poll_forever(self, provider: str) -> PeriodicLoop:
        async def step() -> float:
            return await self.poll(provider)

        return PeriodicLoop(self.name, step, runtime=self._runtime)

    async def poll(self, provider: str) -> float:
        """Handle the messages of one provider; return the seconds until the next poll.

        Messages that cannot be handled now stay with the provider. Neither the others nor those to
        come wait for them: a back-off may take half of the notice of a spot reclaim.

        Raises:
            CloudProviderError: the provider could not be polled.
            FencedError: this process is no longer the leader.
        """
        period = self._providers.polling_periods(provider).interruptions.total_seconds()
        messages = await self._providers.poll_interruptions(provider)
        if not messages:
            return period
        # From 0, so that an alert can compare: only messages of queues are acknowledged.
        self._runtime.metrics.interruption_deleted_messages.labels(provider=provider)
        for message in messages:
            self._count_received(provider, message)

        async def handled(message: Interruption) -> bool | Exception:
            try:
                return await self.handle(provider, message)
            except Exception as error:
                return error

        results = await gather_bounded(handled, messages, at_once=CONCURRENCY)
        done = [message for message, r in zip(messages, results, strict=True) if r is True]
        fresh = [message for message in done if _key(provider, message) not in self._handled]
        await self._acknowledge(provider, done)
        for result in results:
            if isinstance(result, FencedError):
                raise result
            if isinstance(result, Exception):
                self._runtime.metrics.reconcile_errors.labels(controller=self.name).inc()
                log_failure(self._log, result, retry_seconds=period)
        # A provider that repeats acknowledged messages is not polled without a pause.
        return 0.0 if fresh else period

    async def read_node(self, name: str) -> ReconcileResult:
        """Handle the announcements in one Node's conditions."""
        snapshot = self._cluster_state.snapshot()
        node = snapshot.nodes.get(name)
        claims = () if node is None else snapshot.claims_of(node)
        if node is None or len(claims) != 1:
            return DONE
        ref = claims[
            0
        ].spec.node_class_ref  # the state indexes the claims of loaded providers alone
        provider = self._providers.provider_of(ref)
        for message in await self._providers.read_interruptions(ref, node):
            if _key(provider, message) in self._handled:
                continue
            self._count_received(provider, message)
            about = replace(message, provider_id=message.provider_id or node.provider_id)
            if await self.handle(provider, about):
                _remember_first(self._handled, _key(provider, message), None)
        return DONE

    async def handle(self, provider: str, message: Interruption) -> bool:
        """Handle one message; return False if a claim for its instance may still appear."""
        if message.kind is InterruptionKind.IRRELEVANT:
            return True
        if message.kind is InterruptionKind.UNKNOWN:
            self._log.warning(
                "interruption message cannot be parsed", provider=provider, detail=message.detail
            )
            return True
        names = self._claims_of(message)
        if not names:
            self._mask(provider, message, unclaimed_shortage(message))
            return self._is_unclaimed(provider, message)
        for name in names:
            await self._interrupt(provider, name, message)
        return True

    def _claims_of(self, message: Interruption) -> tuple[str, ...]:
        """Return the names of the claims that a message is about.

        A message may precede the record of its instance in the claim; the token finds that claim.
        """
        snapshot = self._cluster_state.snapshot()
        names = snapshot.claims_by_provider_id.get(message.provider_id, ())
        if names or not message.token:
            return tuple(names)
        claims = snapshot.node_claims.values()
        return tuple(claim.name for claim in claims if claim.uid == message.token)

    async def _interrupt(self, provider: str, name: str, message: Interruption) -> None:
        """Mark the offering, write and delete one claim; retry after conflicting writes."""
        for attempt in range(ATTEMPTS):
            snapshot = self._cluster_state.snapshot()
            claim = snapshot.node_claims.get(name)
            if claim is None:
                return
            step = interruption_step(
                snapshot,
                claim,
                message,
                now=self._runtime.clock.now(),
                act_on_rebalance=self._act_on_rebalance,
            )
            try:
                if await self._apply(provider, claim, step, message):
                    await self._journal(snapshot, provider, claim, message)
            except NotFoundError:
                return
            except ApiError as error:
                if is_refusal(error):
                    self._writer.publish(refused_write_notice(claim.ref, error))
                if not isinstance(error, ConflictError) or attempt + 1 == ATTEMPTS:
                    raise
                await self._runtime.clock.sleep(RETRY_SECONDS * 2**attempt)
            else:
                return

    async def _apply(
        self, provider: str, claim: NodeClaim, step: InterruptionStep, message: Interruption
    ) -> bool:
        """Apply a step; tell whether the claim was deleted."""
        self._mask(provider, message, step.exhausted, node_class=step.exhausted_for, uid=claim.uid)
        stored = await self._writer.write_claim(claim, step.claim)
        is_deleted = step.delete and await self._writer.delete_claim(stored)
        self._writer.publish_all(step.notices)
        if not is_deleted or not _add_new(self._deleted, claim.uid):
            return False
        self._writer.publish_all(step.on_delete)
        self._writer.record_metrics(step.metric_updates)
        for event in step.events:
            self._cluster_state.fold(event)
        self._log.debug(
            "deleting interrupted nodeclaim",
            NodeClaim={"name": claim.name},
            kind=str(message.kind),
            deadline="" if message.deadline is None else message.deadline.isoformat(),
            **{"provider-id": message.provider_id},
        )
        return True

    def _mask(
        self,
        provider: str,
        message: Interruption,
        exhausted: tuple[OfferingMask, ...],
        *,
        node_class: str = "",
        uid: str = "",
    ) -> None:
        """Make offerings unavailable, once for each message and claim."""
        if exhausted and _add_new(self._masked, f"{_key(provider, message)}/{uid}"):
            self._cluster_state.fold(
                OfferingsUnavailable(
                    offerings=exhausted,
                    provider=provider,
                    node_class=node_class,
                    at=self._cluster_state.now,
                )
            )

    async def _journal(
        self, snapshot: Snapshot, provider: str, claim: NodeClaim, message: Interruption
    ) -> None:
        await record_forceful_disruption(
            self._runtime,
            snapshot,
            claim,
            method="interruption",
            reason=str(message.kind),
            cause=f"{provider} announced {message.id}",
        )

    def _is_unclaimed(self, provider: str, message: Interruption) -> bool:
        """Tell whether a message is about an instance that has had no claim for a while."""
        now = self._steady.now()
        first = _remember_first(self._first_seen, _key(provider, message), now)
        if message.provider_id and now - first < UNCLAIMED_GRACE:
            return False
        self._first_seen.pop(_key(provider, message), None)
        return True

    async def _acknowledge(self, provider: str, done: Sequence[Interruption]) -> None:
        if not done:
            return
        now = self._runtime.clock.now()
        await self._providers.acknowledge_interruptions(provider, [each.id for each in done])
        metrics = self._runtime.metrics
        metrics.interruption_deleted_messages.labels(provider=provider).inc(len(done))
        waited = metrics.interruption_message_queue_duration.labels(provider=provider)
        for message in done:
            _remember_first(self._handled, _key(provider, message), None)
            if message.announced_at is not None:
                waited.observe(max((now - message.announced_at).total_seconds(), 0.0))

    def _count_received(self, provider: str, message: Interruption) -> None:
        self._runtime.metrics.interruption_received_messages.labels(
            message_type=MESSAGE_TYPES[message.kind], provider=provider
        ).inc()


def _key(provider: str, message: Interruption) -> str:
    return f"{provider}/{message.id}"


def _remember_first(memory: OrderedDict[str, V], key: str, value: V) -> V:
    """Keep the first value of a key and return it; drop the oldest keys."""
    kept = memory.setdefault(key, value)
    while len(memory) > _REMEMBERED:
        memory.popitem(last=False)
    return kept


def _add_new(memory: OrderedDict[str, None], key: str) -> bool:
    """Add a key; return whether it was not there."""
    is_new = key not in memory
    _remember_first(memory, key, None)
    return is_new
