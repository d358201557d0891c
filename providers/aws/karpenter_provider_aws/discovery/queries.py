"""Turns selector terms into queries, and names terms without a match.

Terms are alternatives; all fields of one term must match. A term with tags becomes a query of its
own; all terms with an id share one query, as do those with a name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from types_boto3_ec2.type_defs import FilterTypeDef

__all__ = [
    "DescribeFilter",
    "DiscoveryQuery",
    "DiscoveryResult",
    "QueryTerm",
    "absent_terms",
    "tag_filters",
    "tag_text",
]

ANY_VALUE: Final = "*"
"""A tag's value in a selector term: the key is there, whatever its value."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DescribeFilter:
    """A filter of a `Describe…` call; any of its values does."""

    name: str
    values: tuple[str, ...]

    def to_api(self) -> FilterTypeDef:
        """Return it as EC2 takes it."""
        return {"Name": self.name, "Values": list(self.values)}


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """The part of a query for one selector term, and the term's name in conditions."""

    text: str
    pattern: str = ""
    """An id, or a name with wildcards; empty for a term that is the whole query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryQuery:
    """One call, with as many pages as it takes."""

    filters: tuple[DescribeFilter, ...]
    owners: tuple[str, ...] = ()
    """Of images only: whose; any if empty."""
    terms: tuple[QueryTerm, ...]

    def filters_to_api(self) -> list[FilterTypeDef]:
        """Return the filters as EC2 takes them."""
        return [item.to_api() for item in self.filters]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryResult(Generic[T]):
    """The resources that terms found, sorted, and the names of terms without a match."""

    items: tuple[T, ...]
    absent: tuple[str, ...] = ()


def tag_filters(tags: Mapping[str, str]) -> tuple[DescribeFilter, ...]:
    """Return filters that all must hold, sorted by key; the value `*` asks for the key alone."""
    return tuple(
        DescribeFilter("tag-key", (key,))
        if value == ANY_VALUE
        else DescribeFilter(f"tag:{key}", (value,))
        for key, value in sorted(tags.items())
    )


def tag_text(tags: Mapping[str, str]) -> str:
    """Return tags as a condition shows them, sorted by key."""
    return "{" + ", ".join(f"{key}: {value}" for key, value in sorted(tags.items())) + "}"


def absent_terms(
    queries: Sequence[DiscoveryQuery],
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
        found_keys = {key for item in answer for key in keys(item)}
        absent.update(part.text for part in query.terms if not _is_matched(part, found_keys))
    return tuple(sorted(absent))


def _is_matched(part: QueryTerm, found_keys: set[str]) -> bool:
    if not part.pattern:
        return bool(found_keys)
    if part.pattern in found_keys:
        return True
    pattern = _pattern(part.pattern)
    return pattern is not None and any(map(pattern.fullmatch, found_keys))


def _pattern(text: str) -> re.Pattern[str] | None:
    """Return EC2's wildcards as a pattern; None for a text without any."""
    if not {"*", "?"} & set(text):
        return None
    pieces = {"*": ".*", "?": "."}
    return re.compile("".join(pieces.get(char) or re.escape(char) for char in text), re.DOTALL)
