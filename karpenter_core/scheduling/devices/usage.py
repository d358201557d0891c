"""Counts which devices, shared capacity and counters are in use.

Usage is kept in layers, since what is taken for a planned claim counts for that claim alone: a
lookup adds up the layers, a change touches one of them.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeAlias, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.api.devices import Device

__all__ = ["DeviceId", "UsageLayer", "UsageView"]

DeviceId: TypeAlias = tuple[str, str, str]
"""Driver, pool and name of a device."""

_Counter: TypeAlias = tuple[str, str, str, str]
_ZERO: Final = Decimal(0)


@final
class UsageLayer:
    """The devices, shared capacity and counters that some allocations use together."""

    __slots__ = ("consumed", "counters", "users")

    def __init__(self) -> None:
        self.users: Final = dict[DeviceId, int]()
        """Number of requests that have each device."""
        self.consumed: Final = dict[tuple[DeviceId, str], Decimal]()
        """Amounts of shared devices, by capacity."""
        self.counters: Final = dict[_Counter, Decimal]()
        """Amounts of counters, by driver, pool, counter set and counter."""

    def __bool__(self) -> bool:
        return bool(self.users)

    def take(
        self,
        device_id: DeviceId,
        device: Device | None,
        consumed: Iterable[tuple[str, Decimal]],
        *,
        counts: bool,
    ) -> None:
        """Add one request; `counts`: it is the first of its device, which takes its counters."""
        self.users[device_id] = self.users.get(device_id, 0) + 1
        for name, amount in consumed:
            key = (device_id, name)
            self.consumed[key] = self.consumed.get(key, _ZERO) + amount
        if counts and device is not None:
            self._count(device_id, device, 1)

    def give_back(self, device_id: DeviceId, consumed: Iterable[tuple[str, Decimal]]) -> None:
        """Remove one request; the counters of its device stay taken."""
        self.users[device_id] -= 1
        if not self.users[device_id]:
            del self.users[device_id]
        for name, amount in consumed:
            self.consumed[device_id, name] -= amount

    def free_counters(self, device_id: DeviceId, device: Device) -> None:
        """Give the counters of a device back, which no claim has any more."""
        self._count(device_id, device, -1)

    def _count(self, device_id: DeviceId, device: Device, sign: int) -> None:
        for use in device.counter_uses:
            for name, amount in use.counters:
                counter = (device_id[0], device_id[1], use.counter_set, name)
                self.counters[counter] = self.counters.get(counter, _ZERO) + sign * amount

    def raise_to(self, other: UsageLayer) -> None:
        """Make every amount at least that of another layer: what either of two may use."""
        for device_id, users in other.users.items():
            self.users[device_id] = max(self.users.get(device_id, 0), users)
        for key, amount in other.consumed.items():
            self.consumed[key] = max(self.consumed.get(key, _ZERO), amount)
        for counter, amount in other.counters.items():
            self.counters[counter] = max(self.counters.get(counter, _ZERO), amount)


@final
class UsageView:
    """The sum of several layers."""

    __slots__ = ("_layers",)

    def __init__(self, layers: Sequence[UsageLayer]) -> None:
        self._layers: Final = tuple(layers)

    def is_used(self, device_id: DeviceId) -> bool:
        """Tell whether some request has the device."""
        return any(device_id in layer.users for layer in self._layers)

    def consumed(self, device_id: DeviceId, name: str) -> Decimal:
        """Return how much of a capacity of a shared device is taken."""
        key = (device_id, name)
        return sum((layer.consumed.get(key, _ZERO) for layer in self._layers), _ZERO)

    def counted(self, driver: str, pool: str, counter_set: str, name: str) -> Decimal:
        """Return how much of a counter is taken."""
        key = (driver, pool, counter_set, name)
        return sum((layer.counters.get(key, _ZERO) for layer in self._layers), _ZERO)
