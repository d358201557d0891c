"""Computes what a request takes of a device that several requests may share.

Rules of KEP-5075 (consumable capacity): a request is rounded up by the capacity's policy; without
a request the policy's default is taken, or all of the capacity without a policy.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING

from karpenter_core.api.devices import qualified_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.devices import Device, DeviceCapacity

__all__ = ["consumed_capacity"]


def consumed_capacity(
    device: Device, requested: Iterable[tuple[str, Decimal]], driver: str
) -> tuple[tuple[str, Decimal], ...] | None:
    """Return the amounts of each capacity that a request takes, by qualified name.

    None if the device lacks a requested capacity, has too little of it, or its policy forbids the
    amount. A device that is not shared is taken whole; the amounts are checked all the same.
    """
    amounts = {qualified_name(name, driver): amount for name, amount in requested}
    if amounts.keys() - {capacity.name for capacity in device.capacity}:
        return None
    consumed: list[tuple[str, Decimal]] = []
    for capacity in device.capacity:
        amount = _consumed(capacity, amounts.get(capacity.name))
        if amount is None or amount > capacity.value:
            return None
        consumed.append((capacity.name, amount))
    return tuple(consumed)


def _consumed(capacity: DeviceCapacity, requested: Decimal | None) -> Decimal | None:
    if requested is None:
        if capacity.default is None:
            return capacity.value
        requested = capacity.default
    if capacity.valid_values:
        return min((value for value in capacity.valid_values if value >= requested), default=None)
    if capacity.minimum is None:
        return requested
    amount = max(requested, capacity.minimum)
    if capacity.step:
        steps = ((amount - capacity.minimum) / capacity.step).to_integral_value(ROUND_CEILING)
        amount = capacity.minimum + steps * capacity.step
    if capacity.maximum is not None and amount > capacity.maximum:
        return None
    return amount
