"""Reads announced events of virtual machines from Node conditions (pure).

A virtual machine alone learns of its scheduled events. The node problem detector of AKS passes them on as
conditions of the Node: `PreemptionScheduled` for evictions of spot virtual machines, `VMEventScheduled` for
all events. The message has the kind and the time:

    Preempt Scheduled: Wed, 26 Feb 2025 10:13:13 GMT. DurationInSeconds: -1. ... EventId: 5FA9E-...

Events for which AKS itself does not drain a node end no node: a freeze lasts seconds, a reboot minutes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CAPACITY_TYPE, SPOT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.records import NodeConditionView, NodeView

__all__ = ["NOTICE", "PREEMPTION_SCHEDULED", "EventKind", "ScheduledEvent", "read_event"]

PREEMPTION_SCHEDULED: Final = "PreemptionScheduled"
EVENT_SCHEDULED: Final = "VMEventScheduled"
NOTICE: Final = timedelta(seconds=30)
"""The least time from the announcement of an eviction to its begin."""

_TRUE: Final = "True"
_EVENT: Final = re.compile(
    r"\b(?P<kind>[A-Za-z]+) (?:Scheduled|Started)\b"
    r"(?::\s*(?P<time>[A-Za-z]{3}, \d{1,2} [A-Za-z]{3} \d{4} \d\d:\d\d:\d\d [A-Za-z]{3}))?"
)


class EventKind(StrEnum):
    """Kinds of events that end a node, as the instance metadata service names them."""

    PREEMPT = "Preempt"
    REDEPLOY = "Redeploy"
    TERMINATE = "Terminate"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledEvent:
    """An event that will end a node."""

    kind: EventKind
    not_before: datetime | None
    """Earliest time of its begin; None if no source names one."""
    announced_at: datetime | None
    message: str


def read_event(node: NodeView) -> ScheduledEvent | None:
    """Return the event that ends a Node first; None if none is announced."""
    events = [event for each in node.conditions if (event := _event_of(each, node)) is not None]
    return min(events, key=_begin, default=None)


def _begin(event: ScheduledEvent) -> tuple[bool, datetime]:
    never = datetime.max.replace(tzinfo=UTC)
    # An eviction without a time is imminent, another event is not.
    is_soon = event.not_before is not None or event.kind is EventKind.PREEMPT
    return (not is_soon, event.not_before or never)


def _event_of(condition: NodeConditionView, node: NodeView) -> ScheduledEvent | None:
    if condition.status != _TRUE or condition.type not in {PREEMPTION_SCHEDULED, EVENT_SCHEDULED}:
        return None
    found = _EVENT.search(condition.message)
    kind = _kind_of(condition, found)
    if kind is None or (kind is EventKind.PREEMPT and node.labels.get(CAPACITY_TYPE) != SPOT):
        return None
    since = condition.last_transition_time
    not_before = None if found is None else _time(found["time"] or "")
    if not_before is None and kind is EventKind.PREEMPT and since is not None:
        not_before = since + NOTICE
    return ScheduledEvent(
        kind=kind, not_before=not_before, announced_at=since, message=condition.message
    )


def _kind_of(condition: NodeConditionView, found: re.Match[str] | None) -> EventKind | None:
    if condition.type == PREEMPTION_SCHEDULED:
        return EventKind.PREEMPT
    return None if found is None else _named(found["kind"], EventKind)


def _named(name: str, kinds: Iterable[EventKind]) -> EventKind | None:
    return next((kind for kind in kinds if kind.lower() == name.lower()), None)


def _time(text: str) -> datetime | None:
    try:
        at = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
