"""Act on what clouds announce: the controller `interruption`.

Two ways lead here. Providers are polled, each in a loop of its own, so that one whose queue is down
holds up nobody; what they announce is acknowledged after it was handled, never before. And Nodes
are read, where an agent of the cloud leaves its announcements in their conditions. What follows from
an announcement is decided by `lifecycle.node.interruption`.
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
from karpenter_core.controllers.forced import record_forced
from karpenter_core.controllers.reconciler import DONE, Loop, Outcome, Reconciler
from karpenter_core.errors import ConflictError, NotFoundError
from karpenter_core.lifecycle.node.interruption import MESSAGE_TYPES, interruption_step
from karpenter_core.state.events import OfferingsExhausted
from karpenter_core.state.objects import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.reconciler import Runtime
    from karpenter_core.lifecycle.node.interruption import InterruptionStep
    from karpenter_core.provider.contract import Interruption
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["InterruptionController"]

V = TypeVar("V")

POLL_SECONDS: Final = 5.0
"""A spot instance may have two minutes, on some clouds half a minute."""
AT_ONCE: Final = 10  # upstream's AWS provider
ATTEMPTS: Final = 4
RETRY_SECONDS: Final = 0.2
STRANGER_GRACE: Final = timedelta(minutes=1)
"""How long a message about an instance of no claim is kept: the claim may be about to show it."""
_REMEMBERED: Final = 10_000


@final
class InterruptionController:
    """The controller `interruption`: one loop for each provider that can be polled, and Nodes."""

    def __init__(
        self,
        *,
        hands: Hands,
        providers: Providers,
        runtime: Runtime,
        act_on_rebalance: bool = False,
    ) -> None:
        self._hands = hands
        self._feed = hands.feed
        self._providers = providers
        self._runtime = runtime
        self._act_on_rebalance = act_on_rebalance
        self._steady = SteadyClock(runtime.clock)
        self._first_seen: OrderedDict[str, datetime] = OrderedDict()
        self._handled: OrderedDict[str, None] = OrderedDict()
        self._log: FilteringBoundLogger = structlog.get_logger(self.name)
        self._nodes: Reconciler[str] = Reconciler(
            self.name, self.read_node, runtime=runtime, log_field="Node"
        )
        self._reads_nodes = any(map(providers.reads_interruptions, providers.names))
        if self._reads_nodes:
            hands.feed.subscribe(Kind.NODE, self._nodes.wake)

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "interruption"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._feed.wait_synced()
        async with asyncio.TaskGroup() as group:
            for provider in filter(self._providers.polls_interruptions, self._providers.names):
                group.create_task(self._polling(provider).run())
            if self._reads_nodes:
                for name in self._feed.snapshot().nodes:
                    self._nodes.wake(name)
                group.create_task(self._nodes.run())

    def _polling(self, provider: str) -> Loop:
        async def step() -> float:
            return await self.poll(provider)

        return Loop(self.name, step, runtime=self._runtime)

    async def poll(self, provider: str) -> float:
        """Handle what one provider announces; return how long to wait before it is asked again.

        Messages that cannot be handled now stay with the provider, and the others do not wait for
        them.

        Raises:
            CloudProviderError: the provider could not be asked.
            ApiError: some message could not be handled.
        """
        messages = await self._providers.poll_interruptions(provider)
        if not messages:
            return POLL_SECONDS
        for message in messages:
            self._count_received(provider, message)
        slots = asyncio.Semaphore(AT_ONCE)

        async def within(message: Interruption) -> bool:
            async with slots:
                return await self.handle(provider, message)

        results = await asyncio.gather(*map(within, messages), return_exceptions=True)
        done = [message for message, r in zip(messages, results, strict=True) if r is True]
        fresh = [message for message in done if _key(provider, message) not in self._handled]
        await self._acknowledge(provider, done)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        # A provider that goes on announcing what was acknowledged is not asked in a circle.
        return 0.0 if fresh else POLL_SECONDS

    async def read_node(self, name: str) -> Outcome:
        """Handle what one Node says of itself."""
        snapshot = self._feed.snapshot()
        node = snapshot.nodes.get(name)
        claims = () if node is None else snapshot.claims_of(node)
        if node is None or len(claims) != 1:
            return DONE
        ref = claims[0].spec.node_class_ref
        if not snapshot.manages(ref):
            return DONE
        provider = self._providers.provider_of(ref)
        for message in await self._providers.read_interruptions(ref, node):
            if _key(provider, message) in self._handled:
                continue
            self._count_received(provider, message)
            about = replace(message, provider_id=message.provider_id or node.provider_id)
            if await self.handle(provider, about):
                _remember(self._handled, _key(provider, message), None)
        return DONE

    async def handle(self, provider: str, message: Interruption) -> bool:
        """Do what one message asks for; False when it is too early to say what that is."""
        if message.kind is InterruptionKind.IRRELEVANT:
            return True
        if message.kind is InterruptionKind.UNKNOWN:
            self._log.warning(
                "interruption that cannot be read", provider=provider, detail=message.detail
            )
            return True
        names = self._feed.snapshot().claims_by_provider_id.get(message.provider_id, ())
        if not names:
            return self._is_nobodys(provider, message)
        for name in names:
            await self._interrupt(provider, name, message)
        return True

    async def _interrupt(self, provider: str, name: str, message: Interruption) -> None:
        """Mask, mark and delete one claim; what others wrote meanwhile is read again."""
        for attempt in range(ATTEMPTS):
            snapshot = self._feed.snapshot()
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
            except ConflictError:
                if attempt + 1 == ATTEMPTS:
                    raise
                await self._runtime.clock.sleep(RETRY_SECONDS * 2**attempt)
            else:
                return

    async def _apply(
        self, provider: str, claim: NodeClaim, step: InterruptionStep, message: Interruption
    ) -> bool:
        """Carry a step out; say whether the claim was deleted."""
        if step.exhausted:
            self._feed.fold(
                OfferingsExhausted(offerings=step.exhausted, provider=provider, at=self._feed.now)
            )
        stored = await self._hands.write_claim(claim, step.claim)
        is_deleted = step.delete and await self._hands.delete_claim(stored)
        self._hands.tell(step.notices)
        if not is_deleted:
            return False
        self._hands.tell(step.on_delete)
        self._hands.count(step.facts)
        self._log.info(
            "deleting interrupted nodeclaim",
            NodeClaim={"name": claim.name},
            kind=str(message.kind),
            deadline="" if message.deadline is None else message.deadline.isoformat(),
            **{"provider-id": message.provider_id},
        )
        return True

    async def _journal(
        self, snapshot: Snapshot, provider: str, claim: NodeClaim, message: Interruption
    ) -> None:
        await record_forced(
            self._runtime,
            snapshot,
            claim,
            method="interruption",
            reason=str(message.kind),
            cause=f"{provider} announced {message.id}",
        )

    def _is_nobodys(self, provider: str, message: Interruption) -> bool:
        """Tell whether a message is about nobody's instance; a claim may show it a moment later."""
        now = self._steady.now()
        first = _remember(self._first_seen, _key(provider, message), now)
        if message.provider_id and now - first < STRANGER_GRACE:
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
            _remember(self._handled, _key(provider, message), None)
            if message.announced_at is not None:
                waited.observe(max((now - message.announced_at).total_seconds(), 0.0))

    def _count_received(self, provider: str, message: Interruption) -> None:
        self._runtime.metrics.interruption_received_messages.labels(
            message_type=MESSAGE_TYPES[message.kind], provider=provider
        ).inc()


def _key(provider: str, message: Interruption) -> str:
    return f"{provider}/{message.id}"


def _remember(memory: OrderedDict[str, V], key: str, value: V) -> V:
    """Keep a value under a key, unless there is one; forget the oldest ones."""
    kept = memory.setdefault(key, value)
    while len(memory) > _REMEMBERED:
        memory.popitem(last=False)
    return kept
