"""Windows on the local clock: time zones, clock changes, edges."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api import local_windows
from karpenter_core.api.cron_schedule import CronSchedule
from karpenter_core.api.durations import parse_duration
from karpenter_core.api.local_windows import LocalWindow, read_time_zone
from karpenter_core.errors import BadInputError
from tests.properties import with_examples

BERLIN = "Europe/Berlin"
SCHEDULES = (
    "0 22 * * *",
    "30 2 * * *",
    "0 * * * *",
    "15,45 1-3 * * *",
    "0 20 * * fri",
    "0 0 1 * *",
    "*/20 * * * *",
    "59 23 31 12 *",
)
ZONES = (
    BERLIN,
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "UTC",
    "Pacific/Apia",
    "America/Sao_Paulo",
)


def window(schedule, duration, zone=BERLIN):
    return LocalWindow(
        schedule=CronSchedule.parse(schedule),
        duration=parse_duration(duration),
        zone=read_time_zone(zone),
    )


def at(text):
    return datetime.fromisoformat(text).astimezone(UTC)


def test_an_edge_that_is_decades_away_is_not_searched_day_by_day(monkeypatch):
    """The search ends some years ahead with an instant before which nothing changes."""
    compared = []
    offset = local_windows._offset
    monkeypatch.setattr(
        local_windows, "_offset", lambda *given: compared.append(given) or offset(*given)
    )
    start = at("2060-03-01T00:00:00Z")
    decades = window("0 12 1 1 *", f"{50 * 366 * 24}h", "UTC")

    assert window("0 12 29 2 *", "1h", "UTC").next_change(start) == (
        at("2064-02-29T12:00:00Z"),
        True,
    )
    compared.clear()
    instant, is_certain = decades.next_change(start)
    assert not is_certain
    assert instant == start + 16 * timedelta(days=366)
    assert len(compared) < 20 * 366


def test_window_is_open_from_its_start_up_to_its_end():
    """The start belongs to it, the end does not; both are local times."""
    hours = window("0 8 * * mon-fri", "10h")

    assert not hours.is_open(at("2026-07-01T05:59:59Z"))
    assert hours.is_open(at("2026-07-01T06:00:00Z"))
    assert hours.is_open(at("2026-07-01T15:59:59Z"))
    assert not hours.is_open(at("2026-07-01T16:00:00Z"))
    assert not hours.is_open(at("2026-07-04T10:00:00Z"))  # a Saturday


def test_window_ends_at_its_local_time_in_nights_with_a_clock_change():
    """Nights of 8 and of 10 hours: 22:00 plus nine hours is 07:00."""
    night = window("0 22 * * *", "9h")

    assert night.next_change(at("2026-03-29T00:00:00Z")) == (at("2026-03-29T05:00:00Z"), True)
    assert night.next_change(at("2026-10-25T00:00:00Z")) == (at("2026-10-25T06:00:00Z"), True)
    assert night.next_change(at("2026-06-01T00:00:00Z")) == (at("2026-06-01T05:00:00Z"), True)


def test_time_that_the_clock_skips_opens_no_window():
    """02:30 to 02:45 does not exist on 29 March 2026 in Berlin."""
    skipped = window("30 2 29 3 *", "15m")

    minutes = [at("2026-03-29T00:00:00Z") + timedelta(minutes=minute) for minute in range(180)]
    assert not any(skipped.is_open(minute) for minute in minutes)
    found = skipped.next_change(minutes[0])
    assert found is not None
    assert found[0] > minutes[-1]


def test_window_that_reaches_over_the_skipped_hour_is_open_around_it():
    """From 01:30 for an hour and a half: to 03:00, which follows 01:59."""
    reaching = window("30 1 29 3 *", "90m")

    assert reaching.next_change(at("2026-03-28T23:00:00Z")) == (at("2026-03-29T00:30:00Z"), True)
    assert reaching.next_change(at("2026-03-29T00:30:00Z")) == (at("2026-03-29T01:00:00Z"), True)


def test_time_that_the_clock_shows_twice_opens_the_window_twice():
    """02:15 to 02:30 on 25 October 2026 in Berlin."""
    repeated = window("15 2 25 10 *", "15m")
    first, closed = at("2026-10-25T00:15:00Z"), at("2026-10-25T00:30:00Z")

    assert repeated.next_change(at("2026-10-24T22:00:00Z")) == (first, True)
    assert repeated.next_change(first) == (closed, True)
    assert repeated.next_change(closed) == (first + timedelta(hours=1), True)
    assert repeated.next_change(first + timedelta(hours=1)) == (closed + timedelta(hours=1), True)


def test_window_open_over_the_end_of_the_repeated_hour_closes_at_the_change_and_opens_again():
    """01:30 to 02:15 closes at the first 02:15 and is open again from the change to 02:15."""
    across = window("30 1 25 10 *", "45m")
    changes, instant = [], at("2026-10-24T22:00:00Z")
    for _ in range(4):
        instant, is_certain = across.next_change(instant)
        assert is_certain
        changes.append(instant)

    assert changes == [
        at("2026-10-24T23:30:00Z"),
        at("2026-10-25T00:15:00Z"),
        at("2026-10-25T01:00:00Z"),
        at("2026-10-25T01:15:00Z"),
    ]


@pytest.mark.parametrize(("schedule", "duration"), [("@daily", "24h"), ("* * * * *", "60h")])
def test_windows_that_join_stay_open(schedule, duration):
    """No edge is reported; the search goes on later."""
    joined = window(schedule, duration)

    found = joined.next_change(at("2026-07-01T10:00:00Z"))

    assert found is not None
    assert not found[1]
    assert joined.is_open(found[0])


def test_window_that_never_starts_has_no_change():
    """30 February."""
    assert window("0 0 30 2 *", "1h").next_change(at("2026-01-01T00:00:00Z")) is None


@pytest.mark.parametrize("name", ["Europe/Berln", "", "Europe", "right/UTC", "/etc/passwd", "../x"])
def test_unknown_time_zone_is_refused(name):
    """The error names the value."""
    with pytest.raises(BadInputError) as error:
        read_time_zone(name)

    assert f'timeZone "{name}"' in str(error.value)


@with_examples(60)
@given(
    schedule=st.sampled_from(SCHEDULES),
    minutes=st.sampled_from((1, 14, 20, 60, 90, 540, 1440, 3600)),
    zone=st.sampled_from(ZONES),
    start=st.integers(0, 2 * 365 * 24 * 60),
)
def test_next_change_is_the_first_minute_that_differs(schedule, minutes, zone, start):
    """Compared with a walk over the minutes of two days, which reads the local clock only."""
    found = window(schedule, f"{minutes}m", zone)
    now = at("2025-01-01T00:00:00Z") + timedelta(minutes=start)
    walked = [now + timedelta(minutes=number) for number in range(2 * 24 * 60)]
    is_open = [open_by_walk(found, instant, ZoneInfo(zone)) for instant in walked]
    expected = next(
        (at for at, opened in zip(walked, is_open, strict=True) if opened != is_open[0]), None
    )

    change = found.next_change(now)

    assert found.is_open(now) == is_open[0]
    if expected is not None:
        assert change is not None
        assert change[0] == expected or (not change[1] and change[0] < expected)
    elif change is not None and change[1]:
        assert change[0] > walked[-1]


def open_by_walk(opening, instant, zone):
    """Tell by going back over local minutes whether one of them is a start."""
    local = instant.astimezone(zone).replace(tzinfo=None, fold=0)
    start = local - opening.duration
    hit = opening.schedule.next_local(start)
    return hit is not None and hit <= local
