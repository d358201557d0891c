"""Announces the events of virtual machines to the core.

An event that starts within a quarter of an hour, or has started, ends the node at once. A later one makes the
node drift, so that it is replaced in time and as budgets allow.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import INSTANCE_TYPE, SPOT, ZONE
from karpenter_core.provider.contract import Interruption, InterruptionKind
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_azure.interruption.node_conditions import EventKind, read_event

if TYPE_CHECKING:
    from karpenter_core.api.records import NodeView
    from karpenter_core.clock import Clock
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
    from karpenter_provider_azure.interruption.node_conditions import ScheduledEvent

__all__ = ["EVICTED_SHORTAGE_LIFE", "InterruptionSources"]

EVICTED_SHORTAGE_LIFE: Final = timedelta(minutes=3)
"""Time without spot launches of a size in a zone where it was evicted."""
DUE_WITHIN: Final = timedelta(minutes=15)
"""An event that begins later is drift."""
_KINDS: Final = {
    EventKind.PREEMPT: InterruptionKind.SPOT_RECLAIM,
    EventKind.REDEPLOY: InterruptionKind.SCHEDULED_MAINTENANCE,
    EventKind.TERMINATE: InterruptionKind.SCHEDULED_MAINTENANCE,
}
_MARKED_KEPT: Final = timedelta(hours=1)


@final
class InterruptionSources:
    """Reads events from Nodes; callable from any thread, and makes no calls."""

    def __init__(self, clock: Clock, offerings: UnavailableOfferings) -> None:
        self._clock: Final = clock
        self._offerings: Final = offerings
        self._marked: Final[TtlCache[str, bool]] = TtlCache(clock, _MARKED_KEPT)
        """Virtual machines whose offering was marked, by provider ID."""

    def read(self, node: NodeView) -> tuple[Interruption, ...]:
        """Return what the conditions of a Node announce (`karpenter_read_interruptions`)."""
        event = read_event(node)
        if event is None or not node.provider_id or not self._is_due(event):
            return ()
        if event.kind is EventKind.PREEMPT:
            self._mark(node)
        name = node.provider_id.rpartition("/")[2]
        return (
            Interruption(
                id=f"{event.kind.lower()}/{name}",
                kind=_KINDS[event.kind],
                provider_id=node.provider_id,
                deadline=event.not_before,
                detail=event.message,
                announced_at=event.announced_at,
            ),
        )

    def is_event_ahead(self, node: NodeView) -> bool:
        """Whether an event of a Node's virtual machine begins so late that the Node drifts."""
        event = read_event(node)
        return event is not None and not self._is_due(event)

    def _is_due(self, event: ScheduledEvent) -> bool:
        """Whether an event ends its node now; one without a time has started, or starts at any moment."""
        return event.not_before is None or event.not_before <= self._clock.now() + DUE_WITHIN

    def _mark(self, node: NodeView) -> None:
        """Mark an evicted offering once: conditions are read again and again."""
        size, zone = node.labels.get(INSTANCE_TYPE, ""), node.labels.get(ZONE, "")
        if not size or not zone or self._marked.get(node.provider_id) is not None:
            return
        self._marked.put(node.provider_id, value=True)
        self._offerings.mark(
            UnavailableOffering(size, zone, SPOT),
            now=self._clock.now(),
            life=EVICTED_SHORTAGE_LIFE,
        )
