"""Selector terms as queries, and which terms found nothing.

Terms are alternatives; the fields of one term hold together. A term with tags becomes a query of its
own; all terms that name an id share one, as do those that give a name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from types_boto3_ec2.type_defs import FilterTypeDef

__all__ = ["Filter", "Found", "Part", "Query", "absent_parts", "tag_filters", "tag_text"]

ANY_VALUE: Final = "*"
"""A tag's value in a selector term: the key is there, whatever its value."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of a `Describe…` call; any of its values does."""

    name: str
    values: tuple[str, ...]

    def to_api(self) -> FilterTypeDef:
        """Return it as EC2 takes it."""
        return {"Name": self.name, "Values": list(self.values)}


@dataclass(frozen=True, slots=True)
class Part:
    """What one selector term wants of a query, and how a condition names it."""

    text: str
    wanted: str = ""
    """An id, or a name with wildcards; empty for a term that is the whole query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One call, with as many pages as it takes."""

    filters: tuple[Filter, ...]
    owners: tuple[str, ...] = ()
    """Of images only: whose; any if empty."""
    parts: tuple[Part, ...]

    def filters_to_api(self) -> list[FilterTypeDef]:
        """Return the filters as EC2 takes them."""
        return [item.to_api() for item in self.filters]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Generic[T]):
    """What terms found, sorted, and how those are named that found nothing."""

    items: tuple[T, ...]
    absent: tuple[str, ...] = ()


def tag_filters(tags: Mapping[str, str]) -> tuple[Filter, ...]:
    """Return filters that all must hold, sorted by key; the value `*` asks for the key alone."""
    return tuple(
        Filter("tag-key", (key,)) if value == ANY_VALUE else Filter(f"tag:{key}", (value,))
        for key, value in sorted(tags.items())
    )


def tag_text(tags: Mapping[str, str]) -> str:
    """Return tags as a condition shows them, sorted by key."""
    return "{" + ", ".join(f"{key}: {value}" for key, value in sorted(tags.items())) + "}"


def absent_parts(
    queries: Sequence[Query],
    answers: Sequence[Sequence[T]],
    *,
    keys: Callable[[T], Iterable[str]],
) -> tuple[str, ...]:
    """Return how the terms are named that found nothing, sorted.

    `answers` are those of the queries, in their order; `keys` are the ids and names by which a term
    may have asked for an item.
    """
    absent: set[str] = set()
    for query, answer in zip(queries, answers, strict=True):
        known = {key for item in answer for key in keys(item)}
        absent.update(part.text for part in query.parts if not _is_met(part, known))
    return tuple(sorted(absent))


def _is_met(part: Part, known: set[str]) -> bool:
    if not part.wanted:
        return bool(known)
    if part.wanted in known:
        return True
    pattern = _pattern(part.wanted)
    return pattern is not None and any(map(pattern.fullmatch, known))


def _pattern(wanted: str) -> re.Pattern[str] | None:
    """Return EC2's wildcards as a pattern; None for a text without any."""
    if not {"*", "?"} & set(wanted):
        return None
    pieces = {"*": ".*", "?": "."}
    return re.compile("".join(pieces.get(char) or re.escape(char) for char in wanted), re.DOTALL)
