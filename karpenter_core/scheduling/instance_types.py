"""Defines instance types and their offerings.

Provider contract, `spec/scheduling.md` section 5. Immutable; amounts are in fixed units
(`api.records.Resources`), prices per hour.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CAPACITY_TYPE, ZONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.devices import InstanceDevices
    from karpenter_core.api.prices import Price
    from karpenter_core.api.records import Resources
    from karpenter_core.scheduling.requirements import Requirements

__all__ = ["OVERLAY_SOURCE", "InstanceType", "Offering", "Overhead", "allocatable"]

OVERLAY_SOURCE: Final = "NodeOverlay"
"""Name of the kind of overlays in `Offering.price_source`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Resources of a node that pods cannot use."""

    kube_reserved: Resources = field(default_factory=dict[str, int])
    system_reserved: Resources = field(default_factory=dict[str, int])
    eviction_threshold: Resources = field(default_factory=dict[str, int])

    def total(self) -> dict[str, int]:
        """Return the sum of the three."""
        total: dict[str, int] = {}
        for part in (self.kube_reserved, self.system_reserved, self.eviction_threshold):
            for name, amount in part.items():
                total[name] = total.get(name, 0) + amount
        return total


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Offering:
    """One way to buy an instance type.

    `requirements` always has zone and capacity type, each with one value. `reservation_capacity`
    is the number of instances left in a reservation (reserved offerings only).
    """

    requirements: Requirements
    price: Price
    available: bool = True
    reservation_capacity: int = 0
    interruption_risk: float = 0.0
    """Probability of an interruption within an hour, as a risk plug-in rates it."""
    capacity_override: Resources | None = None
    overhead_override: Resources | None = None
    uncommitted_price: Price | None = None
    """The price without commitments, in plans that lower `price` by one; limits of money count it."""
    list_price: Price | None = None
    """The price as the provider listed it, if plug-ins or overlays have changed `price`."""
    price_source: str = ""
    """Source of the changed price: `plug-in "NAME"`, `NodeOverlay "NAME"`, several separated by commas."""

    @property
    def is_overlaid(self) -> bool:
        """Whether a NodeOverlay changed the price."""
        return OVERLAY_SOURCE in self.price_source

    @property
    def zone(self) -> str:
        """The offering's zone, empty when it has none."""
        return self.requirements.single_value(ZONE)

    @property
    def capacity_type(self) -> str:
        """The offering's capacity type, empty when it has none."""
        return self.requirements.single_value(CAPACITY_TYPE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InstanceType:
    """An instance type: its labels, its resources, and its offerings.

    `requirements` defines every well-known label, possibly as DoesNotExist or with many values.
    Types without an available offering are listed too.
    """

    name: str
    requirements: Requirements
    offerings: tuple[Offering, ...]
    capacity: Resources
    overhead: Overhead = field(default_factory=Overhead)
    overlaid_resources: frozenset[str] = frozenset()
    """Names of the resources in `capacity` that NodeOverlays have set."""
    devices: InstanceDevices | None = None
    """The devices that drivers will publish on its nodes, for ResourceClaims; None: no devices."""

    def allocatable(self) -> dict[str, int]:
        """Return what pods and daemons may use: capacity less overhead and huge pages."""
        return allocatable(self.capacity, self.overhead.total())


def allocatable(capacity: Resources, overhead: Mapping[str, int]) -> dict[str, int]:
    """Subtract overhead, and huge pages from memory (never below zero; spec 4.3)."""
    result = {name: amount - overhead.get(name, 0) for name, amount in capacity.items()}
    huge = sum(amount for name, amount in capacity.items() if name.startswith("hugepages-"))
    if huge:
        result["memory"] = max(result.get("memory", 0) - huge, 0)
    return result
