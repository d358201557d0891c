"""Holds controllers back while kinds that they need are stale.

A kind is fresh while its informer had a contact recently (`kube.contact`). Controllers that end nodes
wait while a kind that they read is stale: pods may have been bound to a node that looks empty.
Controllers that create nodes go on with the last known state: the worst result is one node too many.
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
    from karpenter_core.controllers.metrics.process_metrics import Metrics
    from karpenter_core.kube.contact import StaleKind
    from karpenter_core.kube.resources import ResourceKind

__all__ = [
    "REQUIRED_KINDS",
    "FreshnessConsumer",
    "FreshnessGuard",
    "RequiredKinds",
    "StaleKindSource",
    "stale_wait_notice",
]


class FreshnessConsumer(StrEnum):
    """A kind of work that waits for fresh kinds."""

    DISRUPTION = "disruption"
    """Planning, validating, starting and carrying out disruption commands."""
    DRAIN = "drain"
    """Steps after the taint of a deleted Node: evictions, detachment, the end of its instance."""
    INSTANCE_TERMINATION = "instance-termination"
    """The end of the instance of a deleted NodeClaim."""
    GARBAGE_COLLECTION = "garbage-collection"
    """Deleting claims without an instance, terminating instances without a claim."""
    REPAIR = "repair"
    DRIFT = "drift"
    EXPIRATION = "expiration"
    STATIC_DEPROVISIONING = "static-deprovisioning"
    """Deleting claims beyond the replicas of a static NodePool."""
    LIVENESS = "liveness"
    """Deleting claims that were not launched or did not register in time, or lost their Node before."""
    LEADERSHIP = "leadership"
    """Taking the lease. A leader keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredKinds:
    """The kinds that a consumer reads."""

    kinds: frozenset[ResourceKind] = frozenset()
    node_classes: bool = False
    all_kinds: bool = False


_NODES_AND_CLAIMS: Final = frozenset({NODE_CLAIMS, resources.NODES})
_VOLUMES: Final = frozenset(
    {
        resources.VOLUME_ATTACHMENTS,
        resources.PERSISTENT_VOLUMES,
        resources.PERSISTENT_VOLUME_CLAIMS,
    }
)

REQUIRED_KINDS: Final[Mapping[FreshnessConsumer, RequiredKinds]] = {
    FreshnessConsumer.DISRUPTION: RequiredKinds(all_kinds=True),
    FreshnessConsumer.DRAIN: RequiredKinds(
        kinds=_NODES_AND_CLAIMS | _VOLUMES | {resources.PODS, resources.POD_DISRUPTION_BUDGETS}
    ),
    FreshnessConsumer.INSTANCE_TERMINATION: RequiredKinds(
        kinds=_NODES_AND_CLAIMS | {resources.PODS}
    ),
    FreshnessConsumer.GARBAGE_COLLECTION: RequiredKinds(kinds=_NODES_AND_CLAIMS | {resources.PODS}),
    FreshnessConsumer.REPAIR: RequiredKinds(kinds=_NODES_AND_CLAIMS | {NODE_POOLS}),
    FreshnessConsumer.DRIFT: RequiredKinds(
        kinds=frozenset({NODE_CLAIMS, NODE_POOLS}), node_classes=True
    ),
    FreshnessConsumer.EXPIRATION: RequiredKinds(
        kinds=_NODES_AND_CLAIMS | {NODE_POOLS, resources.PODS}
    ),
    FreshnessConsumer.STATIC_DEPROVISIONING: RequiredKinds(
        kinds=_NODES_AND_CLAIMS | {NODE_POOLS, resources.PODS}
    ),
    FreshnessConsumer.LIVENESS: RequiredKinds(kinds=_NODES_AND_CLAIMS),
    FreshnessConsumer.LEADERSHIP: RequiredKinds(all_kinds=True),
}


class StaleKindSource(Protocol):
    """Knows which kinds are stale; implemented by the informers."""

    def stale(self) -> tuple[StaleKind, ...]:
        """Return the kinds without recent contact."""
        ...

    def subscribe_fresh(self, listener: Callable[[ResourceKind], None]) -> None:
        """Call `listener` with every kind that becomes fresh again."""
        ...


@final
class FreshnessGuard:
    """Holds consumers back while a kind that they need is stale, and wakes them afterwards."""

    def __init__(
        self, contacts: StaleKindSource, *, metrics: Metrics, node_class_groups: frozenset[str]
    ) -> None:
        self._source: Final = contacts
        self._groups: Final = node_class_groups
        self._waiting: Final = metrics.waiting_for_freshness
        self._held: dict[FreshnessConsumer, dict[Hashable, Callable[[], None]]] = {}
        self._listeners: Final[list[tuple[FreshnessConsumer, Callable[[], None]]]] = []
        self._log: FilteringBoundLogger = structlog.get_logger("freshness")
        for consumer in FreshnessConsumer:
            self._waiting.labels(consumer=consumer.value).set(0)
        contacts.subscribe_fresh(self._release)

    def stale_for(self, consumer: FreshnessConsumer) -> tuple[StaleKind, ...]:
        """Return the stale kinds among those that a consumer needs."""
        stale = self._source.stale()
        if not stale:
            return ()
        return tuple(each for each in stale if self._is_needed(each.kind, consumer))

    def subscribe(self, consumer: FreshnessConsumer, listener: Callable[[], None]) -> None:
        """Call `listener` whenever a kind that a consumer needs becomes fresh."""
        self._listeners.append((consumer, listener))

    def _is_needed(self, kind: ResourceKind, consumer: FreshnessConsumer) -> bool:
        needs = REQUIRED_KINDS[consumer]
        return (
            needs.all_kinds
            or kind in needs.kinds
            or (needs.node_classes and kind.group in self._groups)
        )

    def stale_or_wake(
        self, consumer: FreshnessConsumer, key: Hashable, wake: Callable[[], None]
    ) -> tuple[StaleKind, ...]:
        """Return the stale kinds that a consumer must wait for; `wake` is called when they are fresh.

        `key` identifies the caller: each is woken once, however often it asked.
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

    async def wait_until_fresh(self, consumer: FreshnessConsumer) -> None:
        """Return as soon as every kind that a consumer needs is fresh."""
        woken = asyncio.Event()
        while self.stale_or_wake(consumer, woken, woken.set):
            await woken.wait()
            woken.clear()

    def _release(self, kind: ResourceKind) -> None:
        """Wake the consumers whose kinds are all fresh."""
        for consumer, listener in self._listeners:
            if self._is_needed(kind, consumer):
                listener()
        for consumer in tuple(self._held):
            if self.stale_for(consumer):
                continue
            self._waiting.labels(consumer=consumer.value).set(0)
            self._log.info("continuing, all kinds are fresh", consumer=consumer.value)
            for wake in self._held.pop(consumer).values():
                wake()


def stale_wait_notice(regarding: ObjectRef, stale: tuple[StaleKind, ...]) -> Notice:
    """Return the Event on an object whose termination waits for fresh kinds."""
    kinds = ", ".join(str(each) for each in stale)
    return Notice(
        regarding=regarding,
        type="Warning",
        reason="WaitingForFreshState",
        message=f"Termination waits until the API server shows these kinds again: {kinds}",
        dedupe=(regarding.name,),
    )
