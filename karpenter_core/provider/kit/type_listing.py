"""Lists instance types; builds only those changed since the last answer.

Every NodePool requests a thousand types with several offerings each, every few minutes and on every
change. So the labels, capacity and overhead of a type are resolved once for all NodeClasses of one key,
and a type that shows no difference, offerings included, is the very object of the last answer.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar, final

from karpenter_core.provider.catalogue import InstanceType
from karpenter_core.provider.kit.recent_entries import RecentEntries

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping
    from datetime import datetime

    from karpenter_core.api.records import Resources
    from karpenter_core.provider.catalogue import Offering, Overhead, Requirements

__all__ = ["IDLE_LIFE", "MOST_ENTRIES", "ResolvedTypes", "TypeListing", "TypeListings"]

MOST_ENTRIES: Final = 32
"""So many NodeClasses that are resolved differently are kept, at some megabytes each."""
IDLE_LIFE: Final = timedelta(minutes=15)
"""NodePools ask every five minutes; an entry that is not asked for is of a NodeClass that has changed."""


class _Resolved(Protocol):
    """An instance type for one NodeClass, without its offerings."""

    @property
    def inputs(self) -> object: ...

    @property
    def requirements(self) -> Requirements: ...

    @property
    def capacity(self) -> Resources: ...

    @property
    def overhead(self) -> Overhead: ...


Inputs = TypeVar("Inputs")
Key = TypeVar("Key", bound="Hashable")
Resolver = TypeVar("Resolver")
Resolved = TypeVar("Resolved", bound=_Resolved)
Row = TypeVar("Row")


class ResolvedTypes(NamedTuple, Generic[Resolved]):
    """Resolved types by name, and a value that is equal only for equal ones."""

    basis: Hashable
    types: Mapping[str, Resolved]


class _ListedType(NamedTuple, Generic[Resolved]):
    """A type as last listed; `rows` are its offerings as values."""

    resolved: Resolved
    rows: object
    instance_type: InstanceType


class _Answer(NamedTuple, Generic[Resolved]):
    """All types as last listed, and the state of everything that they depend on."""

    state: Hashable
    listed: Mapping[str, _ListedType[Resolved]]
    types: tuple[InstanceType, ...]


@final
class TypeListing(Generic[Resolver, Resolved]):
    """The types of one key; what changes is replaced, so readers need no lock."""

    def __init__(
        self, resolver: Resolver, *, name: str, kin: TypeListing[Resolver, Resolved] | None = None
    ) -> None:
        """`name` is that of the NodeClass that asked first; `kin` lists its types as they were."""
        self.resolver: Final = resolver
        self.name: Final = name
        self._resolved: ResolvedTypes[Resolved] | None = None
        self._answer: _Answer[Resolved] | None = None
        before = None if kin is None else kin._answer  # noqa: SLF001 - of the same class
        self._before: Mapping[str, _ListedType[Resolved]] = {} if before is None else before.listed

    def resolved(
        self,
        basis: Hashable,
        inputs: Callable[[], Iterable[tuple[str, Inputs]]],
        resolve: Callable[[Inputs], Resolved],
    ) -> ResolvedTypes[Resolved]:
        """Return the types for these inputs by name; `basis` is equal only for equal inputs."""
        held = self._resolved
        if held is not None and held.basis == basis:
            return held
        before = dict[str, Resolved]() if held is None else held.types
        types: dict[str, Resolved] = {}
        for name, of in inputs():
            same = before.get(name)
            types[name] = same if same is not None and same.inputs == of else resolve(of)
        self._resolved = found = ResolvedTypes(basis, types)
        return found

    def listed(
        self,
        state: Hashable,
        types: Mapping[str, Resolved],
        rows_of: Callable[[Resolved], tuple[Row, ...]],
        offerings_of: Callable[[tuple[Row, ...]], tuple[Offering, ...]],
    ) -> tuple[InstanceType, ...]:
        """Return the instance types; the last answer itself if `state` is that of it.

        `rows_of` returns the offerings of a type as values, and `offerings_of` makes them of these.
        """
        answer = self._answer
        if answer is not None and answer.state == state:
            return answer.types
        before = self._before if answer is None else answer.listed
        listed: dict[str, _ListedType[Resolved]] = {}
        for name, item in types.items():
            rows, last = rows_of(item), before.get(name)
            if last is not None and last.rows == rows and _are_alike(last.resolved, item):
                listed[name] = last if last.resolved is item else last._replace(resolved=item)
            else:
                made = InstanceType(
                    name=name,
                    requirements=item.requirements,
                    offerings=offerings_of(rows),
                    capacity=item.capacity,
                    overhead=item.overhead,
                )
                listed[name] = _ListedType(item, rows, made)
        found = tuple(each.instance_type for each in listed.values())
        if answer is not None and list(map(id, found)) == list(map(id, answer.types)):
            found = answer.types
        self._answer, self._before = _Answer(state, listed, found), {}
        return found


def _are_alike(one: _Resolved, other: _Resolved) -> bool:
    """Whether a list shows both alike, when they have the same offerings."""
    return (
        one.requirements is other.requirements
        and one.capacity == other.capacity
        and one.overhead == other.overhead
    )


@final
class TypeListings(Generic[Key, Resolver, Resolved]):
    """The types of all NodeClasses of a region; callable from any thread."""

    def __init__(self) -> None:
        self._entries: Final[RecentEntries[Key, TypeListing[Resolver, Resolved]]] = RecentEntries(
            most=MOST_ENTRIES, idle_life=IDLE_LIFE
        )

    def of(
        self, key: Key, name: str, make: Callable[[], Resolver], *, now: datetime
    ) -> TypeListing[Resolver, Resolved]:
        """Return the listing of a key; `name` is that of the NodeClass that asks.

        `make` returns a resolver for all NodeClasses with the key.
        """
        found = self._entries.get(key, now=now)
        if found is not None:
            return found
        kin = self._entries.latest(lambda each: each.name == name)
        return self._entries.put(key, TypeListing(make(), name=name, kin=kin), now=now)
