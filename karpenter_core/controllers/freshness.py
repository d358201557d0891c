"""Says which controller needs which kinds to be fresh, and lets it go on when they are.

A kind is fresh while its informer has heard of it recently (`kube.contact`). What ends nodes waits
while a kind that it reads is not fresh: pods may have been bound to a node that looks empty. What
makes nodes goes on with what is held: the worst that comes of it is a node too many.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol, final

import structlog

from karpenter_core.api.notices import Notice
from karpenter_core.kube import resources
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.notices import ObjectRef
    from karpenter_core.controllers.metrics import Metrics
    from karpenter_core.kube.contact import StaleKind
    from karpenter_core.kube.resources import ResourceKind

__all__ = ["NEEDS", "Consumer", "Contacts", "Freshness", "Needs", "waiting_notice"]


class Consumer(StrEnum):
    """What waits for fresh kinds."""

    DISRUPTION = "disruption"
    """Planning, validating, starting and carrying out disruption commands."""
    DRAIN = "drain"
    """What follows the taint of a deleted Node: evictions, detachment, the end of its instance."""
    INSTANCE_TERMINATION = "instance-termination"
    """The end of the instance of a deleted NodeClaim."""
    GARBAGE_COLLECTION = "garbage-collection"
    """Deleting claims without an instance, terminating instances without a claim."""
    REPAIR = "repair"
    DRIFT = "drift"
    EXPIRATION = "expiration"
    LIVENESS = "liveness"
    """Deleting claims that were not launched or did not register in time."""
    LEADERSHIP = "leadership"
    """Taking the lease. A leader keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The kinds that a consumer reads."""

    kinds: frozenset[ResourceKind] = frozenset()
    node_classes: bool = False
    everything: bool = False


_MACHINES: Final = frozenset({NODE_CLAIMS, resources.NODES})
_VOLUMES: Final = frozenset(
    {
        resources.VOLUME_ATTACHMENTS,
        resources.PERSISTENT_VOLUMES,
        resources.PERSISTENT_VOLUME_CLAIMS,
    }
)

NEEDS: Final[Mapping[Consumer, Needs]] = {
    Consumer.DISRUPTION: Needs(everything=True),
    Consumer.DRAIN: Needs(
        kinds=_MACHINES | _VOLUMES | {resources.PODS, resources.POD_DISRUPTION_BUDGETS}
    ),
    Consumer.INSTANCE_TERMINATION: Needs(kinds=_MACHINES | {resources.PODS}),
    Consumer.GARBAGE_COLLECTION: Needs(kinds=_MACHINES | {resources.PODS}),
    Consumer.REPAIR: Needs(kinds=_MACHINES | {NODE_POOLS}),
    Consumer.DRIFT: Needs(kinds=frozenset({NODE_CLAIMS, NODE_POOLS}), node_classes=True),
    Consumer.EXPIRATION: Needs(kinds=_MACHINES | {NODE_POOLS, resources.PODS}),
    Consumer.LIVENESS: Needs(kinds=_MACHINES),
    Consumer.LEADERSHIP: Needs(everything=True),
}


class Contacts(Protocol):
    """Knows which kinds are stale; the informers do."""

    def stale(self) -> tuple[StaleKind, ...]:
        """Return the kinds of which nothing has been heard for too long."""
        ...

    def subscribe_fresh(self, listener: Callable[[ResourceKind], None]) -> None:
        """Call `listener` with every kind that is fresh again."""
        ...


@final
class Freshness:
    """Holds consumers back while a kind that they need is stale, and wakes them afterwards."""

    def __init__(
        self, contacts: Contacts, *, metrics: Metrics, node_class_groups: frozenset[str]
    ) -> None:
        self._contacts: Final = contacts
        self._groups: Final = node_class_groups
        self._waiting: Final = metrics.waiting_for_freshness
        self._held: dict[Consumer, dict[Hashable, Callable[[], None]]] = {}
        self._log: FilteringBoundLogger = structlog.get_logger("freshness")
        for consumer in Consumer:
            self._waiting.labels(consumer=consumer.value).set(0)
        contacts.subscribe_fresh(self._release)

    def stale_for(self, consumer: Consumer) -> tuple[StaleKind, ...]:
        """Return the stale kinds among those that a consumer needs."""
        stale = self._contacts.stale()
        if not stale:
            return ()
        needs = NEEDS[consumer]
        return tuple(
            each
            for each in stale
            if needs.everything
            or each.kind in needs.kinds
            or (needs.node_classes and each.kind.group in self._groups)
        )

    def hold(
        self, consumer: Consumer, key: Hashable, wake: Callable[[], None]
    ) -> tuple[StaleKind, ...]:
        """Return what a consumer has to wait for, if anything; `wake` is then called after it.

        `key` tells the callers of one consumer apart: each is woken once, however often it asked.
        """
        stale = self.stale_for(consumer)
        if not stale:
            return ()
        if consumer not in self._held:
            self._held[consumer] = {}
            self._waiting.labels(consumer=consumer.value).set(1)
            self._log.warning(
                "waiting for kinds that are not fresh",
                consumer=consumer.value,
                kinds=[str(each) for each in stale],
            )
        self._held[consumer][key] = wake
        return stale

    async def wait(self, consumer: Consumer) -> None:
        """Return as soon as every kind that a consumer needs is fresh."""
        woken = asyncio.Event()
        while self.hold(consumer, woken, woken.set):
            await woken.wait()
            woken.clear()

    def _release(self, _kind: ResourceKind) -> None:
        """Wake whoever has everything now."""
        for consumer in tuple(self._held):
            if self.stale_for(consumer):
                continue
            self._waiting.labels(consumer=consumer.value).set(0)
            self._log.info("going on, all kinds are fresh", consumer=consumer.value)
            for wake in self._held.pop(consumer).values():
                wake()


def waiting_notice(regarding: ObjectRef, stale: tuple[StaleKind, ...]) -> Notice:
    """Say on an object that is to end what its end waits for."""
    kinds = ", ".join(str(each) for each in stale)
    return Notice(
        regarding=regarding,
        type="Warning",
        reason="WaitingForFreshState",
        message=f"Termination waits until the API server shows these kinds again: {kinds}",
        dedupe=(regarding.name,),
    )
