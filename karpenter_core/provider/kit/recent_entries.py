"""Keeps entries that were used lately."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from datetime import datetime, timedelta

__all__ = ["RecentEntries"]

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")


@final
class RecentEntries(Generic[K, V]):
    """A map that drops unused entries; callable from any thread."""

    def __init__(self, *, most: int, idle_life: timedelta) -> None:
        """Keep `most` entries at the most, and none that was unused for `idle_life`."""
        self._most: Final = most
        self._idle_life: Final = idle_life
        self._lock: Final = Lock()
        self._entries: Final[OrderedDict[K, tuple[V, datetime]]] = OrderedDict()

    def get(self, key: K, *, now: datetime) -> V | None:
        """Use an entry; None if there is none."""
        with self._lock:
            return self._used(key, now)

    def put(self, key: K, value: V, *, now: datetime) -> V:
        """Return the entry of a key, which is `value` unless another thread was first."""
        with self._lock:
            self._entries.setdefault(key, (value, now))
            return self._used(key, now) or value

    def latest(self, is_wanted: Callable[[V], bool]) -> V | None:
        """Return the wanted entry that was used last, without a use; None if there is none."""
        with self._lock:
            return next((it for it, _ in reversed(self._entries.values()) if is_wanted(it)), None)

    def _used(self, key: K, now: datetime) -> V | None:
        """Move an entry to the end, where the one used last is, and drop unused ones."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._entries[key] = (entry[0], now)
        for other, (_, used_at) in list(self._entries.items()):
            if len(self._entries) <= self._most and now - used_at < self._idle_life:
                break
            del self._entries[other]
        return None if entry is None else entry[0]
