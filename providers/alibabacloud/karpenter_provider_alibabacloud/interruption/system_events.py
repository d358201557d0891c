"""Polls ECS for system events: maintenance, failures, overdue accounts.

An event that starts within a quarter of an hour, or has started, ends the node at once. A later one
makes the node drift, so that it is replaced in time and as budgets allow.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.provider.contract import Interruption, InterruptionKind
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_alibabacloud.described_instances import AT_ONCE, provider_id
from karpenter_provider_alibabacloud.discovery.call_errors import core_errors_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from karpenter_core.clock import Clock
    from karpenter_provider_alibabacloud.api_answers import ApiAnswer
    from karpenter_provider_alibabacloud.described_instances import InstanceReader
    from karpenter_provider_alibabacloud.interruption.pending_announcements import (
        PendingAnnouncements,
    )
    from karpenter_provider_alibabacloud.sdk import CloudClients

__all__ = [
    "EVENTS_PERIOD",
    "EVENT_TYPES",
    "SystemEvent",
    "SystemEventPoll",
    "announcement_of",
    "is_due",
    "read_events",
]

SOURCE: Final = "event"
EVENTS_PERIOD: Final = timedelta(minutes=1)
AT_ONCE_WITHIN: Final = timedelta(minutes=15)
"""Largest notice of an event that does not wait for disruption budgets."""
EXECUTING: Final = "Executing"
OPEN_CYCLES: Final = ("Scheduled", EXECUTING, "Inquiring")
EVENT_TYPES: Final = (
    "SystemMaintenance.Reboot",
    "SystemMaintenance.Redeploy",
    "SystemFailure.Reboot",
    "SystemFailure.Redeploy",
    "SystemFailure.Delete",
    "InstanceFailure.Reboot",
    "InstanceExpiration.Stop",
    "InstanceExpiration.Delete",
    "AccountUnbalanced.Stop",
    "AccountUnbalanced.Delete",
)
"""All events of instances that the API reference lists for queries."""
_OWNERS_KEPT: Final = timedelta(minutes=10)
"""Life of a cached owner: it never changes, and an open event is listed again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemEvent:
    """A system event that is not over."""

    id: str
    instance_id: str
    kind: str
    """One of `EVENT_TYPES`."""
    cycle: str
    """One of `OPEN_CYCLES`."""
    not_before: datetime | None
    published_at: datetime | None

    @property
    def begins(self) -> datetime:
        """Time of its begin; an event without a date is not urgent."""
        return self.not_before or datetime.max.replace(tzinfo=UTC)


def read_events(items: Iterable[ApiAnswer]) -> tuple[SystemEvent, ...]:
    """Read what DescribeInstanceHistoryEvents answers, without what is over."""
    events = (
        SystemEvent(
            id=item.get("EventId") or "",
            instance_id=item.get("InstanceId") or item.get("ResourceId") or "",
            kind=_name(item.get("EventType")),
            cycle=_name(item.get("EventCycleStatus")),
            not_before=_moment(item.get("NotBefore")),
            published_at=_moment(item.get("EventPublishTime")),
        )
        for item in items
    )
    return tuple(each for each in events if each.cycle in OPEN_CYCLES and each.instance_id)


def is_due(event: SystemEvent, now: datetime) -> bool:
    """Whether an event does not leave time for a replacement as budgets allow."""
    return event.cycle == EXECUTING or event.begins - now <= AT_ONCE_WITHIN


def announcement_of(event: SystemEvent, whole: str, now: datetime) -> Interruption:
    """Say what is due as the core knows it; `whole` is the provider ID.

    What is under way leaves pods no time.
    """
    is_executing = event.cycle == EXECUTING
    return Interruption(
        id=f"{SOURCE}/{event.instance_id}/{event.id}/{event.cycle}",
        kind=_kind(event, is_executing=is_executing),
        provider_id=whole,
        deadline=now if is_executing else event.not_before,
        detail=f"{event.kind} {event.cycle}",
        announced_at=event.published_at,
    )


