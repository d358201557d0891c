"""Implements a dictionary whose snapshots stay as they are.

A cluster's pods are a hundred thousand entries, and a snapshot is taken after every few events:
copying the table each time would cost more than everything else. So a returned snapshot never
changes, and later changes go to a small second dictionary above it. A new snapshot copies only the
small one; when it has grown to a fixed share of the large one the two are merged, which spreads the
cost of a copy over as many writes.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from types import MappingProxyType
from typing import Final, Generic, Protocol, TypeVar, cast, final

__all__ = ["DroppableTable", "SnapshotTable", "drop_entries", "drop_everywhere"]

K = TypeVar("K")
V = TypeVar("V")

_SMALL: Final = 256
"""Tables up to this size are copied whole."""
_SHARE: Final = 32
"""A table is merged when more than one in so many entries is in the small dictionary."""


@final
class _RemovedEntry:
    """Marks an entry as removed."""


_GONE: Final = _RemovedEntry()


@final
class SnapshotTable(Generic[K, V]):
    """One table of the state; the result of `freeze` never changes.

    A table that nothing was written to is the same object in two snapshots.
    """

    __slots__ = ("_above", "_base", "_base_is_shared", "_length", "_view")

    def __init__(self) -> None:
        self._base: dict[K, V] = {}
        self._base_is_shared = False
        self._above: dict[K, V | _RemovedEntry] = {}
        self._length = 0
        self._view: Mapping[K, V] | None = None

    def freeze(self) -> Mapping[K, V]:
        """Return the table as it is now; later writes do not change the result."""
        if self._view is None:
            if len(self._above) > _SMALL + self._length // _SHARE or self._length <= _SMALL:
                self._merge()
            if self._above:
                self._view = _Overlay(self._base, self._above.copy(), self._length)
            else:
                self._view = MappingProxyType(self._base)
            self._base_is_shared = True
        return self._view

    def get(self, key: K) -> V | None:
        """Return the value of a key, None without one."""
        if key in self._above:
            value = self._above[key]
            return None if isinstance(value, _RemovedEntry) else value
        return self._base.get(key)

    def put(self, key: K, value: V) -> None:
        """Write one entry."""
        self._view = None
        if key not in self:
            self._length += 1
        if self._base_is_shared:
            self._above[key] = value
        else:
            self._base[key] = value

    def drop(self, key: K) -> V | None:
        """Remove an entry and return it."""
        value = self.get(key)
        if key not in self:
            return None
        self._view = None
        self._length -= 1
        if not self._base_is_shared:
            del self._base[key]
        elif key in self._base:
            self._above[key] = _GONE
        else:
            del self._above[key]
        return value

    def items(self) -> Iterator[tuple[K, V]]:
        """Iterate over keys and values."""
        return iter(self.freeze().items())

    def __contains__(self, key: K) -> bool:
        if key in self._above:
            return not isinstance(self._above[key], _RemovedEntry)
        return key in self._base

    def __len__(self) -> int:
        return self._length

    def _merge(self) -> None:
        if not self._above:
            return
        merged = self._base.copy() if self._base_is_shared else self._base
        for key, value in self._above.items():
            if isinstance(value, _RemovedEntry):
                merged.pop(key, None)
            else:
                merged[key] = value
        self._base, self._base_is_shared, self._above = merged, False, {}


@final
class _Overlay(Mapping[K, V]):
    """A large dictionary with a small one above it; neither ever changes."""

    __slots__ = ("_above", "_base", "_length")

    def __init__(self, base: dict[K, V], above: dict[K, V | _RemovedEntry], length: int) -> None:
        self._base = base
        self._above = above
        self._length = length

    def __getitem__(self, key: K) -> V:
        if key in self._above:
            value = self._above[key]
            if isinstance(value, _RemovedEntry):
                raise KeyError(key)
            return value
        return self._base[key]

    def __contains__(self, key: object) -> bool:
        if key in self._above:
            return not isinstance(self._above[cast("K", key)], _RemovedEntry)
        return key in self._base

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self.pairs())

    def values(self) -> ValuesView[V]:
        """Return a view of the values."""
        return _OverlayValues(self)

    def items(self) -> ItemsView[K, V]:
        """Return a view of keys and values."""
        return _OverlayItems(self)

    def pairs(self) -> Iterator[tuple[K, V]]:
        """Iterate over keys and values without looking each of them up."""
        above = self._above
        for key, value in self._base.items():
            if key not in above:
                yield key, value
        for key, newer in above.items():
            if not isinstance(newer, _RemovedEntry):
                yield key, newer


@final
class _OverlayValues(ValuesView[V], Generic[K, V]):
    __slots__ = ("_overlay",)

    def __init__(self, overlay: _Overlay[K, V]) -> None:
        super().__init__(overlay)
        self._overlay = overlay

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._overlay.pairs())


@final
class _OverlayItems(ItemsView[K, V]):
    __slots__ = ("_overlay",)

    def __init__(self, overlay: _Overlay[K, V]) -> None:
        super().__init__(overlay)
        self._overlay = overlay

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self._overlay.pairs()


class DroppableTable(Protocol):
    """A table with text keys."""

    def drop(self, key: str) -> object | None:
        """Remove an entry and return it."""
        ...


def drop_everywhere(key: str, *tables: DroppableTable) -> bool:
    """Drop a key from every one of the tables; tell whether one had it."""
    changed = False
    for table in tables:
        changed |= table.drop(key) is not None
    return changed


def drop_entries(table: SnapshotTable[K, V], is_past: Callable[[V], bool]) -> bool:
    """Drop the entries that are past; tell whether there were any."""
    past = [key for key, entry in table.items() if is_past(entry)]
    for key in past:
        table.drop(key)
    return bool(past)
