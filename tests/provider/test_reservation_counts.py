"""Remaining capacity of reservations is counted (acceptance case 143 of AWS, first half)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.provider.kit.reservation_counts import ReservationCounts
from tests.properties import with_examples


class HandClock:
    """A clock that is moved by hand."""

    def __init__(self):
        self.passed = timedelta()

    def now(self):
        return datetime(2026, 3, 1, 12, tzinfo=UTC) + self.passed

    def monotonic(self):
        return 1000.0 + self.passed.total_seconds()

    def forward(self, **amount):
        self.passed += timedelta(**amount)


def test_launches_and_terminations_are_counted_between_two_readings():
    """Never below zero; another reservation's count is its own."""
    clock = HandClock()
    book = ReservationCounts(clock)
    book.record({"cr-1": 1, "cr-2": 5})
    clock.forward(seconds=1)

    book.note_launched("cr-1")
    book.note_launched("cr-1")
    assert (book.remaining("cr-1"), book.remaining("cr-2")) == (0, 5)
    book.note_terminated("cr-1")
    assert book.remaining("cr-1") == 1
    book.note_exhausted("cr-1", "cr-2", "cr-3")
    assert (book.remaining("cr-1"), book.remaining("cr-2"), book.remaining("cr-3")) == (0, 0, 0)


def test_a_launch_that_the_cloud_has_counted_is_not_counted_again():
    """One that came before the last reading."""
    clock = HandClock()
    book = ReservationCounts(clock)
    launched_at = clock.now()
    clock.forward(seconds=5)
    book.record({"cr-1": 4})

    book.note_launched("cr-1", launched_at=launched_at)

    assert book.remaining("cr-1") == 4


def test_a_count_is_forgotten_after_a_day_and_others_have_none():
    """Nothing known is nothing left."""
    clock = HandClock()
    book = ReservationCounts(clock)
    book.record({"cr-1": 4})
    for note in (book.note_launched, book.note_terminated):
        note("cr-2")
    assert book.remaining("cr-2") == 0
    clock.forward(hours=24)
    assert book.remaining("cr-1") == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["launched", "terminated", "exhausted"]), st.integers(0, 3))
    ),
    st.integers(0, 5),
)
@with_examples(100)
def test_counts_follow_events_and_are_never_negative(events, start):
    """For any sequence of events."""
    book = ReservationCounts(HandClock())
    book.record({"cr-0": start})
    left = start
    for event, number in events:
        getattr(book, f"note_{event}")(f"cr-{number}")
        if number == 0:
            left = {"launched": max(left - 1, 0), "terminated": left + 1, "exhausted": 0}[event]
        assert book.remaining("cr-0") == left
