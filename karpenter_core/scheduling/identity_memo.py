"""Keeps values computed from immutable objects, by object identity.

A pass reads thousands of nodes of which twenty have changed since the last one. The state replaces
an object when anything in it changes, so the same object has the same value.
"""

from __future__ import annotations

from itertools import compress, count
from operator import is_, is_not
from typing import TYPE_CHECKING, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["IdentityMemo", "are_same", "replaced_places"]

Item = TypeVar("Item")
Value = TypeVar("Value")


@final
class IdentityMemo(Generic[Item, Value]):
    """The values of the last sequence of objects, and these objects; no others are kept."""

    __slots__ = ("_equal", "_items", "_same", "_values", "changed")

    def __init__(self) -> None:
        self._items: tuple[Item, ...] = ()
        self._values: tuple[Value, ...] = ()
        self._same: tuple[object, ...] = ()
        self._equal: object = None
        self.changed: Sequence[int] | None = None
        """The places of objects that differ from those before; None: any may."""

    def values(
        self,
        items: Sequence[Item],
        compute: Callable[[Item], Value],
        *,
        same: tuple[object, ...] = (),
        equal: object = None,
    ) -> tuple[Value, ...]:
        """Return the value of every object, in their order; only new objects are computed.

        `compute` may also read `same`, which are immutable objects, and `equal`, which is compared
        by value: where one of these differs, everything is computed again. The result is the same
        tuple as before if every object is.
        """
        items = tuple(items)
        if not are_same(same, self._same) or equal != self._equal:
            values, self.changed = tuple(map(compute, items)), None
        elif len(items) == len(self._items):
            self.changed = changed = replaced_places(self._items, items)
            if not changed:
                return self._values
            values = self._replaced(items, changed, compute)
        else:
            values, self.changed = self._rearranged(items, compute), None
        self._items, self._values, self._same, self._equal = items, values, same, equal
        return values

    def missing(
        self, items: Sequence[Item], *, same: tuple[object, ...] = (), equal: object = None
    ) -> list[Item]:
        """Return the objects that `values` would compute."""
        if not are_same(same, self._same) or equal != self._equal:
            return list(items)
        if len(items) == len(self._items):
            moved = replaced_places(self._items, items)
            known = {id(self._items[place]) for place in moved}
            return [items[place] for place in moved if id(items[place]) not in known]
        known = set(map(id, self._items))
        return [item for item in items if id(item) not in known]

    def renew(self, places: Iterable[int], compute: Callable[[Item], Value]) -> tuple[Value, ...]:
        """Compute the objects at some places again, and return the values of all."""
        values = list(self._values)
        for place in places:
            values[place] = compute(self._items[place])
        self._values = tuple(values)
        return self._values

    def _replaced(
        self, items: tuple[Item, ...], changed: Sequence[int], compute: Callable[[Item], Value]
    ) -> tuple[Value, ...]:
        """Return the values with those of changed places; objects may only have moved."""
        known = {id(self._items[n]): self._values[n] for n in changed}
        values = list(self._values)
        for n in changed:
            key = id(items[n])
            values[n] = known[key] if key in known else compute(items[n])
        return tuple(values)

    def _rearranged(
        self, items: tuple[Item, ...], compute: Callable[[Item], Value]
    ) -> tuple[Value, ...]:
        """Return the values of another number of objects."""
        known = dict(zip(map(id, self._items), self._values, strict=True))
        return tuple([known[id(item)] if id(item) in known else compute(item) for item in items])


def replaced_places(before: Sequence[object], after: Sequence[object]) -> list[int]:
    """Return the places at which two sequences of one length hold different objects."""
    return list(compress(count(), map(is_not, before, after)))


def are_same(first: Sequence[object], second: Sequence[object]) -> bool:
    """Tell whether two sequences hold the same objects."""
    return len(first) == len(second) and all(map(is_, first, second))
