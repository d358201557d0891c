"""Entries that nobody uses are dropped, and of two that are put for one key the first one stays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from karpenter_core.provider.kit.recent_entries import RecentEntries

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def entries() -> RecentEntries[str, str]:
    return RecentEntries(most=2, idle_life=timedelta(minutes=15))


def test_the_first_value_of_a_key_stays(entries: RecentEntries[str, str]) -> None:
    assert entries.put("a", "first", now=NOON) == "first"
    assert entries.put("a", "second", now=NOON) == "first"


def test_the_entry_that_was_not_used_for_longest_makes_room(
    entries: RecentEntries[str, str],
) -> None:
    entries.put("a", "A", now=NOON)
    entries.put("b", "B", now=NOON)
    assert entries.get("a", now=NOON) == "A"
    entries.put("c", "C", now=NOON)
    assert entries.get("b", now=NOON) is None
    assert entries.get("a", now=NOON) == "A"


def test_an_idle_entry_is_dropped_by_the_use_of_another_one(
    entries: RecentEntries[str, str],
) -> None:
    entries.put("a", "A", now=NOON)
    entries.put("b", "B", now=NOON + timedelta(minutes=15))
    assert entries.latest(lambda each: each == "A") is None
    assert entries.latest(lambda each: each == "B") == "B"


def test_the_last_used_matching_entry_is_returned(entries: RecentEntries[str, str]) -> None:
    entries.put("a", "x1", now=NOON)
    entries.put("b", "x2", now=NOON)
    entries.get("a", now=NOON)
    assert entries.latest(lambda each: each.startswith("x")) == "x1"
