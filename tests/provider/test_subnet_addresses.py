"""Addresses are reserved for open launches (acceptance cases 106-108 of AWS)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.provider.kit.subnet_addresses import (
    SubnetAddresses,
    choose_subnets,
    least_addresses_by_zone,
)
from karpenter_core.testing.builders import instance_type, offering
from tests.properties import with_examples


class HandClock:
    """A clock that is moved by hand."""

    seconds = 1000.0

    def monotonic(self):
        return self.seconds

    def forward(self, **amount):
        self.seconds += timedelta(**amount).total_seconds()


class Subnet(NamedTuple):
    id: str
    zone: str


A1 = Subnet("subnet-a1", "us-east-1a")
A2 = Subnet("subnet-a2", "us-east-1a")
B1 = Subnet("subnet-b1", "us-east-1b")
FIVE_MINUTES = timedelta(minutes=5)


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def book(clock):
    return SubnetAddresses(clock, FIVE_MINUTES)


def chosen(hold):
    return {zone: subnet.id for zone, subnet in hold.subnets.items()}


def test_the_subnet_with_most_addresses_of_each_zone_is_chosen(book):
    """Case 106."""
    book.record({A1.id: 10, A2.id: 100, B1.id: 1})

    hold = book.hold([A1, A2, B1], addresses_each={})

    assert chosen(hold) == {"us-east-1a": A2.id, "us-east-1b": B1.id}


def test_launches_under_way_count_until_the_other_subnet_has_more(book):
    """Case 107: of equals the one that comes first in the status is kept."""
    book.record({A1.id: 11, A2.id: 10})
    each = {"us-east-1a": 1}

    launches = [chosen(book.hold([A1, A2], addresses_each=each))["us-east-1a"] for _ in range(3)]

    assert launches == [A1.id, A1.id, A2.id]


def test_a_launch_that_failed_gives_its_addresses_back(book):
    """Case 108."""
    book.record({A1.id: 20, B1.id: 20})
    hold = book.hold([A1, B1], addresses_each={"us-east-1a": 8, "us-east-1b": 3})
    assert (book.expected(A1.id), book.expected(B1.id)) == (12, 17)

    book.release(hold, {})

    assert (book.expected(A1.id), book.expected(B1.id)) == (20, 20)


def test_zones_that_a_launch_did_not_use_get_their_addresses_back(book):
    """Launched instances stay counted."""
    book.record({A1.id: 20, B1.id: 20})
    hold = book.hold([A1, B1], addresses_each={"us-east-1a": 5, "us-east-1b": 5}, instances=3)

    book.release(hold, {A1.id: 2})

    assert (book.expected(A1.id), book.expected(B1.id)) == (10, 20)


def test_a_newer_count_of_the_cloud_is_not_corrected(book):
    """It has counted the launch, or the launch is over."""
    book.record({A1.id: 20})
    hold = book.hold([A1], addresses_each={"us-east-1a": 5})
    book.record({A1.id: 20})

    book.release(hold, {})

    assert book.expected(A1.id) == 20


def test_an_exhausted_subnet_is_chosen_only_where_there_is_no_other(book):
    """A sibling has more; alone in its zone it is still the zone's subnet."""
    book.record({A1.id: 200, A2.id: 3, B1.id: 50})
    book.hold([A1], addresses_each={"us-east-1a": 10})

    book.record_exhausted(A1.id)
    book.record_exhausted(B1.id)

    assert book.expected(A1.id) == 0
    hold = book.hold([A1, A2, B1], addresses_each={})
    assert chosen(hold) == {"us-east-1a": A2.id, "us-east-1b": B1.id}


def test_old_address_counts_are_ignored(book, clock):
    """Then the order of the status decides."""
    book.record({A1.id: 1, A2.id: 100})
    clock.forward(minutes=5)

    hold = book.hold([A1, A2], addresses_each={"us-east-1a": 1})

    assert chosen(hold) == {"us-east-1a": A1.id}
    assert book.expected(A2.id) == 0


def test_a_subnet_too_small_for_one_node_is_skipped_on_request(book):
    """Acceptance of Alibaba Cloud, section 4.2: each pod takes an address there."""
    book.record({A1.id: 14, A2.id: 15, B1.id: 3})
    each = {"us-east-1a": 15, "us-east-1b": 4}

    hold = book.hold([A1, A2, B1], addresses_each=each, skips_short=True)
    assert chosen(hold) == {"us-east-1a": A2.id}

    assert chosen(book.hold([A1, A2], addresses_each=each, skips_short=True)) == {}
    book.release(hold, {})
    assert chosen(book.hold([A1, A2], addresses_each=each, skips_short=True)) != {}


