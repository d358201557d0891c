"""Marks offerings sold out at a launch as unavailable for some minutes.

Most clouds report a lack of capacity only by refusing launches. A launch that succeeds may still
report types that were sold out and subnets without addresses, and a spot warning shows that a
capacity pool is being reclaimed. Such offerings are not chosen again for some time. A repeated mark
starts its time anew. Shortages that cover many offerings, such as a used-up quota, are marked as one
(`Shortage`): the marks need not name them, and hold for types that are listed later, too.

Every mark, and every expiry of one, raises the sequence numbers of the types concerned, so that
results computed from these marks are known to be outdated.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, final

from karpenter_core.provider.kit.shortages import Shortage

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime

__all__ = ["UNAVAILABLE_TTL", "UnavailableOffering", "UnavailableOfferings", "UnavailableSnapshot"]

UNAVAILABLE_TTL: Final = timedelta(minutes=3)

_Key = TypeVar("_Key", bound="UnavailableOffering | Shortage | str")


class UnavailableOffering(NamedTuple):
    """An offering that was sold out; with a placement group, inside that group only.

    A placement group places instances close together or apart; its name differs between clouds.

    A group's `partition` narrows it further; both are empty for launches outside of groups.
    """

    instance_type: str
    zone: str
    capacity_type: str
    placement_group: str = ""
    partition: str = ""
    subnet: str = ""
    """Sold out in this subnet only: it has too few addresses for this type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnavailableSnapshot:
    """The marks that hold at one instant; two with the same `revision` are equal."""

    revision: int = 0
    offerings: frozenset[UnavailableOffering] = frozenset()
    shortages: frozenset[Shortage] = frozenset()
    subnets: frozenset[str] = frozenset()
    sequences: Mapping[str, int]
    """By instance type: the number of changes of its own marks."""
    shared_sequence: int = 0
    """The number of changes of marks for shortages and subnets."""

    def sequence(self, instance_type: str) -> int:
        """Return a number that changes whenever the marks that concern a type change."""
        return self.sequences.get(instance_type, 0) + self.shared_sequence

    @property
    def is_empty(self) -> bool:
        """Return whether there are no marks."""
        return not (self.offerings or self.shortages or self.subnets)

    @property
    def capacity_types(self) -> frozenset[str]:
        """Return the capacity types that are unavailable altogether."""
        return frozenset(
            each.capacity_type
            for each in self.shortages
            if each == Shortage(capacity_type=each.capacity_type)
        )

    def is_unavailable(
        self,
        offering: UnavailableOffering,
        subnets: Collection[str] = (),
        *,
        group: str = "",
        cpu_milli: int = 0,
    ) -> bool:
        """Return whether an offering is unavailable.

        `group` and `cpu_milli` are those of the instance type, for shortages that cover some groups
        and sizes only.

        A launch into a placement group is subject to general marks, marks of the group and marks of
        its partition; a launch outside of groups only to general marks. A zone is unavailable if
        all its subnets are; this function does not decide which zones have a subnet.
        """
        if self.shortages and any(
            shortage.covers(
                capacity_type=offering.capacity_type,
                zone=offering.zone,
                group=group,
                cpu_milli=cpu_milli,
            )
            for shortage in self.shortages
        ):
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
    """Marks with their expiry; callable from any thread.

    With a `longest_life`, an offering that is sold out again within that time after its mark
    expired is marked for twice as long as before, up to that time; `delete` resets this. While a
    mark holds, further reports of open launches count as the same shortage.

    With `monotonic` (`context.clock.monotonic`), marks expire by that clock, independent of changes
    of the wall clock behind `now`.
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
        """The duration and the end of the last mark of an offering."""
        self._lock: Final = Lock()
        self._offerings: Final[dict[UnavailableOffering, datetime]] = {}
        self._shortages: Final[dict[Shortage, datetime]] = {}
        self._shortage_lives: Final[dict[Shortage, timedelta]] = {}
        """For how long each of `_shortages` was marked last."""
        self._subnets: Final[dict[str, datetime]] = {}
        self._sequences: Final[dict[str, int]] = {}
        self._shared_sequence = 0
        self._view = UnavailableSnapshot(sequences={})
        self._view_ends: datetime | None = None
        """Time of the first expiry in the view; None without marks."""

    def mark(
        self, *offerings: UnavailableOffering, now: datetime, life: timedelta | None = None
    ) -> None:
        """Mark offerings as sold out, by default for the `ttl` of these marks."""
        with self._lock:
            now = self._monotonic_now(now)
            self._sweep(now)
            for offering in offerings:
                end = now + (life or self._next_life(offering, now))
                self._offerings[offering] = end
                self._count(offering.instance_type)
            self._renew()

    def mark_shortages(
        self, *shortages: Shortage, now: datetime, life: timedelta | None = None
    ) -> None:
        """Mark all that these shortages cover as unavailable.

        A shortage of larger types renews the marks of smaller ones, for at most the time that they
        were marked for: a cause that lasts long for large types says nothing of small ones. A longer
        time alone is no change for the results that were computed from the marks.
        """
        with self._lock:
            now = self._monotonic_now(now)
            self._sweep(now)
            before = frozenset(self._shortages)
            for shortage in shortages:
                self._mark_shortage(shortage, now, life or self._life)
            if before == self._shortages.keys():
                self._view_ends = self._first_end()
            else:
                self._shared_sequence += 1
                self._renew()

    def _mark_shortage(self, shortage: Shortage, now: datetime, life: timedelta) -> None:
        """Mark one shortage; marks that another one covers in sizes and time are left out."""
        end, is_covered = now + life, False
        for other in [it for it in self._shortages if it.without_size() == shortage.without_size()]:
            other_end, other_life = self._shortages[other], self._shortage_lives[other]
            if other.least_cpu_milli < shortage.least_cpu_milli:
                renewed = max(other_end, now + min(life, other_life))
                self._shortages[other] = renewed
                is_covered = is_covered or renewed >= end
            elif other == shortage and other_end > end:
                is_covered = True
            elif other_end <= end:
                del self._shortages[other], self._shortage_lives[other]
        if not is_covered:
            self._shortages[shortage], self._shortage_lives[shortage] = end, life

    def mark_capacity_type(
        self, capacity_type: str, *, now: datetime, life: timedelta | None = None
    ) -> None:
        """Mark a capacity type as unavailable (a quota, or a missing role for spot)."""
        self.mark_shortages(Shortage(capacity_type=capacity_type), now=now, life=life)

    def mark_subnet(self, subnet_id: str, *, now: datetime, life: timedelta | None = None) -> None:
        """Mark a subnet as having no free addresses."""
        with self._lock:
            now = self._monotonic_now(now)
            self._sweep(now)
            self._subnets[subnet_id] = now + (life or self._life)
            self._shared_sequence += 1
            self._renew()

    def delete(self, offering: UnavailableOffering, *, now: datetime) -> None:
        """Remove a mark, because the offering was seen to be available."""
        with self._lock:
            now = self._monotonic_now(now)
            self._sweep(now)
            self._earlier.pop(offering, None)
            if self._offerings.pop(offering, None) is not None:
                self._count(offering.instance_type)
                self._renew()

    def flush(self) -> None:
        """Remove all marks."""
        with self._lock:
            for marks in (self._offerings, self._shortages, self._subnets, self._shortage_lives):
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

    def _count(self, instance_type: str) -> None:
        self._sequences[instance_type] = self._sequences.get(instance_type, 0) + 1

    def _sweep(self, now: datetime) -> None:
        """Drop expired marks; each expiry counts as a change."""
        if self._view_ends is None or now < self._view_ends:
            return
        for offering in _remove_expired(self._offerings, now):
            self._count(offering.instance_type)
        expired = _remove_expired(self._shortages, now)
        for shortage in expired:
            del self._shortage_lives[shortage]
        self._shared_sequence += len(expired)
        self._shared_sequence += len(_remove_expired(self._subnets, now))
        self._renew()

    def _first_end(self) -> datetime | None:
        ends = (*self._offerings.values(), *self._shortages.values(), *self._subnets.values())
        return min(ends, default=None)

    def _renew(self) -> None:
        self._view_ends = self._first_end()
        self._view = UnavailableSnapshot(
            revision=self._view.revision + 1,
            offerings=frozenset(self._offerings),
            shortages=frozenset(self._shortages),
            subnets=frozenset(self._subnets),
            sequences=dict(self._sequences),
            shared_sequence=self._shared_sequence,
        )


def _remove_expired(marks: dict[_Key, datetime], now: datetime) -> list[_Key]:
    """Remove the expired marks and return them."""
    ended = [key for key, end in marks.items() if end <= now]
    for key in ended:
        del marks[key]
    return ended
