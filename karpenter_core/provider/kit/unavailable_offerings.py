"""Marks offerings that launches found sold out as unavailable for some minutes.

Clouds tell of stock mostly by refusing. A launch that succeeds may still report types that were sold
out and subnets that ran out of addresses, and a spot warning says that a pool is being drained; whatever
is learned in this way is kept from being chosen again at once. A mark that is made again lasts anew.

Every mark, and every end of one, raises the sequence numbers of the types concerned, so that what was
built from these marks is known to be outdated.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime

__all__ = ["UNAVAILABLE_TTL", "UnavailableOffering", "UnavailableOfferings", "UnavailableSnapshot"]

UNAVAILABLE_TTL: Final = timedelta(minutes=3)

_Key = TypeVar("_Key", bound="UnavailableOffering | str")


class UnavailableOffering(NamedTuple):
    """One thing that was sold out; with a placement group, inside that group only.

    A placement group is what keeps machines close or apart, whatever the cloud calls it.

    A group's `partition` narrows it further; both are empty for launches outside of groups.
    """

    instance_type: str
    zone: str
    capacity_type: str
    placement_group: str = ""
    partition: str = ""
    subnet: str = ""
    """Sold out in this subnet alone: it has too few addresses for this type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnavailableSnapshot:
    """The marks that hold at one instant; two with one `revision` are equal."""

    revision: int = 0
    offerings: frozenset[UnavailableOffering] = frozenset()
    capacity_types: frozenset[str] = frozenset()
    subnets: frozenset[str] = frozenset()
    sequences: Mapping[str, int]
    """By instance type, how often marks of its own came or went."""
    shared_sequence: int = 0
    """How often marks of capacity types and subnets did."""

    def sequence(self, instance_type: str) -> int:
        """Return a number that differs whenever the marks that concern a type do."""
        return self.sequences.get(instance_type, 0) + self.shared_sequence

    @property
    def is_empty(self) -> bool:
        """Whether nothing is short."""
        return not (self.offerings or self.capacity_types or self.subnets)

    def is_unavailable(self, offering: UnavailableOffering, subnets: Collection[str] = ()) -> bool:
        """Whether an offering cannot be had.

        A launch into a placement group meets the general shortages, those of the group and those
        of its partition; one outside of groups only the general ones. A zone is closed when all its
        subnets are; which zones have a subnet at all is not decided here.
        """
        if offering.capacity_type in self.capacity_types:
            return True
        if self.offerings and any(mark in self.offerings for mark in _scopes(offering)):
            return True
        return bool(subnets) and all(
            subnet in self.subnets or offering._replace(subnet=subnet) in self.offerings
            for subnet in subnets
        )


def _scopes(offering: UnavailableOffering) -> set[UnavailableOffering]:
    return {
        offering._replace(placement_group="", partition=""),
        offering._replace(partition=""),
        offering,
    }


