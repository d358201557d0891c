"""Polls EC2 for failed status checks and scheduled events.

A check that fails for two minutes counts; an event counts as soon as it is scheduled. The checks of
volumes are left out: EC2 does not tell which volumes the node needs. One announcement is made for
each instance and category, until it has recovered.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.errors import AuthError
from karpenter_core.provider.contract import Interruption, InterruptionKind
from karpenter_provider_aws.codes import is_permission_missing
from karpenter_provider_aws.discovery.call_errors import core_errors_of, refusal_behind
from karpenter_provider_aws.interruption.pending_announcements import PendingAnnouncements
from karpenter_provider_aws.paging import ending_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger
    from types_boto3_ec2.type_defs import (
        FilterTypeDef,
        InstanceStatusEventTypeDef,
        InstanceStatusSummaryTypeDef,
        InstanceStatusTypeDef,
    )

    from karpenter_core.clock import Clock
    from karpenter_provider_aws.interruption.directory import InstanceDirectory, OwnedInstance
    from karpenter_provider_aws.sdk import CloudClients

__all__ = [
    "STATUS_PERIOD",
    "HealthFinding",
    "InstanceStatusPoll",
    "UnhealthyCategory",
    "health_findings",
    "longest_findings",
]

STATUS_PERIOD: Final = timedelta(minutes=1)
ASKED_AGAIN_AFTER: Final = timedelta(minutes=30)
"""After a refusal for want of the permission, which an operator may grant at any time."""
UNHEALTHY_AFTER: Final = timedelta(seconds=120)
ID_PREFIX: Final = "status"

_EVENT_CODES: Final = (
    "instance-reboot",
    "system-reboot",
    "system-maintenance",
    "instance-retirement",
    "instance-stop",
)
_OVER: Final = ("[Completed]", "[Canceled]", "[Cancelled]")
"""EC2 goes on showing events for a week after they are over, with this before their description."""
_PAGE_SIZE: Final = 1000


class UnhealthyCategory(StrEnum):
    """Categories of unhealthy instances; the values are labels of a metric."""

    INSTANCE = "InstanceStatus"
    SYSTEM = "SystemStatus"
    EVENT = "EventStatus"


_QUERIES: Final[tuple[tuple[str, Sequence[str]], ...]] = (
    ("instance-status.status", ("impaired",)),
    ("system-status.status", ("impaired",)),
    ("event.code", _EVENT_CODES),
)
"""Filters of one call all hold together, so that each of these is a call of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFinding:
    """One thing that is not well with an instance."""

    instance_id: str
    category: UnhealthyCategory
    since: datetime | None = None
    """Since when a check fails; None for events, and where EC2 does not say."""
    detail: str

    @property
    def cause(self) -> tuple[str, ...]:
        """The identity of a finding: instance and category."""
        return self.instance_id, str(self.category)

    def counts(self, now: datetime) -> bool:
        """Whether it has lasted long enough."""
        if self.category is UnhealthyCategory.EVENT:
            return True
        return self.since is not None and now - self.since >= UNHEALTHY_AFTER


def health_findings(status: InstanceStatusTypeDef) -> Iterator[HealthFinding]:
    """Read what is not well with an instance, however short."""
    name = status.get("InstanceId", "")
    for category, summary in (
        (UnhealthyCategory.INSTANCE, status.get("InstanceStatus")),
        (UnhealthyCategory.SYSTEM, status.get("SystemStatus")),
    ):
        yield from _failed_checks(name, category, summary)
    for event in status.get("Events", ()):
        if event.get("Code", "") in _EVENT_CODES and not _is_over(event):
            yield HealthFinding(
                instance_id=name, category=UnhealthyCategory.EVENT, detail=_event_text(event)
            )


def longest_findings(ailments: Iterable[HealthFinding]) -> Mapping[tuple[str, ...], HealthFinding]:
    """Return one finding for each instance and category: the one that has lasted longest."""
    worst: dict[tuple[str, ...], HealthFinding] = {}
    for one in sorted(ailments, key=_longest_first):
        worst.setdefault(one.cause, one)
    return worst


