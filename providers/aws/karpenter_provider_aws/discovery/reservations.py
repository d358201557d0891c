"""Finds a NodeClass's capacity reservations, and what is left of each.

EC2's count of what is left lags behind; between two readings `ReservationCounts` counts launches
itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.node_class.discovery import (
    DiscoveryResult,
    QueryTerm,
    tag_text,
    unique_by_id,
)
from karpenter_core.provider.kit.reservation_counts import ReservationCounts
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_aws.api.node_class_status import CapacityReservation
from karpenter_provider_aws.codes import is_not_found
from karpenter_provider_aws.discovery.call_errors import core_errors_of, refusal_behind
from karpenter_provider_aws.discovery.queries import DescribeFilter, tag_filters
from karpenter_provider_aws.paging import ending_pages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger
    from types_boto3_ec2.type_defs import (
        CapacityReservationTypeDef,
        DescribeCapacityReservationsRequestTypeDef,
        PaginatorConfigTypeDef,
    )

    from karpenter_core.clock import Clock
    from karpenter_provider_aws.api.nodeclass import CapacityReservationTerm
    from karpenter_provider_aws.sdk import CloudClients

__all__ = [
    "DescribedReservation",
    "ReservationCounts",
    "ReservationQuery",
    "ReservationReader",
    "current_reservations",
    "is_expiring",
    "read_reservation",
    "reservation_queries",
]

FIELD: Final = "spec.capacityReservationSelectorTerms"
PAGE_SIZE: Final = 1000
TTL: Final = timedelta(minutes=1)
ENDS_TTL: Final = timedelta(hours=24)
EXPIRES_BEFORE_END: Final = timedelta(minutes=40)
"""EC2 begins to end the instances of a capacity block half an hour before its end."""
CAPACITY_BLOCK: Final = "capacity-block"
ON_DEMAND: Final = "default"
_CRITERIA: Final = frozenset({"open", "targeted"})
_TYPES: Final = frozenset({ON_DEMAND, CAPACITY_BLOCK})
_ACTIVE: Final = DescribeFilter("state", ("active",))
_MALFORMED: Final = "InvalidCapacityReservationId.Malformed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationQuery:
    """One call: for one id, or for all that the filters let through."""

    term: QueryTerm
    filters: tuple[DescribeFilter, ...] = (_ACTIVE,)

    def to_api(self) -> DescribeCapacityReservationsRequestTypeDef:
        """Return the call as EC2 takes it, without the size of its pages."""
        request: DescribeCapacityReservationsRequestTypeDef = {
            "Filters": [item.to_api() for item in self.filters]
        }
        if self.term.pattern:
            request["CapacityReservationIds"] = [self.term.pattern]
        return request


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedReservation:
    """A reservation as EC2 describes it, with what was left of it then."""

    id: str
    availability_zone: str
    instance_type: str
    instance_match_criteria: str
    owner_id: str
    reservation_type: str
    interruptible: bool
    end_time: datetime | None
    available_instances: int

    def status(self, now: datetime) -> CapacityReservation:
        """Return what the status says of it."""
        expiring = is_expiring(self.reservation_type, self.end_time, now)
        return CapacityReservation(
            id=self.id,
            availability_zone=self.availability_zone,
            instance_type=self.instance_type,
            instance_match_criteria=self.instance_match_criteria,
            owner_id=self.owner_id,
            reservation_type=self.reservation_type,
            interruptible=self.interruptible or None,
            state="expiring" if expiring else "active",
            end_time=self.end_time,
        )


def reservation_queries(
    terms: Iterable[CapacityReservationTerm],
) -> tuple[ReservationQuery, ...]:
    """Return one query for each term."""
    queries: list[ReservationQuery] = []
    for index, term in enumerate(terms):
        where = f"{FIELD}[{index}]"
        if term.id:
            queries.append(ReservationQuery(term=QueryTerm(f'{where}.id "{term.id}"', term.id)))
            continue
        if not (term.tags or term.instance_match_criteria):
            continue
        said = {
            "ownerID": term.owner_id,
            "tags": tag_text(term.tags) if term.tags else "",
            "instanceMatchCriteria": term.instance_match_criteria,
        }
        filters = [_ACTIVE]
        if term.owner_id:
            filters.append(DescribeFilter("owner-id", (term.owner_id,)))
        filters += tag_filters(term.tags)
        if term.instance_match_criteria:
            criteria = (term.instance_match_criteria,)
            filters.append(DescribeFilter("instance-match-criteria", criteria))
        text = ", ".join(f"{name} {value}" for name, value in said.items() if value)
        queries.append(
            ReservationQuery(term=QueryTerm(f"{where} ({text})"), filters=tuple(filters))
        )
    return tuple(queries)


def read_reservation(item: CapacityReservationTypeDef) -> DescribedReservation:
    """Read EC2's description.

    Raises:
        ValueError: its kind is one that we do not know, and cannot launch into.
    """
    criteria = item.get("InstanceMatchCriteria", "")
    kind = item.get("ReservationType") or ON_DEMAND
    for name, value, known_values in (
        ("InstanceMatchCriteria", criteria, _CRITERIA),
        ("ReservationType", kind, _TYPES),
    ):
        if value not in known_values:
            message = f'{item.get("CapacityReservationId", "")}: unknown {name} "{value}"'
            raise ValueError(message)
    return DescribedReservation(
        id=item.get("CapacityReservationId", ""),
        availability_zone=item.get("AvailabilityZone", ""),
        instance_type=item.get("InstanceType", ""),
        instance_match_criteria=criteria,
        owner_id=item.get("OwnerId", ""),
        reservation_type=kind,
        interruptible=item.get("Interruptible", False),
        end_time=item.get("EndDate"),
        available_instances=item.get("AvailableInstanceCount", 0),
    )


def is_expiring(reservation_type: str, end_time: datetime | None, now: datetime) -> bool:
    """Whether nothing should be launched into a reservation any more: a block about to end."""
    return (
        reservation_type == CAPACITY_BLOCK
        and end_time is not None
        and now >= end_time - EXPIRES_BEFORE_END
    )


def current_reservations(
    found: Iterable[DescribedReservation], *, now: datetime
) -> tuple[DescribedReservation, ...]:
    """Return each reservation once, by id, without those that have ended."""
    return unique_by_id(each for each in found if each.end_time is None or each.end_time > now)


@final
class ReservationReader:
    """Reads capacity reservations; callable from any thread."""

    def __init__(self, clients: CloudClients, clock: Clock) -> None:
        self._clients: Final = clients
        self._clock: Final = clock
        self._cache: Final[TtlCache[ReservationQuery, tuple[DescribedReservation, ...]]]
        self._cache = TtlCache(clock, TTL)
        self._ends: Final[TtlCache[str, datetime]] = TtlCache(clock, ENDS_TTL)
        self.reservation_counts: Final = ReservationCounts(clock)
        self._log: FilteringBoundLogger = structlog.get_logger("aws.reservations")

    def find(
        self, terms: Sequence[CapacityReservationTerm]
    ) -> DiscoveryResult[DescribedReservation]:
        """Return the active reservations that the terms mean, by id.

        Raises:
            CloudProviderError: EC2 refused or did not answer (`discovery.call_errors`).
        """
        reservations: list[DescribedReservation] = []
        absent: set[str] = set()
        for query in reservation_queries(terms):
            answer = self._answer(query)
            reservations += answer
            if not answer:
                absent.add(query.term.text)
        return DiscoveryResult(
            items=current_reservations(reservations, now=self._clock.now()),
            absent=tuple(sorted(absent)),
        )

    def known_blocks(self) -> frozenset[str]:
        """Return the ids of the capacity blocks that were found of late; never a call."""
        return frozenset(
            item.id
            for reservations in self._cache.items().values()
            for item in reservations
            if item.reservation_type == CAPACITY_BLOCK
        )

    def has_ended(self, reservation_id: str) -> bool:
        """Return whether the end of a reservation that was found of late has passed; never a call.

        EC2 calls a reservation active, and its instances reserved, for up to an hour after its end.
        """
        end = self._ends.get(reservation_id)
        return end is not None and end <= self._clock.now()

    def _answer(self, query: ReservationQuery) -> tuple[DescribedReservation, ...]:
        answer = self._cache.get(query)
        if answer is None:
            answer = tuple(self._usable(self._describe(query)))
            self.reservation_counts.record({item.id: item.available_instances for item in answer})
            for item in answer:
                if item.end_time is not None:
                    self._ends.put(item.id, item.end_time)
            self._cache.put(query, answer)
        return answer

    def _describe(self, query: ReservationQuery) -> list[CapacityReservationTypeDef]:
        # The size of a page cannot be asked for together with an id.
        paging: PaginatorConfigTypeDef = {} if query.term.pattern else {"PageSize": PAGE_SIZE}
        try:
            with core_errors_of("ec2:DescribeCapacityReservations"):
                pages = self._clients.ec2.get_paginator("describe_capacity_reservations").paginate(
                    **query.to_api(), PaginationConfig=paging
                )
                return [
                    item for page in ending_pages(pages) for item in page["CapacityReservations"]
                ]
        except CloudProviderError as error:
            failure = refusal_behind(error)
            missing = failure is not None and (
                is_not_found(failure.code) or failure.code == _MALFORMED
            )
            if query.term.pattern and missing:
                return []
            raise

    def _usable(
        self, items: Iterable[CapacityReservationTypeDef]
    ) -> Iterable[DescribedReservation]:
        for item in items:
            try:
                yield read_reservation(item)
            except ValueError as error:
                self._log.warning("capacity reservation left out", reason=str(error))
