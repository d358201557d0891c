"""Evaluates the constraints between the devices of a claim (`matchAttribute`).

The first device of a constraint fixes the value of the attribute. A device without the attribute
may still match by the attribute bindings of its instance type: such devices will have a common
value, which is known only on the running node. Values and bindings are never mixed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.devices import DeviceVersion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.devices import AttributeBinding, AttributeValue, DeviceConstraint
    from karpenter_core.scheduling.devices.pools import PlacedDevice
    from karpenter_core.scheduling.devices.requests import WantedDevices

__all__ = ["MatchedAttribute"]


@final
class MatchedAttribute:
    """One `matchAttribute` during a search; devices are added and removed in turn."""

    def __init__(self, constraint: DeviceConstraint, bindings: Sequence[AttributeBinding]) -> None:
        self._attribute: Final = constraint.match_attribute
        self._requests: Final = frozenset(constraint.requests)
        self._bindings: Final = frozenset(
            number
            for number, binding in enumerate(bindings)
            if binding.attribute == constraint.match_attribute and len(binding.devices) > 1
        )
        self._chosen: Final = list[tuple[object, frozenset[int]]]()
        """For each device its value (None: none), and the bindings that all until then share."""

    def add(self, wanted: WantedDevices, placed: PlacedDevice) -> bool:
        """Add a device, and tell whether it may be beside those that were added."""
        if not self._applies(wanted):
            return True
        value = self._value(placed)
        common = frozenset[int]() if value is not None else placed.bindings & self._bindings
        if self._chosen:
            first, shared = self._chosen[-1]
            if value is None:
                common &= shared
            elif first != value:
                return False
        if value is None and not common:
            return False
        self._chosen.append((value, common))
        return True

    def remove(self, wanted: WantedDevices) -> None:
        """Remove the device that was added last."""
        if self._applies(wanted):
            self._chosen.pop()

    def _applies(self, wanted: WantedDevices) -> bool:
        return (
            not self._requests
            or wanted.parent in self._requests
            or wanted.result_name in self._requests
        )

    def _value(self, placed: PlacedDevice) -> tuple[type, AttributeValue] | None:
        for name, value in placed.device.attributes:
            if name == self._attribute:
                if isinstance(value, DeviceVersion):
                    return DeviceVersion, value.text
                return type(value), value
        return None