@final
class UnavailableOfferings:
    """Marks with their ends; callable from any thread.

    With a `longest_life` an offering that is sold out again, not later than that after its mark
    ended, is marked for twice as long as before, up to that; `delete` starts anew. While a mark holds,
    it is the same shortage, which several launches find that are under way together.

    With `monotonic` (`context.clock.monotonic`) marks last by that clock, whatever happens to the
    wall clock that `now` is taken from.
    """

    def __init__(
        self,
        life: timedelta = UNAVAILABLE_TTL,
        *,
        longest_life: timedelta | None = None,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        self._monotonic: Final = monotonic
        self._began: tuple[datetime, float] | None = None
        self._life: Final = life
        self._longest_life: Final = longest_life
        self._earlier: Final[dict[UnavailableOffering, tuple[timedelta, datetime]]] = {}
        """How long the last mark of an offering was to last, and until when."""
        self._lock: Final = Lock()
        self._offerings: Final[dict[UnavailableOffering, datetime]] = {}
        self._capacity_types: Final[dict[str, datetime]] = {}
        self._subnets: Final[dict[str, datetime]] = {}
        self._sequences: Final[dict[str, int]] = {}
        self._shared_sequence = 0
        self._view = UnavailableSnapshot(sequences={})
        self._view_ends: datetime | None = None
        """When the first mark of the view ends; None when it has no marks."""

    def mark(
        self, *offerings: UnavailableOffering, now: datetime, life: timedelta | None = None
    ) -> None:
        """Note that offerings were sold out, by default for the time of these marks."""
        with self._lock:
            now = self._monotonic_now(now)
            self._sweep(now)
            for offering in offerings:
                end = now + (life or self._next_life(offering, now))
                self._offerings[offering] = end
                self._count(offering.instance_type)
            self._renew()

    def mark_capacity_type(
        self, capacity_type: str, *, now: datetime, life: timedelta | None = None
    ) -> None:
        """Note that nothing of a capacity type can be had (a quota, or no role for spot, say)."""
        self._add_shared(self._capacity_types, capacity_type, life or self._life, now)

    def mark_subnet(self, subnet_id: str, *, now: datetime, life: timedelta | None = None) -> None:
        """Note that a subnet has no free addresses."""
        self._add_shared(self._subnets, subnet_id, life or self._life, now)

    def delete(self, offering: UnavailableOffering, *, now: datetime) -> None:
        """Forget a mark, because the offering was seen to be there."""
        with self._lock:
            now = self._monotonic_now(now)
            self._sweep(now)
            self._earlier.pop(offering, None)
            if self._offerings.pop(offering, None) is not None:
                self._count(offering.instance_type)
                self._renew()

    def flush(self) -> None:
        """Forget all marks."""
        with self._lock:
            for marks in (self._offerings, self._capacity_types, self._subnets):
                marks.clear()
            self._earlier.clear()
            self._shared_sequence += 1
            self._renew()

    def view(self, *, now: datetime) -> UnavailableSnapshot:
        """Return the marks that hold now."""
        with self._lock:
            self._sweep(self._monotonic_now(now))
            return self._view

    def _monotonic_now(self, now: datetime) -> datetime:
        """Return the time by the monotonic clock, counted from the first `now`."""
        if self._monotonic is None:
            return now
        seconds = self._monotonic()
        if self._began is None:
            self._began = now, seconds
        began, then = self._began
        return began + timedelta(seconds=seconds - then)

    def _next_life(self, offering: UnavailableOffering, now: datetime) -> timedelta:
        longest = self._longest_life
        if longest is None:
            return self._life
        for expired_key in [
            each for each, (_, end) in self._earlier.items() if now - end > longest
        ]:
            del self._earlier[expired_key]
        earlier = self._earlier.get(offering)
        if earlier is None:
            life = self._life
        else:
            before, end = earlier
            life = before if now < end else min(2 * before, longest)
        self._earlier[offering] = (life, now + life)
        return life

    def _add_shared(
        self, marks: dict[str, datetime], name: str, life: timedelta, now: datetime
    ) -> None:
        with self._lock:
            now = self._monotonic_now(now)
            self._sweep(now)
            marks[name] = now + life
            self._shared_sequence += 1
            self._renew()

    def _count(self, instance_type: str) -> None:
        self._sequences[instance_type] = self._sequences.get(instance_type, 0) + 1

    def _sweep(self, now: datetime) -> None:
        """Drop what has ended; each end counts as a change."""
        if self._view_ends is None or now < self._view_ends:
            return
        for offering in _remove_expired(self._offerings, now):
            self._count(offering.instance_type)
        for marks in (self._capacity_types, self._subnets):
            self._shared_sequence += len(_remove_expired(marks, now))
        self._renew()

    def _renew(self) -> None:
        ends = (
            *self._offerings.values(),
            *self._capacity_types.values(),
            *self._subnets.values(),
        )
        self._view_ends = min(ends, default=None)
        self._view = UnavailableSnapshot(
            revision=self._view.revision + 1,
            offerings=frozenset(self._offerings),
            capacity_types=frozenset(self._capacity_types),
            subnets=frozenset(self._subnets),
            sequences=dict(self._sequences),
            shared_sequence=self._shared_sequence,
        )


def _remove_expired(marks: dict[_Key, datetime], now: datetime) -> list[_Key]:
    """Take out the marks that have ended and return them."""
    ended = [key for key, end in marks.items() if end <= now]
    for key in ended:
        del marks[key]
    return ended