def test_addresses_reserved_by_open_launches_may_be_counted(book):
    """Each keeps addresses in every zone and takes those of one: together they keep too much."""
    book.record({A1.id: 30, B1.id: 30})
    each = {"us-east-1a": 15, "us-east-1b": 15}
    first = book.hold([A1, B1], addresses_each=each, instances=2)

    def again(**options):
        hold = book.hold([A1, B1], addresses_each=each, skips_short=True, **options)
        book.release(hold, {})
        return set(hold.subnets)

    assert again() == set()
    assert again(ignores_under_way=True) == {"us-east-1a", "us-east-1b"}
    assert not book.is_short(A1.id, 30)
    assert book.is_short(A1.id, 31)

    book.release(first, {A1.id: 2})
    assert again() == again(ignores_under_way=True) == {"us-east-1b"}
    assert book.is_short(A1.id, 1)
    assert not book.is_short(B1.id, 30)
    assert not book.is_short("nobody-read-it", 30)


def test_a_subnet_without_a_count_is_not_skipped(book):
    """A process that has just started has no count yet."""
    hold = book.hold([A1], addresses_each={"us-east-1a": 15}, skips_short=True)

    assert chosen(hold) == {"us-east-1a": A1.id}


def test_without_any_address_a_subnet_is_passed_over_on_request(book):
    book.record_exhausted(A1.id)

    assert chosen(book.hold([A1], addresses_each={}, skips_short=True)) == {}


def test_a_launch_is_assumed_to_use_the_addresses_of_its_smallest_available_type():
    """By zone; sold-out offerings and other capacity types do not count."""
    types = [
        instance_type(
            f"type-{pods}",
            pods=str(pods),
            offerings=[offering(zone, capacity_type, 1.0, available=available)],
        )
        for pods, zone, capacity_type, available in (
            (29, "a", "spot", True),
            (8, "a", "spot", True),
            (4, "a", "spot", False),
            (2, "a", "on-demand", True),
            (58, "b", "spot", True),
        )
    ]

    least = least_addresses_by_zone(types, "spot", lambda each: each.capacity["pods"])

    assert least == {"a": 8, "b": 58}


LAUNCHES = st.lists(
    st.tuples(
        st.integers(0, 40),  # addresses each
        st.integers(1, 10),  # instances
        st.integers(0, 10),  # of which were launched
    ),
    max_size=12,
)


@given(
    free=st.lists(st.integers(0, 300), min_size=1, max_size=5),
    launches=LAUNCHES,
    seed=st.randoms(use_true_random=False),
)
@with_examples(100)
def test_each_launched_instance_is_gone_at_the_end(free, launches, seed):
    """However launches overlap, and in whatever order they are answered."""
    subnets = [Subnet(f"subnet-{i}", "z") for i in range(len(free))]
    book = SubnetAddresses(HandClock(), FIVE_MINUTES)
    book.record({subnet.id: count for subnet, count in zip(subnets, free, strict=True)})
    open_launches, taken = [], 0
    for each, instances, launched in launches:
        hold = book.hold(subnets, addresses_each={"z": each}, instances=instances)
        open_launches.append((hold, min(launched, instances)))
        taken += each * min(launched, instances)
    seed.shuffle(open_launches)

    for hold, launched in open_launches:
        book.release(hold, {hold.subnets["z"].id: launched})

    assert sum(book.expected(subnet.id) for subnet in subnets) == sum(free) - taken


@given(
    counts=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.none() | st.integers(-5, 5)),
        max_size=8,
    )
)
@with_examples(100)
def test_no_subnet_of_a_zone_has_more_than_the_chosen_one(counts):
    """And none before it in the status has as many."""
    subnets = [Subnet(f"subnet-{i}", zone) for i, (zone, _, _) in enumerate(counts)]
    free = {f"subnet-{i}": count for i, (_, count, _) in enumerate(counts)}
    expected = {f"subnet-{i}": left for i, (_, _, left) in enumerate(counts) if left is not None}

    picked = choose_subnets(subnets, free=free, expected=expected)

    def left(subnet):
        return expected.get(subnet.id, free[subnet.id])

    assert picked.keys() == {subnet.zone for subnet in subnets}
    for subnet in subnets:
        best = picked[subnet.zone]
        assert left(subnet) <= left(best)
        if left(subnet) == left(best):
            assert subnets.index(best) <= subnets.index(subnet)


def test_launches_from_many_threads_lose_no_address():
    """Each chooses, holds and gives back in a thread of its own (PC-008)."""
    subnets = [A1, A2, B1]
    book = SubnetAddresses(HandClock(), FIVE_MINUTES)
    book.record({A1.id: 5000, A2.id: 5000, B1.id: 5000})
    each = {"us-east-1a": 2, "us-east-1b": 3}

    def launch(number):
        hold = book.hold(subnets, addresses_each=each)
        used = hold.subnets["us-east-1a" if number % 2 else "us-east-1b"]
        book.release(hold, {used.id: 1})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(launch, range(400)))

    assert book.expected(A1.id) + book.expected(A2.id) == 10_000 - 200 * 2
    assert book.expected(B1.id) == 5000 - 200 * 3
