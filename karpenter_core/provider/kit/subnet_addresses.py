"""Counts free addresses of subnets, less those that launches under way will take.

A cloud counts an address when a machine has it; between a launch and the next look at the subnets,
what was launched is counted here. Numbers are of IPv4 addresses. How many a launch will take is a
guess by its caller (the pods of the smallest machine it may get, where each pod has one), and what a
launch did not take is given back, unless the cloud has been asked meanwhile and knows better.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import timedelta

    from karpenter_core.clock import Clock

__all__ = ["AddressHold", "SubnetAddresses", "ZonalSubnet", "choose_subnets"]


class ZonalSubnet(Protocol):
    """What is asked of a subnet."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def zone(self) -> str:
        """The one zone that it is in."""
        ...


S = TypeVar("S", bound=ZonalSubnet)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressHold(Generic[S]):
    """The subnets that a launch may use, one for each zone, and the addresses kept for it there."""

    subnets: Mapping[str, S]
    """By zone."""
    addresses_each: Mapping[str, int]
    """By subnet id: how many one instance is reckoned to take."""
    instances: int
    readings: Mapping[str, int] = field(default_factory=dict[str, int])
    """By subnet id: which look at the cloud it was reckoned from."""


def choose_subnets(
    subnets: Iterable[S], *, free: Mapping[str, int], expected: Mapping[str, int]
) -> dict[str, S]:
    """Return for each zone the subnet with most addresses; the first of equals.

    `free` is what the cloud said of a subnet (nothing known is none), `expected` what launches under
    way will leave of that, where there are any.
    """
    chosen: dict[str, S] = {}

    def left(subnet: S) -> int:
        return expected.get(subnet.id, free.get(subnet.id, 0))

    for subnet in subnets:
        best = chosen.get(subnet.zone)
        if best is None or left(subnet) > left(best):
            chosen[subnet.zone] = subnet
    return chosen


@dataclass(slots=True)
class _AddressCount:
    free: int
    read_at: float
    reading: int
    expected: int | None = None
    under_way: int = 0
    """How many are kept for launches of which nobody knows yet what they take."""

    @property
    def left(self) -> int:
        return self.free if self.expected is None else self.expected


@final
class SubnetAddresses:
    """What is known of subnets' addresses; callable from any thread.

    A count is believed for `ttl`; afterwards nothing is known of the subnet.
    """

    def __init__(self, clock: Clock, ttl: timedelta) -> None:
        self._clock: Final = clock
        self._ttl_seconds: Final = ttl.total_seconds()
        self._lock: Final = Lock()
        self._counts: Final[dict[str, _AddressCount]] = {}
        self._reading = 0

    def record(self, free: Mapping[str, int]) -> None:
        """Take down what the cloud just said; what was reckoned for these subnets is forgotten."""
        now = self._clock.monotonic()
        with self._lock:
            self._reading += 1
            for subnet_id, count in free.items():
                self._counts[subnet_id] = _AddressCount(
                    free=count, read_at=now, reading=self._reading
                )

    def hold(
        self,
        subnets: Sequence[S],
        *,
        addresses_each: Mapping[str, int],
        instances: int = 1,
        skips_short: bool = False,
        ignores_under_way: bool = False,
    ) -> AddressHold[S]:
        """Choose one subnet for each zone and keep addresses for a launch.

        `addresses_each` says by zone how many addresses one instance is reckoned to take; a zone
        that is not named takes none. With `skips_short` a subnet that is known to have fewer than
        one instance takes is none to choose from, and a zone without another one is left out. With
        `ignores_under_way` what is kept for other launches counts as there: each keeps addresses in
        all its zones, and will take those of one.
        """
        now = self._clock.monotonic()
        with self._lock:
            fresh = {s.id: self._fresh(s.id, now) for s in subnets}
            if skips_short:
                subnets = [
                    subnet
                    for subnet in subnets
                    if (account := fresh[subnet.id]) is None
                    or account.left + (account.under_way if ignores_under_way else 0)
                    >= max(addresses_each.get(subnet.zone, 0), 1)
                ]
            chosen = choose_subnets(
                subnets,
                free={key: account.free for key, account in fresh.items() if account},
                expected={
                    key: account.expected
                    for key, account in fresh.items()
                    if account and account.expected is not None
                },
            )
            each: dict[str, int] = {}
            readings: dict[str, int] = {}
            for zone, subnet in chosen.items():
                each[subnet.id] = addresses_each.get(zone, 0)
                account = fresh[subnet.id]
                if account is not None:
                    readings[subnet.id] = account.reading
                    held_addresses = each[subnet.id] * instances
                    account.expected = account.left - held_addresses
                    account.under_way += held_addresses
            return AddressHold(
                subnets=chosen, addresses_each=each, instances=instances, readings=readings
            )

    def release(self, hold: AddressHold[S], launched: Mapping[str, int]) -> None:
        """Give back what a launch did not take; `launched` counts its instances by subnet id."""
        with self._lock:
            for subnet_id, reading in hold.readings.items():
                account = self._counts.get(subnet_id)
                unused = hold.instances - launched.get(subnet_id, 0)
                if account is None or account.reading != reading or account.expected is None:
                    continue
                each = hold.addresses_each[subnet_id]
                account.expected += max(unused, 0) * each
                account.under_way -= hold.instances * each

    def record_exhausted(self, subnet_id: str) -> None:
        """Take down that the cloud found no free address in a subnet."""
        self.record({subnet_id: 0})

    def is_short(self, subnet_id: str, addresses: int) -> bool:
        """Whether a subnet is known to have fewer, even if no launch under way takes any."""
        now = self._clock.monotonic()
        with self._lock:
            account = self._fresh(subnet_id, now)
            return account is not None and account.left + account.under_way < addresses

    def expected(self, subnet_id: str) -> int:
        """Return how many addresses are left to new launches; none where nothing is known."""
        now = self._clock.monotonic()
        with self._lock:
            account = self._fresh(subnet_id, now)
            return 0 if account is None else account.left

    def _fresh(self, subnet_id: str, now: float) -> _AddressCount | None:
        account = self._counts.get(subnet_id)
        if account is None:
            return None
        if account.read_at + self._ttl_seconds <= now:
            del self._counts[subnet_id]
            return None
        return account
