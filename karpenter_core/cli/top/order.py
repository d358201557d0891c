"""Sorts and filters the rows of `karpenter top`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CPU, MEMORY, PODS
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from karpenter_core.cli.top.view import NodeRow, PendingPod

__all__ = [
    "Column", "Sorting", "check_filter", "filter_nodes", "filter_pending", "parse_selector", "parse_sorting",
    "sort_nodes",
]  # fmt: skip

_FIELDS: Final[dict[str, Callable[[NodeRow], str]]] = {
    "pool": lambda row: row.pool,
    "type": lambda row: row.instance_type,
    "zone": lambda row: row.zone,
    "capacity": lambda row: row.capacity_type,
    "state": lambda row: row.state.value,
}
"""Fields that a filter can name."""
_NUMBERS: Final = re.compile(r"(\d+)")


class Column(StrEnum):
    """Columns by which nodes can be sorted."""

    NAME = "name"
    POOL = "pool"
    TYPE = "type"
    ZONE = "zone"
    CAPACITY = "capacity"
    STATE = "state"
    AGE = "age"
    CPU = "cpu"
    MEMORY = "memory"
    PODS = "pods"
    PRICE = "price"


@dataclass(frozen=True, slots=True)
class Sorting:
    """A column, and its direction."""

    column: Column = Column.NAME
    descending: bool = False

    def __str__(self) -> str:
        """Write it as the option `--sort` takes it."""
        return f"{self.column}={'dsc' if self.descending else 'asc'}"

    def next(self) -> Sorting:
        """Return the sorting by the next column."""
        columns = list(Column)
        following = columns[(columns.index(self.column) + 1) % len(columns)]
        return Sorting(following, following in _LARGEST_FIRST)

    def reversed(self) -> Sorting:
        """Return the same column in the other direction."""
        return Sorting(self.column, not self.descending)


_LARGEST_FIRST: Final = frozenset({Column.CPU, Column.MEMORY, Column.PODS, Column.PRICE})
"""Columns whose largest values come first unless the direction is given."""


def parse_sorting(text: str) -> Sorting:
    """Read `COLUMN`, `COLUMN=asc` or `COLUMN=dsc`.

    Raises:
        BadInputError: there is no such column or direction.
    """
    name, separator, direction = text.partition("=")
    if name not in set(Column):
        raise BadInputError(f'--sort: no column "{name}"; columns: {", ".join(Column)}')
    column = Column(name)
    if not separator:
        return Sorting(column, column in _LARGEST_FIRST)
    if direction not in {"asc", "dsc"}:
        raise BadInputError(
            f'--sort: "{direction}" is no direction; write {name}=asc or {name}=dsc'
        )
    return Sorting(column, direction == "dsc")


def parse_selector(text: str) -> dict[str, str]:
    """Read labels as `key=value,key=value`.

    Raises:
        BadInputError: a part has no value.
    """
    labels: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, separator, value = part.partition("=")
        if not separator or not key:
            raise BadInputError(f'--node-selector: "{part}" is not KEY=VALUE')
        labels[key] = value.removeprefix("=")
    return labels


def check_filter(text: str) -> None:
    """Refuse a word with a field that nodes do not have: nothing would ever match it.

    Raises:
        BadInputError: there is no such field.
    """
    for word in text.casefold().split():
        name, separator, _ = word.partition(":")
        if separator and name not in _FIELDS:
            raise BadInputError(f'--filter: no field "{name}"; fields: {", ".join(_FIELDS)}')


def sort_nodes(rows: Iterable[NodeRow], sorting: Sorting) -> list[NodeRow]:
    """Return the rows in order; ties and unknown values by name, unknown values last."""
    ordered = sorted(rows, key=lambda row: (_natural(row.name), row.name))
    values = [(row, _value(row, sorting.column)) for row in ordered]
    known = [(row, value) for row, value in values if value is not None]
    known.sort(key=lambda pair: pair[1], reverse=sorting.descending)
    return [row for row, _ in known] + [row for row, value in values if value is None]


def _value(row: NodeRow, column: Column) -> tuple[object, ...] | None:
    """Return a sort key; None if the row has no value."""
    match column:
        case Column.NAME:
            return _natural(row.name)
        case Column.AGE:
            return None if row.age_seconds is None else (row.age_seconds,)
        case Column.PRICE:
            return None if row.price_per_hour is None else (row.price_per_hour,)
        case Column.CPU:
            return (row.use_of(CPU).share,)
        case Column.MEMORY:
            return (row.use_of(MEMORY).share,)
        case Column.PODS:
            return (row.use_of(PODS).requested,)
        case Column.POOL | Column.TYPE | Column.ZONE | Column.CAPACITY | Column.STATE:
            return _natural(_FIELDS[column.value](row)) or None


def _natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that sorts node-9 before node-10."""
    return tuple(
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in _NUMBERS.split(text)
        if part
    )


def filter_nodes(rows: Iterable[NodeRow], text: str) -> list[NodeRow]:
    """Return the rows that match every word of a filter.

    A word `pool:NAME`, `type:`, `zone:`, `capacity:` or `state:` is compared with that field, any
    other word is searched for in all of them and in the name; upper and lower case are equal.
    """
    words = text.casefold().split()
    return [row for row in rows if all(_matches(row, word) for word in words)]


def _matches(row: NodeRow, word: str) -> bool:
    name, separator, value = word.partition(":")
    if separator and name in _FIELDS:
        return value in _FIELDS[name](row).casefold()
    texts = (row.name, *(field(row) for field in _FIELDS.values()))
    return any(word in text.casefold() for text in texts)


def filter_pending(pods: Iterable[PendingPod], text: str) -> list[PendingPod]:
    """Return the pods with every word of a filter in their name, state or reason."""
    words = text.casefold().split()
    return [
        pod
        for pod in pods
        if all(word in f"{pod.key} {pod.state} {pod.message}".casefold() for word in words)
    ]