@final
class InstanceStatusPoll:
    """Asks for the status of instances, and announces what is not well; callable from any thread."""

    def __init__(
        self,
        clients: CloudClients,
        clock: Clock,
        *,
        directory: InstanceDirectory,
        has_instances: Callable[[], bool],
        count: Callable[[str], None],
    ) -> None:
        """`count` gets the category of each new announcement.

        Nothing is asked while `has_instances` says that the cluster has no instance.
        """
        self._clients: Final = clients
        self._clock: Final = clock
        self._directory: Final = directory
        self._has_instances: Final = has_instances
        self._count: Final = count
        self._first_seen: dict[tuple[str, ...], datetime] = {}
        self._asked_again_at = 0.0
        """Monotonic seconds; 0 unless the permission was missing."""
        self.announcements: Final = PendingAnnouncements()
        self._log: FilteringBoundLogger = structlog.get_logger("aws.interruption")

    def run(self) -> None:
        """Ask once; while the permission is missing, only every half an hour.

        Raises:
            CloudProviderError: EC2 did not answer, or refused for another reason (credentials that
                have expired, say): the next call may succeed.
        """
        if self._clock.monotonic() < self._asked_again_at:
            return
        try:
            statuses = self._describe() if self._has_instances() else ()
            findings = [one for status in statuses for one in health_findings(status)]
        except AuthError as error:
            failure = refusal_behind(error)
            if failure is None or not is_permission_missing(failure.code):
                raise
            self._asked_again_at = self._clock.monotonic() + ASKED_AGAIN_AFTER.total_seconds()
            self._log.error(
                "status checks of instances are not read: permit ec2:DescribeInstanceStatus",
                error=str(error),
                asked_again_in_seconds=ASKED_AGAIN_AFTER.total_seconds(),
            )
            return
        self._asked_again_at = 0.0
        now = self._clock.now()
        due = {
            cause: one
            for cause, one in longest_findings(self._dated(findings, now)).items()
            if one.counts(now)
        }
        ours, _ = self._directory.find({one.instance_id for one in due.values()})
        news = self.announcements.replace(
            {
                cause: _announcement(one, ours[one.instance_id], now)
                for cause, one in due.items()
                if one.instance_id in ours
            }
        )
        for _, category in news:
            self._count(category)

    def _dated(self, findings: Iterable[HealthFinding], now: datetime) -> list[HealthFinding]:
        """Give checks whose beginning EC2 does not tell the time at which they were first seen."""
        findings = tuple(findings)
        seen = {one.cause: self._first_seen.get(one.cause, now) for one in findings}
        self._first_seen = seen
        return [one if one.since is not None else _since(one, seen[one.cause]) for one in findings]

    def _describe(self) -> Iterator[InstanceStatusTypeDef]:
        seen: set[str] = set()
        for name, values in _QUERIES:
            instance_filter: FilterTypeDef = {"Name": name, "Values": values}
            with core_errors_of("ec2:DescribeInstanceStatus"):
                pages = self._clients.ec2.get_paginator("describe_instance_status").paginate(
                    Filters=[instance_filter], PaginationConfig={"PageSize": _PAGE_SIZE}
                )
                statuses = [
                    item for page in ending_pages(pages) for item in page["InstanceStatuses"]
                ]
            for status in statuses:
                if status.get("InstanceId", "") not in seen:
                    seen.add(status.get("InstanceId", ""))
                    yield status


def _failed_checks(
    name: str, category: UnhealthyCategory, summary: InstanceStatusSummaryTypeDef | None
) -> Iterator[HealthFinding]:
    for check in (summary or {}).get("Details", ()):
        if check.get("Status") == "failed":
            yield HealthFinding(
                instance_id=name,
                category=category,
                since=check.get("ImpairedSince"),
                detail=f"{category} {check.get('Name', '')}".strip(),
            )


def _is_over(event: InstanceStatusEventTypeDef) -> bool:
    return event.get("Description", "").startswith(_OVER)


def _event_text(event: InstanceStatusEventTypeDef) -> str:
    start = event.get("NotBefore")
    code = event.get("Code", "")
    return f"{code} from {start.isoformat()}" if start is not None else code


def _longest_first(one: HealthFinding) -> tuple[bool, float, str]:
    return one.since is None, one.since.timestamp() if one.since else 0.0, one.detail


def _since(one: HealthFinding, moment: datetime) -> HealthFinding:
    return HealthFinding(
        instance_id=one.instance_id, category=one.category, since=moment, detail=one.detail
    )


def _announcement(one: HealthFinding, owned_instance: OwnedInstance, now: datetime) -> Interruption:
    """Say it as the core knows it: failed checks leave pods no time, events do."""
    is_event = one.category is UnhealthyCategory.EVENT
    return Interruption(
        id=f"{ID_PREFIX}/{one.instance_id}/{one.category}/{now:%Y%m%dT%H%M%SZ}",
        kind=InterruptionKind.SCHEDULED_MAINTENANCE
        if is_event
        else InterruptionKind.INSTANCE_UNHEALTHY,
        provider_id=owned_instance.provider_id,
        deadline=None if is_event else now,
        detail=one.detail,
        announced_at=None if is_event else one.since,
    )
