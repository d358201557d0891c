"""Turns selector terms into queries, and names terms without a match.

Terms are alternatives; all fields of one term must match. Each term is a query of its own, but
those with an id may share one where the API takes several.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "DiscoveryQuery",
    "DiscoveryResult",
    "IdentifiedResource",
    "absent_terms",
    "described",
    "tag_parameters",
]

ANY_VALUE: Final = "*"
"""A tag's value in a selector term: the key is there, whatever its value."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DiscoveryQuery:
    """The query of one or more terms, as parameters of a call, sorted by name."""

    parameters: tuple[tuple[str, object], ...]
    """Hashable: lists are tuples, tags are pairs."""
    terms: tuple[tuple[str, str], ...]
    """For each term how it is named, and the id that it wants; no id for one that is the query."""

    def to_api(self) -> dict[str, object]:
        """Return the parameters as a service takes them."""
        given = dict(self.parameters)
        tags = cast("tuple[tuple[tuple[str, str], ...], ...]", given.pop("Tag", ()))
        if tags:
            given["Tag"] = [dict(tag) for tag in tags]
        return given

    def absent(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Return how those terms are named that an answer with these ids has nothing for."""
        found_ids = set(ids)
        return tuple(
            name
            for name, pattern in self.terms
            if not found_ids or (pattern and pattern not in found_ids)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryResult(Generic[T]):
    """The resources that terms found, in a fixed order, and the names of terms without a match."""

    items: tuple[T, ...]
    absent: tuple[str, ...] = ()


class IdentifiedResource(Protocol):
    """Something that a query found."""

    @property
    def id(self) -> str:
        """Id of the resource in the cloud."""
        ...


def absent_terms(
    queries: Iterable[DiscoveryQuery], answers: Iterable[Iterable[IdentifiedResource]]
) -> tuple[str, ...]:
    """Return how those terms are named that found nothing; each query has one answer."""
    return tuple(
        name
        for query, answer in zip(queries, answers, strict=True)
        for name in query.absent(each.id for each in answer)
    )


def tag_parameters(tags: Mapping[str, str]) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return tags that must all be there, sorted by key; the value `*` asks for the key alone."""
    return tuple(
        (("Key", key),) if value == ANY_VALUE else (("Key", key), ("Value", value))
        for key, value in sorted(tags.items())
    )


def described(fields: Sequence[tuple[str, str | Mapping[str, str]]]) -> str:
    """Return what a term says, as a condition shows it; fields that it does not have are left out."""
    return ", ".join(f"{name} {_shown(value)}" for name, value in fields if value)


def _shown(value: str | Mapping[str, str]) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return "{" + ", ".join(f"{key}: {part}" for key, part in sorted(value.items())) + "}"
