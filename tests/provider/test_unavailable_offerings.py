"""Sold-out offerings are masked (cases 77-81 of AWS, 50 and 65 of Alibaba Cloud)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from karpenter_core.provider.kit.unavailable_offerings import (
    UnavailableOffering,
    UnavailableOfferings,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
LARGE = UnavailableOffering("m5.large", "us-east-1a", "on-demand")


def after(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


def sequences(marks: UnavailableOfferings, *, now: datetime = NOW) -> tuple[int, int]:
    view = marks.view(now=now)
    return view.sequence("m5.large"), view.sequence("m5.xlarge")


def test_a_mark_counts_for_its_type_and_shared_marks_for_all():
    """Case 77."""
    marks = UnavailableOfferings()

    marks.mark(LARGE, now=NOW)
    assert sequences(marks) == (1, 0)
    marks.mark_subnet("subnet-1", now=NOW)
    assert sequences(marks) == (2, 1)
    marks.mark_capacity_type("spot", now=NOW)
    assert sequences(marks) == (3, 2)
    marks.delete(LARGE, now=NOW)
    assert sequences(marks) == (4, 2)


def test_deleting_an_unmarked_type_changes_nothing():
    marks = UnavailableOfferings()
    before = marks.view(now=NOW)

    marks.delete(LARGE, now=NOW)

    assert marks.view(now=NOW) is before


def test_a_mark_lasts_three_minutes_and_its_end_counts():
    """Case 78."""
    marks = UnavailableOfferings()
    marks.mark(LARGE, now=NOW)

    assert marks.view(now=after(2.99)).is_unavailable(LARGE)
    assert not marks.view(now=after(3)).is_unavailable(LARGE)
    assert sequences(marks, now=after(3)) == (2, 0)


def test_a_renewed_mark_restarts_its_duration():
    """Case 78."""
    marks = UnavailableOfferings()
    marks.mark(LARGE, now=NOW)
    marks.mark(LARGE, now=after(2))

    assert marks.view(now=after(4.9)).is_unavailable(LARGE)
    assert not marks.view(now=after(5)).is_unavailable(LARGE)


def test_a_zone_is_closed_when_all_its_subnets_are():
    """Case 79."""
    marks = UnavailableOfferings()
    marks.mark_subnet("subnet-1", now=NOW)
    one = marks.view(now=NOW)
    marks.mark_subnet("subnet-2", now=NOW)
    both = marks.view(now=NOW)

    assert not one.is_unavailable(LARGE, ["subnet-1", "subnet-2"])
    assert both.is_unavailable(LARGE, ["subnet-1", "subnet-2"])
    assert not both.is_unavailable(LARGE, [])


def test_a_shortage_of_spot_leaves_on_demand_and_other_zones():
    """Case 80."""
    marks = UnavailableOfferings()
    spot = LARGE._replace(capacity_type="spot")
    marks.mark(spot, now=NOW)
    view = marks.view(now=NOW)

    assert view.is_unavailable(spot)
    assert not view.is_unavailable(LARGE)
    assert not view.is_unavailable(spot._replace(zone="us-east-1b"))
    assert not view.is_unavailable(spot._replace(instance_type="m5.xlarge"))


def test_a_shortage_in_a_placement_group_is_its_own():
    """Case 81."""
    marks = UnavailableOfferings()
    grouped = LARGE._replace(placement_group="pg-1")
    marks.mark(grouped, now=NOW)
    view = marks.view(now=NOW)

    assert view.is_unavailable(grouped)
    assert view.is_unavailable(grouped._replace(partition="2"))
    assert not view.is_unavailable(LARGE)
    assert not view.is_unavailable(grouped._replace(placement_group="pg-2"))


def test_a_shortage_in_a_partition_leaves_the_others():
    marks = UnavailableOfferings()
    second = LARGE._replace(placement_group="pg-1", partition="2")
    marks.mark(second, now=NOW)
    view = marks.view(now=NOW)

    assert view.is_unavailable(second)
    assert not view.is_unavailable(second._replace(partition="1"))


def test_a_general_shortage_holds_in_placement_groups_too():
    """Case 81."""
    marks = UnavailableOfferings()
    marks.mark(LARGE, now=NOW)

    assert marks.view(now=NOW).is_unavailable(LARGE._replace(placement_group="pg-1"))


def test_a_capacity_type_can_be_closed_altogether():
    marks = UnavailableOfferings()
    marks.mark_capacity_type("spot", now=NOW)
    view = marks.view(now=NOW)

    assert view.is_unavailable(LARGE._replace(capacity_type="spot"))
    assert not view.is_unavailable(LARGE)
    assert not marks.view(now=after(3)).is_unavailable(LARGE._replace(capacity_type="spot"))


def test_views_are_the_same_until_something_changes():
    marks = UnavailableOfferings()
    marks.mark(LARGE, now=NOW)

    assert marks.view(now=NOW) is marks.view(now=after(1))
    assert marks.view(now=NOW).revision < marks.view(now=after(3)).revision


def test_a_flush_empties_the_cache_and_outdates_its_results():
    marks = UnavailableOfferings()
    marks.mark(LARGE, now=NOW)
    before = marks.view(now=NOW)
    marks.flush()
    view = marks.view(now=NOW)

    assert not view.is_unavailable(LARGE)
    assert view.sequence("m5.large") != before.sequence("m5.large")


def test_a_mark_made_again_soon_lasts_twice_as_long():
    marks = UnavailableOfferings(timedelta(minutes=3), longest_life=timedelta(minutes=10))
    marks.mark(LARGE, now=NOW)
    marks.mark(LARGE, now=after(4))
    assert marks.view(now=after(9)).is_unavailable(LARGE)
    assert not marks.view(now=after(10)).is_unavailable(LARGE)
    marks.mark(LARGE, now=after(11))
    assert marks.view(now=after(20.9)).is_unavailable(LARGE), "ten minutes are the longest"
    assert not marks.view(now=after(21)).is_unavailable(LARGE)


def test_a_mark_made_again_while_it_holds_is_the_same_shortage():
    """Launches that are under way together all find it, which does not make it any longer."""
    marks = UnavailableOfferings(timedelta(minutes=3), longest_life=timedelta(minutes=10))
    for minute in (0, 0, 0, 1):
        marks.mark(LARGE, now=after(minute))
    assert marks.view(now=after(3.9)).is_unavailable(LARGE)
    assert not marks.view(now=after(4)).is_unavailable(LARGE)
    for minute in (5, 5):
        marks.mark(LARGE, now=after(minute))
    assert marks.view(now=after(10.9)).is_unavailable(LARGE)
    assert not marks.view(now=after(11)).is_unavailable(LARGE)


def test_growth_restarts_after_a_success_or_a_long_pause():
    marks = UnavailableOfferings(timedelta(minutes=3), longest_life=timedelta(minutes=10))
    marks.mark(LARGE, now=NOW)
    marks.delete(LARGE, now=after(1))
    marks.mark(LARGE, now=after(2))
    assert not marks.view(now=after(5)).is_unavailable(LARGE)
    marks.mark(LARGE, now=after(16))
    assert not marks.view(now=after(19)).is_unavailable(LARGE)


def test_a_mark_may_have_its_own_duration():
    marks = UnavailableOfferings()
    marks.mark(LARGE, now=NOW, life=timedelta(minutes=15))
    marks.mark_subnet("subnet-1", now=NOW, life=timedelta(minutes=5))
    marks.mark_capacity_type("spot", now=NOW, life=timedelta(minutes=10))
    view = marks.view(now=after(6))
    assert (view.subnets, view.capacity_types) == (frozenset(), {"spot"})
    assert marks.view(now=after(14)).is_unavailable(LARGE)
    assert not marks.view(now=after(15)).is_unavailable(LARGE)


@pytest.mark.parametrize("hours", [6, -6])
def test_marks_last_by_the_monotonic_clock(hours):
    """A wall clock that is set neither lifts a mark nor keeps one."""
    seconds = [100.0]
    marks = UnavailableOfferings(timedelta(minutes=3), monotonic=lambda: seconds[0])
    marks.mark_subnet("subnet-1", now=NOW)
    marks.mark_capacity_type("spot", now=NOW)
    seconds[0] += 120
    away = NOW + timedelta(hours=hours)
    assert marks.view(now=away).subnets == {"subnet-1"}

    seconds[0] += 61
    shortages = marks.view(now=away)
    assert (shortages.subnets, shortages.capacity_types) == (frozenset(), frozenset())