@final
class SystemEventPoll:
    """Asks for system events; callable from any thread."""

    def __init__(
        self,
        clients: CloudClients,
        clock: Clock,
        *,
        reader: InstanceReader,
        announcements: PendingAnnouncements,
    ) -> None:
        self._clients: Final = clients
        self._clock: Final = clock
        self._reader: Final = reader
        self._announcements: Final = announcements
        self._ours: Final[TtlCache[str, bool]] = TtlCache(clock, _OWNERS_KEPT)
        self._lock: Final = Lock()
        self._listed: frozenset[str] = frozenset()
        """Ids of the cluster's instances, as last listed."""
        self._later: Mapping[str, str] = {}

    def note_listed(self, ids: Iterable[str]) -> None:
        """Take note of the cluster's instances, so that they need not be looked up."""
        with self._lock:
            self._listed = frozenset(ids)

    def run(self) -> None:
        """Poll once.

        Raises:
            CloudProviderError: ECS refused or did not answer (`discovery.call_errors`).
        """
        events = self._described()
        ours = self._ours_among({each.instance_id for each in events})
        now, region = self._clock.now(), self._reader.region
        due: dict[str, Interruption] = {}
        later: dict[str, str] = {}
        for event in sorted(
            events, key=lambda each: (each.cycle != EXECUTING, each.begins, each.id)
        ):
            name = event.instance_id
            if name not in ours:
                continue
            if is_due(event, now):
                due.setdefault(name, announcement_of(event, provider_id(region, name), now))
            else:
                later.setdefault(name, event.kind)
        self._announcements.replace(SOURCE, due)
        with self._lock:
            self._later = later

    def scheduled(self) -> Mapping[str, str]:
        """Return which instances have an event that comes later, and its type; never a call."""
        with self._lock:
            return self._later

    def _described(self) -> tuple[SystemEvent, ...]:
        with core_errors_of():
            return read_events(
                self._clients.ecs.pages(
                    "DescribeInstanceHistoryEvents",
                    {
                        "RegionId": self._clients.region,
                        "ResourceType": "instance",
                        "InstanceEventType": list(EVENT_TYPES),
                        "InstanceEventCycleStatus": list(OPEN_CYCLES),
                        "MaxResults": AT_ONCE,
                    },
                    items="InstanceSystemEventSet.InstanceSystemEventType",
                )
            )

    def _ours_among(self, ids: Collection[str]) -> frozenset[str]:
        """Return those that are this cluster's: events are those of the whole account."""
        with self._lock:
            listed = self._listed
        ownership = {name: True if name in listed else self._ours.get(name) for name in ids}
        unknown = [name for name, is_ours in ownership.items() if is_ours is None]
        instances = self._reader.of_ids(unknown) if unknown else {}
        for name, instance in instances.items():
            ownership[name] = self._reader.is_ours(instance)
            self._ours.put(name, value=self._reader.is_ours(instance))
        return frozenset(name for name, is_ours in ownership.items() if is_ours)


def _kind(event: SystemEvent, *, is_executing: bool) -> InterruptionKind:
    if not is_executing:
        return InterruptionKind.SCHEDULED_MAINTENANCE
    cause, _, effect = event.kind.partition(".")
    match effect:
        case "Delete":
            return InterruptionKind.INSTANCE_TERMINATED
        case "Stop":
            return InterruptionKind.INSTANCE_STOPPED
        case _ if cause.endswith("Failure"):
            return InterruptionKind.INSTANCE_UNHEALTHY
        case _:
            return InterruptionKind.SCHEDULED_MAINTENANCE


def _name(value: object) -> str:
    parsed = cast("ApiAnswer", value or {})
    return parsed.get("Name") or ""


def _moment(text: object) -> datetime | None:
    if not isinstance(text, str) or not text:
        return None
    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
