"""Reads the cluster's zonal shifts, which close zones for launches.

While traffic is shifted away from a zone, its offerings are unavailable, and EC2's description of
its instances is not to be trusted: none is terminated or tagged, and their earlier description
stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.contract import PeriodicTask
from karpenter_provider_aws.codes import is_not_found
from karpenter_provider_aws.discovery.call_errors import core_errors_of, refusal_behind
from karpenter_provider_aws.paging import ending_pages

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger
    from types_boto3_arc_zonal_shift.type_defs import GetManagedResourceResponseTypeDef

    from karpenter_core.clock import Clock
    from karpenter_provider_aws.sdk import CloudClients

__all__ = [
    "NO_SHIFTS",
    "SHIFT_PERIOD",
    "SHIFT_TASK",
    "ShiftedZones",
    "ZonalShift",
    "ZonalShiftReader",
    "ZoneShiftedError",
    "active_zone_ids",
    "no_shifts",
    "shifts_of",
]

SHIFT_TASK: Final = "zonal-shift"
SHIFT_PERIOD: Final = timedelta(seconds=30)
_APPLIED: Final = "APPLIED"
_PAGE_SIZE: Final = 1000


class ZoneShiftedError(CloudProviderError):
    """Nothing is changed in a zone that traffic is shifted away from."""

    def __init__(self, action: str, *, what: str, zone: str) -> None:
        super().__init__(f"{action} of {what} waits: traffic is shifted away from {zone}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ZonalShift:
    """A zonal shift, as AWS tells it."""

    zone_id: str
    ends_at: datetime | None
    """None for one that AWS began by itself: it ends when AWS says so."""
    is_applied: bool


@dataclass(frozen=True, slots=True)
class ShiftedZones:
    """The zones that traffic is shifted away from at one moment."""

    ids: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()

    def has(self, zone: str = "", *, zone_id: str = "") -> bool:
        """Whether a zone is one of them, by its name or by its id."""
        return zone in self.names or zone_id in self.ids

    def refuse(self, action: str, *, what: str, zone: str) -> ZoneShiftedError | None:
        """Return the error for changing something in a zone; None where that is fine."""
        return ZoneShiftedError(action, what=what, zone=zone) if self.has(zone) else None


NO_SHIFTS: Final = ShiftedZones()


def no_shifts() -> ShiftedZones:
    """Return that no zone is shifted away from."""
    return NO_SHIFTS


def shifts_of(answer: GetManagedResourceResponseTypeDef) -> tuple[ZonalShift, ...]:
    """Read what AWS tells of a resource: shifts that users began, and those it began itself."""
    active_shifts = [
        ZonalShift(
            zone_id=item["awayFrom"],
            ends_at=item["expiryTime"],
            is_applied=item["appliedStatus"] == _APPLIED,
        )
        for item in answer["zonalShifts"]
    ]
    active_shifts += [
        ZonalShift(
            zone_id=item["awayFrom"], ends_at=None, is_applied=item["appliedStatus"] == _APPLIED
        )
        for item in answer.get("autoshifts", ())
    ]
    return tuple(active_shifts)


def active_zone_ids(shifts: Iterable[ZonalShift], *, now: datetime) -> frozenset[str]:
    """Return the ids of the zones that are shifted away from: applied, and not ended."""
    return frozenset(
        shift.zone_id
        for shift in shifts
        if shift.is_applied and (shift.ends_at is None or shift.ends_at > now)
    )


@final
class ZonalShiftReader:
    """Reads the zonal shifts of the cluster; callable from any thread.

    Everything but `run` answers from what was last seen. Each look replaces what was seen before, so
    that a shift that was called off is over although others go on.
    """

    def __init__(self, clients: CloudClients, clock: Clock, *, cluster: str, enabled: bool) -> None:
        self._clients: Final = clients
        self._clock: Final = clock
        self._cluster: Final = cluster
        self._enabled: Final = enabled
        self._lock: Final = Lock()
        self._arn = ""
        self._shifts: tuple[ZonalShift, ...] = ()
        self._names: Mapping[str, frozenset[str]] = {}
        """Names of zones by id; zones of other accounts have the same ids and other names."""
        self._reported: frozenset[str] = frozenset()
        self._log: FilteringBoundLogger = structlog.get_logger("aws.zonal-shift")

    def zones(self) -> ShiftedZones:
        """Return the zones that are shifted away from now; never a call."""
        with self._lock:
            shifts, names = self._shifts, self._names
        if not shifts:
            return NO_SHIFTS
        ids = active_zone_ids(shifts, now=self._clock.now())
        return ShiftedZones(ids, frozenset(name for each in ids for name in names.get(each, ())))

    def tasks(self) -> tuple[PeriodicTask, ...]:
        """Return the look at AWS, which every replica takes: a new leader must know at once."""
        if not self._enabled:
            return ()
        return (
            PeriodicTask(name=SHIFT_TASK, period=SHIFT_PERIOD, run=self.run, leader_only=False),
        )

    def run(self) -> None:
        """Poll once.

        Raises:
            AuthError: a call is not permitted.
            CloudProviderError: the cluster is not registered for zonal shifts, or AWS did not
                answer; what was seen last stands until it ends.
        """
        shifts = shifts_of(self.describe())
        unnamed = {shift.zone_id for shift in shifts} - self._names.keys()
        names = {**self._names, **(self._names_of(unnamed) if unnamed else {})}
        with self._lock:
            self._shifts, self._names = shifts, names
        self._report(active_zone_ids(shifts, now=self._clock.now()))

    def describe(self) -> GetManagedResourceResponseTypeDef:
        """Ask AWS for the cluster's shifts.

        Raises:
            AuthError: a call is not permitted.
            CloudProviderError: the cluster is not registered, or AWS did not answer.
        """
        arn = self._arn or self._found_arn()
        try:
            with core_errors_of("arc-zonal-shift:GetManagedResource"):
                return self._clients.zonal_shift.get_managed_resource(resourceIdentifier=arn)
        except CloudProviderError as error:
            failure = refusal_behind(error)
            if failure is None or not is_not_found(failure.code):
                raise
            raise CloudProviderError(
                f"--enable-zonal-shift: {arn} is not registered for zonal shifts"
            ) from error

    def _found_arn(self) -> str:
        with core_errors_of("eks:DescribeCluster"):
            answer = self._clients.eks.describe_cluster(name=self._cluster)
        self._arn = answer["cluster"].get("arn", "")
        return self._arn

    def _names_of(self, zone_ids: Collection[str]) -> dict[str, frozenset[str]]:
        """Return the names of zones by id; a zone without a subnet has no instances either."""
        names: dict[str, set[str]] = {}
        with core_errors_of("ec2:DescribeSubnets"):
            pages = self._clients.ec2.get_paginator("describe_subnets").paginate(
                Filters=[{"Name": "availability-zone-id", "Values": sorted(zone_ids)}],
                PaginationConfig={"PageSize": _PAGE_SIZE},
            )
            for page in ending_pages(pages):
                for subnet in page["Subnets"]:
                    zone_id = subnet.get("AvailabilityZoneId", "")
                    names.setdefault(zone_id, set()).add(subnet.get("AvailabilityZone", ""))
        return {zone_id: frozenset(zone_names) for zone_id, zone_names in names.items()}

    def _report(self, active: frozenset[str]) -> None:
        """Log what began and what ended."""
        for zone_id in sorted(active - self._reported):
            self._log.warning("traffic is shifted away from a zone", zone_id=zone_id)
        for zone_id in sorted(self._reported - active):
            self._log.info("a zonal shift is over", zone_id=zone_id)
        self._reported = active
