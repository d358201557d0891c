"""Cron schedules of budgets, as the reference's parser reads them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.cron_schedule import CronSchedule
from karpenter_core.errors import BadInputError
from tests.properties import with_examples

NOON = datetime(2000, 6, 15, 12, 30, 30, tzinfo=UTC)  # a Thursday


def next_of(text: str, at: datetime = NOON) -> str:
    hit = CronSchedule.parse(text).next_after(at)
    return "never" if hit is None else f"{hit:%Y-%m-%d %H:%M}"


@pytest.mark.parametrize(
    ("text", "hit"),
    [
        ("* * * * *", "2000-06-15 12:31"),
        ("20 8 * * 1", "2000-06-19 08:20"),
        ("20 8 * * mon", "2000-06-19 08:20"),
        ("0 0 1 JAN *", "2001-01-01 00:00"),
        ("*/15 * * * *", "2000-06-15 12:45"),
        ("5/20 * * * *", "2000-06-15 12:45"),
        ("10-30/10 13 * * *", "2000-06-15 13:10"),
        ("0 9 ? * 1", "2000-06-19 09:00"),
        ("0 9 * * ?", "2000-06-16 09:00"),
        ("@hourly", "2000-06-15 13:00"),
        ("@daily", "2000-06-16 00:00"),
        ("@midnight", "2000-06-16 00:00"),
        ("@weekly", "2000-06-18 00:00"),
        ("@monthly", "2000-07-01 00:00"),
        ("@yearly", "2001-01-01 00:00"),
        ("@annually", "2001-01-01 00:00"),
        ("0 0 29 2 *", "2004-02-29 00:00"),
        ("0 0 31 2 *", "never"),
    ],
)
def test_the_next_hit(text, hit):
    assert next_of(text) == hit


@pytest.mark.parametrize(
    ("text", "hit"),
    [
        ("0 0 20 * 6", "2000-06-17 00:00"),  # both restrict: the 20th, or a Saturday
        ("0 0 20 * *", "2000-06-20 00:00"),
        ("0 0 * * 6", "2000-06-17 00:00"),
        ("0 0 */1 * 6", "2000-06-17 00:00"),
        ("0 0 */2 * 6", "2000-06-17 00:00"),  # a star with a step restricts: odd days, or Saturdays
        ("0 0 */2 * 5", "2000-06-16 00:00"),
        ("0 0 5,* * 6", "2000-06-17 00:00"),
    ],
)
def test_day_of_month_and_day_of_week(text, hit):
    """Either matches when both restrict, else both must; a star with a step above 1 restricts."""
    assert next_of(text) == hit


def test_a_hit_is_strictly_later():
    on_the_minute = datetime(2000, 6, 15, 12, 30, tzinfo=UTC)
    assert next_of("30 12 * * *", on_the_minute) == "2000-06-16 12:30"
    assert next_of("30 12 * * *", on_the_minute - timedelta(seconds=1)) == "2000-06-15 12:30"


def test_schedule_times_are_in_utc_in_every_time_zone():
    """Case 20."""
    elsewhere = datetime(2000, 6, 15, 0, 30, tzinfo=timezone(timedelta(hours=1)))
    assert next_of("@daily", elsewhere) == "2000-06-15 00:00"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("@wrongly", "unrecognized descriptor"),
        ("@every 1h", "unrecognized descriptor"),
        ("@dailyfoo", "unrecognized descriptor"),
        ("* * * *", "expected exactly 5 fields, found 4"),
        ("* * * * * *", "expected exactly 5 fields, found 6"),
        ("CRON_TZ=UTC 0 1 * * *", "found 6"),
        ("", "found 0"),
        ("60 * * * *", "minute: end of range (60) above maximum (59)"),
        ("0 24 * * *", "hour: end of range (24) above maximum (23)"),
        ("0 0 0 * *", "day of month: beginning of range (0) below minimum (1)"),
        ("0 0 * 13 *", "month: end of range (13) above maximum (12)"),
        ("0 0 * * 7", "day of week: end of range (7) above maximum (6)"),
        ("0 0 * * tue-mon", "day of week: beginning of range (2) beyond end of range (1)"),
        ("0 0 L * *", '"L" is not a number'),
        ("0 0 * * 1#2", '"1#2" is not a number'),
        ("*/0 * * * *", "step of range should be a positive number"),
        ("-1 * * * *", "is not a number"),
        ("1-2-3 * * * *", "is not a number"),
        ("1/2/3 * * * *", "is not a number"),
        ("\u0661 * * * *", "is not a number"),
        (", * * * *", "is empty"),
    ],
)  # fmt: skip
def test_invalid_fields_are_named(text, problem):
    """Cases 18 and 24."""
    with pytest.raises(BadInputError) as error:
        CronSchedule.parse(text)
    assert problem in str(error.value)
    assert f'schedule "{text}"' in str(error.value)


@given(
    st.text(alphabet="0123456789*/,-? @LW#SUNmon", max_size=24),
    st.integers(0, 30 * 366 * 86400),
)
@with_examples(100)
def test_any_text_is_read_or_refused(text, seconds):
    """Nothing but a schedule or an error naming the problem comes of any input."""
    try:
        schedule = CronSchedule.parse(text)
    except BadInputError:
        return
    at = NOON + timedelta(seconds=seconds)
    hit = schedule.next_after(at)
    assert hit is None or hit > at
