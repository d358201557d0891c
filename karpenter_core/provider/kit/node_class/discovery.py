"""Turns the resources that selector terms find into parts of a resolution.

Terms are alternatives; all fields of one term must match. A reader turns terms into queries, and names
the terms without a match.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

from karpenter_core.provider.kit.node_class.parts import (
    RETRY_SOON,
    RETRY_USUAL,
    absent_terms_message,
    condition_met,
    condition_unmet,
)
from karpenter_core.provider.kit.ttl_cache import TtlCache

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.api.base import Model
    from karpenter_core.clock import Clock
    from karpenter_core.provider.kit.node_class.parts import ResolutionPart

__all__ = [
    "ANY_VALUE",
    "DiscoveryReader",
    "DiscoveryResult",
    "QueryTerm",
    "absent_terms",
    "found_part",
    "reservations_part",
    "tag_text",
    "unique_by_id",
]

ANY_VALUE: Final = "*"
"""A tag's value in a selector term: the key exists, with any value."""
_SHORTEST_RETRY: Final = timedelta(seconds=1)

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class QueryTerm:
    """The part of a query for one selector term, and the term's name in conditions."""

    text: str
    pattern: str = ""
    """An id, or a name with the wildcards `*` and `?`; empty for a term that is the whole query."""

    def is_matched(self, keys: Collection[str]) -> bool:
        """Whether an answer that has resources with these ids and names has one for the term."""
        if not self.pattern:
            return bool(keys)
        if self.pattern in keys:
            return True
        pattern = _wildcard_pattern(self.pattern)
        return pattern is not None and any(map(pattern.fullmatch, keys))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryResult(Generic[T]):
    """The resources that terms found, in a fixed order, and the names of terms without a match."""

    items: tuple[T, ...]
    absent: tuple[str, ...] = ()


class IdentifiedResource(Protocol):
    """A resource that a query found."""

    @property
    def id(self) -> str:
        """Its id in the cloud."""
        ...


Resource = TypeVar("Resource", bound=IdentifiedResource)


class TermQuery(Protocol):
    """One call that looks for the resources of some selector terms."""

    @property
    def terms(self) -> Sequence[QueryTerm]:
        """The terms."""
        ...

    def __hash__(self) -> int:
        """Equal queries have equal answers."""
        ...


Q = TypeVar("Q", bound=TermQuery)


def absent_terms(
    queries: Iterable[TermQuery],
    answers: Iterable[Iterable[T]],
    *,
    keys: Callable[[T], Iterable[str]],
) -> tuple[str, ...]:
    """Return the names of the terms without a match, sorted.

    Each query has one answer; `keys` returns the ids and names by which a term may name a resource.
    """
    absent: set[str] = set()
    for query, answer in zip(queries, answers, strict=True):
        found_keys = {key for item in answer for key in keys(item)}
        absent |= {term.text for term in query.terms if not term.is_matched(found_keys)}
    return tuple(sorted(absent))


def unique_by_id(items: Iterable[Resource]) -> tuple[Resource, ...]:
    """Return each resource once, by id."""
    unique = {item.id: item for item in items}
    return tuple(unique[key] for key in sorted(unique))


def tag_text(tags: Mapping[str, str]) -> str:
    """Return tags as a condition shows them, sorted by key."""
    return "{" + ", ".join(f"{key}: {value}" for key, value in sorted(tags.items())) + "}"


@final
class DiscoveryReader(Generic[Q, T]):
    """Reads the resources of selector terms, and caches them; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        ttl: timedelta,
        *,
        describe: Callable[[Q], Iterable[T]],
        keys: Callable[[T], Iterable[str]],
        order: Callable[[Iterable[T]], tuple[T, ...]],
        caches_nothing: bool = True,
        observe: Callable[[Sequence[T]], None] = lambda _items: None,
    ) -> None:
        """`describe` sends one query, and raises CloudProviderError.

        `order` returns each resource once. Unless `caches_nothing`, a result without resources is not
        cached: they may be created at the same time. `observe` is called with what was read.
        """
        self._describe: Final = describe
        self._keys: Final = keys
        self._order: Final = order
        self._caches_nothing: Final = caches_nothing
        self._observe: Final = observe
        self._cache: Final[TtlCache[tuple[Q, ...], DiscoveryResult[T]]] = TtlCache(clock, ttl)

    def find(self, queries: tuple[Q, ...]) -> DiscoveryResult[T]:
        """Return what the queries find.

        Raises:
            CloudProviderError: the cloud refused or did not answer.
        """
        result = self._cache.get(queries)
        if result is None:
            answers = [tuple(self._describe(query)) for query in queries]
            result = DiscoveryResult(
                items=self._order(item for answer in answers for item in answer),
                absent=absent_terms(queries, answers, keys=self._keys),
            )
            self._observe(result.items)
            if result.items or self._caches_nothing:
                self._cache.put(queries, result)
        return result


def found_part(
    condition_type: str,
    found: DiscoveryResult[T],
    listed: Sequence[Model],
    *,
    field: str,
    status_field: str,
    reason: str,
    retry_after: timedelta = RETRY_USUAL,
    retry_absent_after: timedelta = RETRY_SOON,
) -> ResolutionPart:
    """Return the part for resources of which at least one is needed.

    `listed` are the items of `status_field`. `reason` is that of the condition if none is found.
    """
    status = {status_field: _json_items(listed)}
    message = absent_terms_message(found.absent)
    if found.items:
        return condition_met(condition_type, message, status=status, retry_after=retry_after)
    return condition_unmet(
        condition_type,
        reason,
        message or f"{field} has no term that matches anything",
        status=status,
        retry_after=retry_absent_after,
    )


class EndingReservation(Protocol):
    """A capacity reservation that may end."""

    @property
    def end_time(self) -> datetime | None:
        """Time of its end."""
        ...


R = TypeVar("R", bound=EndingReservation)


def reservations_part(
    condition_type: str, found: DiscoveryResult[R], listed: Sequence[Model], *, now: datetime
) -> ResolutionPart:
    """Return the part for capacity reservations, none of which is needed.

    They are read each minute, and when the first of them ends.
    """
    ends = (item.end_time - now for item in found.items if item.end_time is not None)
    is_wanted = bool(found.items or found.absent)
    return condition_met(
        condition_type,
        absent_terms_message(found.absent),
        status={"capacityReservations": _json_items(listed)},
        retry_after=max(min([RETRY_SOON, *ends]), _SHORTEST_RETRY) if is_wanted else RETRY_USUAL,
    )


def _json_items(items: Iterable[Model]) -> list[dict[str, object]]:
    return [item.model_dump(mode="json", exclude_none=True) for item in items]


def _wildcard_pattern(text: str) -> re.Pattern[str] | None:
    if not {"*", "?"} & set(text):
        return None
    pieces = {"*": ".*", "?": "."}
    return re.compile("".join(pieces.get(char) or re.escape(char) for char in text), re.DOTALL)
