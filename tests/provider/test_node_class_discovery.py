"""Resources that terms select become parts; terms without a match are named."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest

from karpenter_core.api.base import Model
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.node_class.discovery import (
    DiscoveryReader,
    DiscoveryResult,
    QueryTerm,
    absent_terms,
    found_part,
    reservations_part,
    unique_by_id,
)
from tests.provider.cloud_node_classes import NOW, HandClock


@dataclass(frozen=True)
class Query:
    terms: tuple[QueryTerm, ...]


class Item(Model):
    id: str
    zone: str | None = None


class Cloud:
    def __init__(self, clock, **more):
        self.found, self.count, self.error, self.seen = ("b", "a", "b"), 0, None, []
        self.reader = DiscoveryReader(
            clock,
            timedelta(minutes=1),
            describe=self.describe,
            keys=lambda item: (item,),
            order=lambda items: tuple(sorted(set(items))),
            observe=self.seen.append,
            **more,
        )

    def describe(self, _query):
        self.count += 1
        if self.error:
            raise self.error
        return self.found

    def find(self, *patterns):
        terms = tuple(QueryTerm(f"term {pattern}", pattern) for pattern in patterns)
        return self.reader.find((Query(terms),))


def test_terms_without_a_match_are_named_in_one_order():
    queries = [
        Query((QueryTerm("spec.terms[2]", "s-9"), QueryTerm("spec.terms[1]", "s-*"))),
        Query((QueryTerm("spec.terms[0]"),)),
    ]

    assert absent_terms(queries, [["s-1"], []], keys=lambda name: (name,)) == (
        "spec.terms[0]",
        "spec.terms[2]",
    )


def test_a_resource_that_two_queries_find_is_listed_once():
    items = [Item(id="b", zone="1"), Item(id="a"), Item(id="b", zone="1")]

    assert unique_by_id(items) == (Item(id="a"), Item(id="b", zone="1"))


def test_resources_are_read_once_a_minute_and_observed_when_read():
    clock = HandClock()
    cloud = Cloud(clock)

    for _ in range(2):
        assert cloud.find("a", "z") == DiscoveryResult(items=("a", "b"), absent=("term z",))
    assert (cloud.count, cloud.seen) == (1, [("a", "b")])
    clock.forward(minutes=1)
    cloud.find("a", "z")
    assert cloud.count == 2


@pytest.mark.parametrize(("caches_nothing", "count"), [(True, 1), (False, 2)])
def test_an_empty_result_is_cached_if_wanted(caches_nothing, count):
    cloud = Cloud(HandClock(), caches_nothing=caches_nothing)
    cloud.found = ()

    for _ in range(2):
        assert cloud.find("a").items == ()

    assert cloud.count == count


def test_an_error_is_not_cached():
    cloud = Cloud(HandClock())
    cloud.error = CloudProviderError("no route")
    with pytest.raises(CloudProviderError):
        cloud.find("a")
    cloud.error = None
    assert cloud.find("a").items == ("a", "b")


def part(items=(), absent=()):
    found = DiscoveryResult(items=tuple(items), absent=tuple(absent))
    return found_part(
        "SubnetsReady",
        found,
        [Item(id=item) for item in items],
        field="spec.subnets",
        status_field="subnets",
        reason="SubnetsNotFound",
        retry_absent_after=timedelta(seconds=15),
    )


def test_discovered_resources_are_listed_and_terms_without_a_match_are_remarks():
    found = part(["s-1"], ["spec.subnets[1]"])

    assert (found.condition.status, found.condition.message) == (
        "True",
        "nothing matches spec.subnets[1]",
    )
    assert found.status == {"subnets": [{"id": "s-1"}]}
    assert found.retry_after == timedelta(minutes=5)


@pytest.mark.parametrize(
    ("absent", "message"),
    [
        (["spec.subnets[0]"], "nothing matches spec.subnets[0]"),
        ([], "spec.subnets has no term that matches anything"),
    ],
)
def test_without_any_resource_the_list_is_emptied(absent, message):
    found = part([], absent)

    assert (found.condition.status, found.condition.reason, found.condition.message) == (
        "False",
        "SubnetsNotFound",
        message,
    )
    assert found.status == {"subnets": []}
    assert found.retry_after == timedelta(seconds=15)


@dataclass(frozen=True)
class Reservation:
    end_time: object = None


@pytest.mark.parametrize(
    ("items", "absent", "seconds"),
    [
        ([], [], 300),
        ([], ["spec.reservations[0]"], 60),
        ([Reservation()], [], 60),
        ([Reservation(NOW + timedelta(seconds=40)), Reservation()], [], 40),
        ([Reservation(NOW - timedelta(hours=1))], [], 1),
    ],
)
def test_reservations_are_read_again_when_the_first_of_them_ends(items, absent, seconds):
    found = DiscoveryResult(items=tuple(items), absent=tuple(absent))

    read = reservations_part("ReservationsReady", found, [], now=NOW)

    assert read.condition.status == "True"
    assert read.retry_after == timedelta(seconds=seconds)
