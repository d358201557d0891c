"""Shortages that are wider than one offering: quotas of groups, zones, capacity types."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.labels import CAPACITY_TYPE, ZONE
from karpenter_core.errors import (
    ExhaustedScope,
    InsufficientCapacityError,
    OfferingKey,
    QuotaGroup,
    ThrottledError,
)
from karpenter_core.lifecycle.nodeclaim.launch import exhausted_offerings
from karpenter_core.provider.catalogue import Offering, Price, Requirements
from karpenter_core.provider.kit.shortages import Shortage, narrow_to_reservations, quota_groups
from karpenter_core.provider.kit.unavailable_offerings import (
    UnavailableOffering,
    UnavailableOfferings,
)
from karpenter_core.scheduling.problem import Catalogue
from karpenter_core.state.unavailable_offerings import without_unavailable
from karpenter_core.testing.builders import instance_type
from tests.properties import with_examples

NOW = datetime(2026, 1, 1, tzinfo=UTC)
D8 = UnavailableOffering("d8", "a", "on-demand")
QUOTA = Shortage(group="d", capacity_type="on-demand", least_cpu_milli=8000)

fields = {
    "capacity_type": st.sampled_from(["", "spot", "on-demand"]),
    "zone": st.sampled_from(["", "a", "b"]),
    "group": st.sampled_from(["", "d", "e"]),
    "least_cpu_milli": st.sampled_from([0, 4000, 8000]),
}
shortages = st.builds(Shortage, **fields)
SIZES = {"d4": ("d", 4000), "d8": ("d", 8000), "D4": ("d", 4000), "e4": ("e", 4000)}


def minutes(count):
    return NOW + timedelta(minutes=count)


def is_marked(marks, offering, *, group="d", cpu_milli=8000, now=NOW):
    return marks.view(now=now).is_unavailable(offering, group=group, cpu_milli=cpu_milli)


def test_a_quota_covers_its_group_from_a_size_on_in_every_zone():
    marks = UnavailableOfferings()
    marks.mark_shortages(QUOTA, now=NOW)

    assert is_marked(marks, D8)
    assert is_marked(marks, D8._replace(zone="b"), cpu_milli=16000)
    assert not is_marked(marks, D8, cpu_milli=4000)
    assert not is_marked(marks, D8, group="e")
    assert not is_marked(marks, D8._replace(capacity_type="spot"))
    assert not marks.view(now=NOW).is_empty


def test_a_failed_allocation_may_cover_both_capacity_types_of_a_zone():
    marks = UnavailableOfferings()
    marks.mark_shortages(Shortage(zone="a"), now=NOW)

    for capacity_type, group in product(("spot", "on-demand"), ("d", "")):
        mine = D8._replace(capacity_type=capacity_type)
        assert is_marked(marks, mine, group=group)
        assert not is_marked(marks, mine._replace(zone="b"), group=group)


def test_a_quota_that_is_met_again_holds_from_the_smallest_size_on_and_anew():
    marks = UnavailableOfferings()
    marks.mark_shortages(QUOTA, now=NOW, life=timedelta(minutes=10))
    marks.mark_shortages(
        QUOTA._replace(least_cpu_milli=4000), now=minutes(5), life=timedelta(minutes=10)
    )
    marks.mark_shortages(QUOTA, now=minutes(8), life=timedelta(minutes=10))

    assert is_marked(marks, D8, cpu_milli=4000, now=minutes(17))
    assert not is_marked(marks, D8, cpu_milli=2000, now=minutes(17))
    assert not is_marked(marks, D8, now=minutes(18))


def test_a_longer_shortage_of_larger_types_does_not_lengthen_that_of_smaller_ones():
    marks = UnavailableOfferings()
    small = QUOTA._replace(least_cpu_milli=4000)
    marks.mark_shortages(small, now=NOW, life=timedelta(hours=1))
    marks.mark_shortages(QUOTA, now=minutes(30), life=timedelta(hours=23))

    assert is_marked(marks, D8, cpu_milli=4000, now=minutes(89))
    assert not is_marked(marks, D8, cpu_milli=4000, now=minutes(90))
    assert is_marked(marks, D8, now=minutes(30 + 23 * 60 - 1))
    assert not is_marked(marks, D8, now=minutes(30 + 23 * 60))


def test_a_shorter_shortage_of_smaller_types_does_not_shorten_that_of_larger_ones():
    marks = UnavailableOfferings()
    marks.mark_shortages(QUOTA, now=NOW, life=timedelta(hours=23))
    for least_cpu_milli in (4000, QUOTA.least_cpu_milli):
        again = QUOTA._replace(least_cpu_milli=least_cpu_milli)
        marks.mark_shortages(again, now=minutes(1), life=timedelta(hours=1))

    assert not is_marked(marks, D8, cpu_milli=4000, now=minutes(61))
    assert is_marked(marks, D8, now=minutes(23 * 60 - 1))


@with_examples(200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([2000, 4000, 8000, 16000]),
            st.integers(min_value=1, max_value=30),
            st.integers(min_value=0, max_value=20),
        ),
        max_size=6,
    ),
    st.integers(min_value=0, max_value=60),
)
def test_a_mark_of_a_size_lasts_at_least_its_own_time_and_never_longer_than_its_causes(
    found, later
):
    """A cause counts for its size and larger ones; a later one of a larger size renews it at most."""
    marks, at = UnavailableOfferings(), 0
    causes = []
    for least_cpu_milli, life, pause in found:
        at += pause
        causes.append((least_cpu_milli, life, at))
        marks.mark_shortages(
            QUOTA._replace(least_cpu_milli=least_cpu_milli),
            now=minutes(at),
            life=timedelta(minutes=life),
        )
    now = at + later
    for cpu_milli in (2000, 4000, 8000, 16000):
        own = [(life, begun) for least, life, begun in causes if least <= cpu_milli]
        marked = is_marked(marks, D8, cpu_milli=cpu_milli, now=minutes(now))
        assert marked or all(begun + life <= now for life, begun in own)
        longest = max((life for life, _ in own), default=0)
        assert not marked or now < at + longest


def test_a_mark_and_its_end_are_changes_of_every_type():
    marks = UnavailableOfferings()
    before = marks.view(now=NOW).sequence("d8")
    marks.mark_shortages(QUOTA, now=NOW)
    during = marks.view(now=NOW).sequence("d8")

    assert before < during < marks.view(now=minutes(3)).sequence("d8")
    marks.mark_shortages(QUOTA, now=minutes(4))
    marks.flush()
    assert not is_marked(marks, D8, now=minutes(4))


def test_a_longer_time_alone_is_no_change():
    marks = UnavailableOfferings()
    marks.mark_shortages(QUOTA, now=NOW)
    before = marks.view(now=NOW)
    marks.mark_shortages(QUOTA, now=minutes(1))

    assert marks.view(now=minutes(1)) is before
    assert is_marked(marks, D8, now=minutes(3.9))
    assert not is_marked(marks, D8, now=minutes(4))


@with_examples(200)
@given(st.lists(shortages, max_size=5))
def test_marks_cover_exactly_the_offerings_of_their_shortages(found):
    """Also when marks of one quota with several sizes are merged."""
    marks = UnavailableOfferings()
    marks.mark_shortages(*found, now=NOW)
    for (name, (group, cpu_milli)), zone, capacity_type in product(
        SIZES.items(), ("a", "b"), ("spot", "on-demand")
    ):
        expected = any(
            each.covers(capacity_type=capacity_type, zone=zone, group=group, cpu_milli=cpu_milli)
            for each in found
        )
        offering = UnavailableOffering(name, zone, capacity_type)
        assert is_marked(marks, offering, group=group, cpu_milli=cpu_milli) is expected


@with_examples(200)
@given(st.lists(shortages, max_size=3))
def test_quota_groups_cover_the_offerings_that_the_marks_make_unavailable(found):
    """The core masks by groups what the provider marks, in families that are finer than the quota."""
    marks = UnavailableOfferings()
    marks.mark_shortages(*found, now=NOW)
    types = [
        instance_type(name, cpu=f"{cpu_milli}m", zones=("a", "b"), labels={"family": name[0]})
        for name, (_, cpu_milli) in SIZES.items()
    ]
    groups = frozenset(
        quota_groups(found, types, label="family", group_of=lambda name: SIZES[name][0])
    )

    masked = without_unavailable(Catalogue(version="v1", instance_types=tuple(types)), groups)

    for it in masked.instance_types:
        group, cpu_milli = SIZES[it.name]
        for each in it.offerings:
            offering = UnavailableOffering(it.name, each.zone, each.capacity_type)
            assert each.available is not is_marked(
                marks, offering, group=group, cpu_milli=cpu_milli
            )


def test_a_quota_group_covers_types_of_its_families_that_were_not_offered():
    small, large = (
        instance_type(name, cpu=cpu, labels={"family": "d"})
        for name, cpu in (("d4", "4"), ("d8", "8"))
    )

    (group,) = quota_groups([QUOTA], [small], label="family", group_of=lambda _: "d")
    masked = without_unavailable(
        Catalogue(version="v1", instance_types=(small, large)), frozenset({group})
    )

    closed = {
        (it.name, o.capacity_type)
        for it in masked.instance_types
        for o in it.offerings
        if not o.available
    }
    assert closed == {("d8", "on-demand")}


RESERVATION = "cloud.example.com/reservation"


def reserved(reservation, *, capacity_type="reserved", zone="a"):
    labels = {CAPACITY_TYPE: capacity_type, ZONE: zone, RESERVATION: reservation}
    return Offering(
        requirements=Requirements.from_labels(
            {key: value for key, value in labels.items() if value}
        ),
        price=Price(1.0, "USD"),
        available=True,
        reservation_capacity=1,
    )


FULL, AMPLE = reserved("r-1"), reserved("r-2")
KEY = OfferingKey(instance_type="d8", zone="a", capacity_type="reserved")
PLAIN = OfferingKey(instance_type="d8", zone="b", capacity_type="on-demand")


def narrowed(error, *offerings):
    return narrow_to_reservations(
        error, [("d8", offering) for offering in offerings], label=RESERVATION
    )


def test_a_shortage_of_a_reservation_leaves_others_of_the_same_offering_available():
    """They are paid for: on-demand would be launched beside them."""
    it = replace(instance_type("d8"), offerings=(FULL, AMPLE))
    error = narrowed(InsufficientCapacityError("full", offerings=[KEY]), FULL)
    masked = exhausted_offerings(error, [it], Requirements())

    (left,) = without_unavailable(
        Catalogue(version="1", instance_types=(it,)), frozenset(masked)
    ).instance_types

    assert [offering.available for offering in left.offerings] == [False, True]


def test_other_offerings_of_a_shortage_stay_beside_its_reservations():
    quota = QuotaGroup(capacity_type="spot")
    error = InsufficientCapacityError("full", offerings=[PLAIN, KEY], quota_groups=[quota])
    of_both = narrowed(error, FULL, AMPLE, reserved("", capacity_type="on-demand", zone="b"))

    assert of_both.offerings == (PLAIN,)
    assert [group.value for group in of_both.quota_groups] == ["", "r-1", "r-2"]
    assert str(of_both) == "full"


@pytest.mark.parametrize(
    "error",
    [
        InsufficientCapacityError("full", offerings=[PLAIN]),
        InsufficientCapacityError("no address", offerings=[KEY], scope=ExhaustedScope.NODE_CLASS),
        InsufficientCapacityError("full zone", offerings=[KEY], scope=ExhaustedScope.ZONE),
        ThrottledError("later"),
    ],
)
def test_an_error_about_more_than_reservations_is_left_as_it_is(error):
    assert narrowed(error, FULL, AMPLE) is error
