"""Moves instants, and table entries with instants, when the clock is set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from karpenter_core.state.tables import SnapshotTable

__all__ = ["ShiftableEntry", "shift_entries", "shift_time"]


class ShiftableEntry(Protocol):
    """An entry that holds instants."""

    def shifted(self, by: timedelta) -> Self:
        """Return the entry with its instants moved."""
        ...


Key = TypeVar("Key")
Entry = TypeVar("Entry", bound=ShiftableEntry)


def shift_entries(table: SnapshotTable[Key, Entry], by: timedelta) -> None:
    """Move the instants of every entry of a table."""
    for key, entry in tuple(table.items()):
        table.put(key, entry.shifted(by))


def shift_time(at: datetime, by: timedelta) -> datetime:
    """Return an instant moved, or unchanged where that would leave the calendar."""
    try:
        return at + by
    except OverflowError:
        return at
