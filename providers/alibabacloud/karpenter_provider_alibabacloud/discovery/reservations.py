"""Finds a NodeClass's capacity reservations, and what is left of each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.node_class.discovery import (
    DiscoveryResult,
    QueryTerm,
    absent_terms,
)
from karpenter_core.provider.kit.reservation_counts import ReservationCounts
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_alibabacloud.api.nodeclass import CapacityReservation
from karpenter_provider_alibabacloud.api_answers import text_of
from karpenter_provider_alibabacloud.discovery.call_errors import core_errors_of
from karpenter_provider_alibabacloud.discovery.queries import (
    DiscoveryQuery,
    described,
    tag_parameters,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.clock import Clock
    from karpenter_provider_alibabacloud.api.nodeclass import CapacityReservationTerm
    from karpenter_provider_alibabacloud.api_answers import ApiAnswer
    from karpenter_provider_alibabacloud.sdk import CloudClients

__all__ = ["DescribedReservation", "ReservationReader", "read_reservations", "reservation_query"]

FIELD: Final = "spec.capacityReservationSelectorTerms"
PAGE_SIZE: Final = 100
TTL: Final = timedelta(minutes=1)
ACTIVE: Final = "Active"
_UNLIMITED: Final = "Unlimited"
_CRITERIA: Final = frozenset({"Open", "Target"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedReservation:
    """A reservation as ECS describes it: of one instance type in one zone."""

    id: str
    name: str
    zone: str
    instance_type: str
    match_criteria: str
    """`Open`: any matching instance uses it; `Target`: only one that names it."""
    end_time: datetime | None
    available_instances: int

    def status(self) -> CapacityReservation:
        """Return what the status says of it."""
        return CapacityReservation(
            id=self.id,
            name=self.name,
            zone_id=self.zone,
            instance_type=self.instance_type,
            match_criteria=self.match_criteria,
            end_time=self.end_time,
        )


def reservation_query(index: int, term: CapacityReservationTerm) -> DiscoveryQuery | None:
    """Return what a term asks for, its name left out: ECS does not search by it.

    None for a term that says nothing.
    """
    term_text = described((("id", term.id), ("name", term.name), ("tags", term.tags)))
    if not term_text:
        return None
    parameters: dict[str, object] = {
        "Ids": json.dumps([term.id]) if term.id else "",
        "Tag": tag_parameters(term.tags),
    }
    given = tuple(sorted((name, value) for name, value in parameters.items() if value))
    return DiscoveryQuery(given, (QueryTerm(f"{FIELD}[{index}] {term_text}", term.id),))


def read_reservations(items: Iterable[ApiAnswer]) -> tuple[DescribedReservation, ...]:
    """Read what DescribeCapacityReservations answers, without what nothing can be launched into.

    That is a reservation of a kind that we do not know, of no instance type, or of several.
    """
    reservations: list[DescribedReservation] = []
    for item in items:
        criteria = text_of(item, "PrivatePoolOptionsMatchCriteria")
        resources = _resources(item)
        if criteria not in _CRITERIA or len(resources) != 1 or item.get("Status") != ACTIVE:
            continue
        (resource,) = resources
        reservations.append(
            DescribedReservation(
                id=text_of(item, "PrivatePoolOptionsId"),
                name=text_of(item, "PrivatePoolOptionsName"),
                zone=text_of(resource, "zoneId"),
                instance_type=text_of(resource, "InstanceType"),
                match_criteria=criteria,
                end_time=_end(item),
                available_instances=_remaining(resource),
            )
        )
    return tuple(reservations)


def _resources(item: ApiAnswer) -> Sequence[ApiAnswer]:
    allocated: ApiAnswer = item.get("AllocatedResources") or {}
    return allocated.get("AllocatedResource") or ()


def _end(item: ApiAnswer) -> datetime | None:
    text = item.get("EndTime") or ""
    if not text or item.get("EndTimeType") == _UNLIMITED:
        return None
    end = datetime.fromisoformat(text)
    return end if end.tzinfo else end.replace(tzinfo=UTC)


def _remaining(resource: ApiAnswer) -> int:
    """Return the count that ECS gives, or what follows from the others."""
    available = resource.get("AvailableAmount")
    if available is not None:
        return int(available)
    return max(0, int(resource.get("TotalAmount") or 0) - int(resource.get("UsedAmount") or 0))


@final
class ReservationReader:
    """Reads capacity reservations; callable from any thread."""

    def __init__(self, clients: CloudClients, clock: Clock) -> None:
        self._clients: Final = clients
        self._clock: Final = clock
        self._cache: Final[
            TtlCache[tuple[tuple[str, object], ...], tuple[DescribedReservation, ...]]
        ] = TtlCache(clock, TTL)
        self.reservation_counts: Final = ReservationCounts(clock)

    def find(
        self, terms: Sequence[CapacityReservationTerm]
    ) -> DiscoveryResult[DescribedReservation]:
        """Return the active reservations that the terms mean, by id.

        Raises:
            CloudProviderError: ECS refused or did not answer (`discovery.call_errors`).
        """
        now = self._clock.now()
        unique: dict[str, DescribedReservation] = {}
        absent: list[str] = []
        for index, term in enumerate(terms):
            query = reservation_query(index, term)
            if query is None:
                continue
            answer = [
                each
                for each in self._answer(query)
                if (not term.name or each.name == term.name)
                and (each.end_time is None or each.end_time > now)
            ]
            unique |= {each.id: each for each in answer}
            absent += absent_terms([query], [answer], keys=lambda each: (each.id,))
        return DiscoveryResult(
            items=tuple(unique[key] for key in sorted(unique)), absent=tuple(absent)
        )

    def _answer(self, query: DiscoveryQuery) -> tuple[DescribedReservation, ...]:
        answer = self._cache.get(query.parameters)
        if answer is None:
            answer = self._described(query)
            self.reservation_counts.record({each.id: each.available_instances for each in answer})
            self._cache.put(query.parameters, answer)
        return answer

    def _described(self, query: DiscoveryQuery) -> tuple[DescribedReservation, ...]:
        parameters = query.to_api()
        ids = parameters.pop("Ids", None)
        with core_errors_of():
            pages = self._clients.ecs.pages(
                "DescribeCapacityReservations",
                {
                    "RegionId": self._clients.region,
                    "Status": ACTIVE,
                    "MaxResults": PAGE_SIZE,
                    "PrivatePoolOptions": None if ids is None else {"Ids": ids},
                    **parameters,
                },
                items="CapacityReservationSet.CapacityReservationItem",
            )
            return read_reservations(pages)
