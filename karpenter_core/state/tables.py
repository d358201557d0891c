"""A dictionary that can be handed out as it is now and still be written to afterwards."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Table"]

K = TypeVar("K")
V = TypeVar("V")


@final
class Table(Generic[K, V]):
    """One table of the state, copied at the first write after it was frozen.

    A burst of events between two snapshots costs one copy of the tables it touches, and a table
    that nothing touched is the same object in both.
    """

    __slots__ = ("_items", "_view")

    def __init__(self) -> None:
        self._items: dict[K, V] = {}
        self._view: Mapping[K, V] | None = None

    def freeze(self) -> Mapping[K, V]:
        """Return the table as it is now; later writes do not show in what was returned."""
        if self._view is None:
            self._view = MappingProxyType(self._items)
        return self._view

    def get(self, key: K) -> V | None:
        """Return the value of a key, None without one."""
        return self._items.get(key)

    def put(self, key: K, value: V) -> None:
        """Write one entry."""
        self._own()[key] = value

    def drop(self, key: K) -> V | None:
        """Remove an entry and return it; a missing one costs no copy."""
        if key not in self._items:
            return None
        return self._own().pop(key)

    def clear(self) -> None:
        """Remove everything."""
        if self._items:
            self._items, self._view = {}, None

    def __contains__(self, key: K) -> bool:
        return key in self._items

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def values(self) -> Iterator[V]:
        """Iterate over the values."""
        return iter(self._items.values())

    def items(self) -> Iterator[tuple[K, V]]:
        """Iterate over keys and values."""
        return iter(self._items.items())

    def _own(self) -> dict[K, V]:
        if self._view is not None:
            self._items, self._view = dict(self._items), None
        return self._items
