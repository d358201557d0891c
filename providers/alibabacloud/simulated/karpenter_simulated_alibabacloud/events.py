"""System events of instances: scheduled, under way, done."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from karpenter_simulated_alibabacloud.account import to_seconds
from karpenter_simulated_alibabacloud.paging import numbered_page, token_page

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.parameters import RequestParameters

__all__ = ["EventCycle", "InstanceEvent", "InstanceEvents"]

_PAGE: Final = 10
_MOST: Final = 100
_TYPE_CODES: Final = {
    "SystemMaintenance.Reboot": 1,
    "SystemMaintenance.Redeploy": 2,
    "SystemFailure.Reboot": 4,
    "SystemFailure.Delete": 5,
    "InstanceFailure.Reboot": 6,
    "InstanceExpiration.Stop": 7,
    "InstanceExpiration.Delete": 8,
    "AccountUnbalanced.Stop": 9,
    "AccountUnbalanced.Delete": 10,
    "SystemFailure.Redeploy": 11,
}


class EventCycle(Enum):
    """Phases of an event; the values are the codes of the API."""

    Executing = 24
    Scheduled = 25
    Executed = 26
    Avoided = 27
    Canceled = 28
    Failed = 29
    Inquiring = 30


@dataclass(slots=True, kw_only=True, eq=False)
class InstanceEvent:
    """A system event."""

    id: str
    instance_id: str
    kind: str
    """`SystemMaintenance.Reboot`."""
    cycle: EventCycle
    published_at: datetime
    not_before: datetime
    finished_at: datetime | None = None
    reason: str = "simulated"


@final
class InstanceEvents:
    """The system events of an account."""

    def __init__(self, account: Account) -> None:
        self._account: Final = account
        self._events: list[InstanceEvent] = []

    def clear(self) -> None:
        """Forget all events."""
        self._events.clear()

    def add(
        self,
        instance_id: str,
        kind: str,
        *,
        not_before: datetime,
        cycle: EventCycle = EventCycle.Scheduled,
        reason: str = "simulated",
    ) -> InstanceEvent:
        """Let there be an event."""
        event = InstanceEvent(
            id=self._account.ids.new("e"),
            instance_id=instance_id,
            kind=kind,
            cycle=cycle,
            published_at=self._account.clock(),
            not_before=not_before,
            reason=reason,
        )
        self._events.append(event)
        return event

    def finish(self, event: InstanceEvent, cycle: EventCycle = EventCycle.Executed) -> None:
        """Let an event be over."""
        event.cycle = cycle
        event.finished_at = self._account.clock()

    def describe(self, request: RequestParameters) -> Mapping[str, object]:
        """Answer DescribeInstanceHistoryEvents, the newest first."""
        request.required("RegionId")
        kinds = {request.text("EventType"), *request.texts("InstanceEventType", most=30)} - {""}
        cycles = {
            request.text("EventCycleStatus"),
            *request.texts("InstanceEventCycleStatus", most=7),
        } - {""}
        for each in cycles:
            if each not in EventCycle.__members__:
                raise request.invalid("InstanceEventCycleStatus", each)
        ids = {request.text("InstanceId"), *request.texts("ResourceId", most=_MOST)} - {""}
        events = set(request.texts("EventId", most=_MOST))
        found = [
            each
            for each in reversed(self._events)
            if (not kinds or each.kind in kinds)
            and (not cycles or each.cycle.name in cycles)
            and (not ids or each.instance_id in ids)
            and (not events or each.id in events)
            and _is_within(each.not_before, request.within("NotBefore"))
            and _is_within(each.published_at, request.within("EventPublishTime"))
        ]
        reply: dict[str, object]
        if "MaxResults" in request or "NextToken" in request:
            page, token = token_page(
                found, request, key=lambda each: each.id, default=_PAGE, least=_PAGE, most=_MOST
            )
            reply = {"NextToken": token, "TotalCount": len(found)}
        else:
            page, numbers = numbered_page(found, request, most=_MOST)
            reply = dict(numbers)
        return {
            "InstanceSystemEventSet": {
                "InstanceSystemEventType": [_described(each) for each in page]
            },
            **reply,
        }


def _is_within(moment: datetime, bounds: RequestParameters) -> bool:
    """Whether a time is from `Start` to `End`; both are written alike, so they compare as text."""
    text = to_seconds(moment)
    return bounds.text("Start") <= text <= bounds.text("End", "9999")


def _described(event: InstanceEvent) -> Mapping[str, object]:
    reply: dict[str, object] = {
        "EventId": event.id,
        "InstanceId": event.instance_id,
        "ResourceType": "instance",
        "EventType": {"Code": _TYPE_CODES.get(event.kind, 0), "Name": event.kind},
        "EventCycleStatus": {"Code": event.cycle.value, "Name": event.cycle.name},
        "EventPublishTime": to_seconds(event.published_at),
        "NotBefore": to_seconds(event.not_before),
        "Reason": event.reason,
        "ImpactLevel": "100",
    }
    if event.finished_at is not None:
        reply["EventFinishTime"] = to_seconds(event.finished_at)
    return reply
