"""Counts free addresses of subnets, less those that open launches will use.

A cloud counts an address as used when an instance has it; until the subnets are read again,
launched instances are counted here. The counts are IPv4 addresses. The caller estimates how many
addresses a launch will use (the pods of its smallest instance type, if each pod has one). Addresses
that a launch did not use are released, unless the cloud has been read meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import timedelta

    from karpenter_core.clock import Clock
    from karpenter_core.provider.catalogue import InstanceType

__all__ = [
    "AddressHold",
    "SubnetAddresses",
    "ZonalSubnet",
    "choose_subnets",
    "least_addresses_by_zone",
]


class ZonalSubnet(Protocol):
    """The fields of a subnet that this module needs."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def zone(self) -> str:
        """The zone of the subnet."""
        ...


S = TypeVar("S", bound=ZonalSubnet)


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressHold(Generic[S]):
    """The subnets that a launch may use, one for each zone, and the addresses reserved for it."""

    subnets: Mapping[str, S]
    """By zone."""
    addresses_each: Mapping[str, int]
    """By subnet id: the estimated number of addresses of one instance."""
    instances: int
    readings: Mapping[str, int] = field(default_factory=dict[str, int])
    """By subnet id: the reading that the estimate is based on."""


def least_addresses_by_zone(
    instance_types: Iterable[InstanceType],
    capacity_type: str,
    addresses_of: Callable[[InstanceType], int],
) -> dict[str, int]:
    """Return by zone the least number of addresses that an instance of an available type uses.

    A launch is assumed to use that many addresses at least. Only available offerings of the capacity
    type count.
    """
    least: dict[str, int] = {}
    for instance_type in instance_types:
        addresses = addresses_of(instance_type)
        for offering in instance_type.offerings:
            if offering.available and offering.capacity_type == capacity_type:
                zone = offering.zone
                least[zone] = min(least.get(zone, addresses), addresses)
    return least


def choose_subnets(
    subnets: Iterable[S], *, free: Mapping[str, int], expected: Mapping[str, int]
) -> dict[str, S]:
    """Return for each zone the subnet with most addresses; the first of equals.

    `free` is the free addresses of a subnet as last read (unknown is zero), `expected` the number
    that open launches will leave.
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
    """Number of addresses reserved for launches whose use is not known yet."""

    @property
    def left(self) -> int:
        return self.free if self.expected is None else self.expected


@final
class SubnetAddresses:
    """The free addresses of subnets; callable from any thread.

    A count is used for `ttl`; afterwards the subnet is unknown.
    """

    def __init__(self, clock: Clock, ttl: timedelta) -> None:
        self._clock: Final = clock
        self._ttl_seconds: Final = ttl.total_seconds()
        self._lock: Final = Lock()
        self._counts: Final[dict[str, _AddressCount]] = {}
        self._reading = 0

    def record(self, free: Mapping[str, int]) -> None:
        """Record the counts that the cloud returned, and drop the estimates for these subnets."""
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
        """Choose one subnet for each zone and reserve addresses for a launch.

        `addresses_each` is the estimated number of addresses of one instance, by zone; a zone that
        is not named uses none. With `skips_short`, a subnet with fewer free addresses than one
        instance uses is not chosen, and a zone without another subnet is left out. With
        `ignores_under_way`, addresses reserved for other launches count as free: each launch
        reserves addresses in all its zones, and will use those of one.
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
        """Release addresses that a launch did not use; `launched` is its instances by subnet id."""
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
        """Record that the cloud reported no free address in a subnet."""
        self.record({subnet_id: 0})

    def is_short(self, subnet_id: str, addresses: int) -> bool:
        """Return whether a subnet is known to have fewer addresses, even without open launches."""
        now = self._clock.monotonic()
        with self._lock:
            account = self._fresh(subnet_id, now)
            return account is not None and account.left + account.under_way < addresses

    def expected(self, subnet_id: str) -> int:
        """Return the number of addresses left to new launches; zero if unknown."""
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
