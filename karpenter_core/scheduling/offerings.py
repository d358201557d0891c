"""Prices instance types, and selects those that a claim lists.

Works on `InstanceType`s one by one: for launches, disruption and providers. The solver computes
the same on columns. Ties of price are broken by name, so that every order here is total.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf, isfinite
from typing import TYPE_CHECKING

from karpenter_core.api.labels import CAPACITY_TYPES, PRICE_PER_HOUR, WELL_KNOWN
from karpenter_core.api.quantities import LARGEST_AMOUNT, UNITS_PER_ONE
from karpenter_core.scheduling.instance_types import allocatable
from karpenter_core.scheduling.resources import fits

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from karpenter_core.api.prices import Price
    from karpenter_core.api.records import Resources
    from karpenter_core.scheduling.instance_types import InstanceType, Offering
    from karpenter_core.scheduling.requirements import Requirements

__all__ = [
    "AllocatableGroup",
    "MinValuesResult",
    "allocatable_groups",
    "cheapest_offering",
    "cheapest_price",
    "compatible_instance_types",
    "compatible_offerings",
    "count_min_values",
    "highest_price_amount",
    "offering_price",
    "order_by_price",
    "price_amount",
    "worst_launch_price",
]


def compatible_offerings(
    instance_type: InstanceType,
    requirements: Requirements,
    *,
    well_known: Container[str] = WELL_KNOWN,
) -> tuple[Offering, ...]:
    """Return the available offerings that a claim's requirements allow, in the type's order."""
    return tuple(
        offering
        for offering in instance_type.offerings
        if offering.available
        and requirements.compatible(offering.requirements, allow_undefined=well_known)
    )


def cheapest_offering(
    instance_type: InstanceType,
    requirements: Requirements,
    *,
    well_known: Container[str] = WELL_KNOWN,
) -> Offering | None:
    """Return the cheapest available offering; ties go to zone, then capacity type."""
    return min(
        compatible_offerings(instance_type, requirements, well_known=well_known),
        key=lambda offering: (offering.price.amount, offering.zone, offering.capacity_type),
        default=None,
    )


def cheapest_price(
    instance_type: InstanceType,
    requirements: Requirements,
    *,
    well_known: Container[str] = WELL_KNOWN,
) -> float:
    """Return the lowest price of the type; infinite when no offering is available."""
    offering = cheapest_offering(instance_type, requirements, well_known=well_known)
    return inf if offering is None else offering.price.amount


def offering_price(instance_type: InstanceType, *, zone: str, capacity_type: str) -> float | None:
    """Return the price of one offering, available or not; None when there is none."""
    prices = [
        offering.price.amount
        for offering in instance_type.offerings
        if offering.zone == zone and offering.capacity_type == capacity_type
    ]
    return min(prices, default=None)


def worst_launch_price(
    instance_type: InstanceType,
    requirements: Requirements,
    *,
    well_known: Container[str] = WELL_KNOWN,
) -> float:
    """Return the highest price of a launch: over the offerings of the capacity type it gets.

    That is the first of reserved, spot and on-demand which has any; infinite without one.
    """
    dearest: dict[str, float] = {}
    for offering in compatible_offerings(instance_type, requirements, well_known=well_known):
        kind = offering.capacity_type
        dearest[kind] = max(dearest.get(kind, 0.0), offering.price.amount)
    return next((dearest[kind] for kind in CAPACITY_TYPES if kind in dearest), inf)


def price_amount(price: Price, rates: Mapping[str, float]) -> int:
    """Return a price per hour in millionths of the reporting currency, rounded up.

    `rates` are its units for one unit of each currency. A price that is unknown, or has no rate, is
    `LARGEST_AMOUNT`: within no limit.
    """
    rate = rates.get(price.currency)
    if rate is None or not isfinite(price.amount):
        return LARGEST_AMOUNT
    return ceil(round(price.amount * rate * UNITS_PER_ONE[PRICE_PER_HOUR], 3))


def highest_price_amount(
    instance_types: Iterable[InstanceType],
    requirements: Requirements,
    rates: Mapping[str, float],
    *,
    well_known: Container[str] = WELL_KNOWN,
) -> int:
    """Return the highest price that a node of some types may have, as `price_amount` does.

    Offerings out of stock count too, as they may be back by the time of the launch. Unknown if no
    offering meets the requirements.
    """
    return max(
        (
            price_amount(offering.price, rates)
            for it in instance_types
            for offering in it.offerings
            if requirements.compatible(offering.requirements, allow_undefined=well_known)
        ),
        default=LARGEST_AMOUNT,
    )


def order_by_price(
    instance_types: Iterable[InstanceType],
    requirements: Requirements,
    *,
    well_known: Container[str] = WELL_KNOWN,
) -> tuple[InstanceType, ...]:
    """Sort by the cheapest compatible offering, then by name; types without one come last."""
    return tuple(
        sorted(
            instance_types,
            key=lambda it: (cheapest_price(it, requirements, well_known=well_known), it.name),
        )
    )


def compatible_instance_types(
    instance_types: Iterable[InstanceType],
    requirements: Requirements,
    requests: Resources,
    *,
    well_known: Container[str] = WELL_KNOWN,
) -> tuple[InstanceType, ...]:
    """Keep the types that meet the requirements, hold the requests and are available."""
    return tuple(
        it
        for it in instance_types
        if it.requirements.intersects(requirements)
        and any(
            fits(requests, group.allocatable)
            and any(
                requirements.compatible(offering.requirements, allow_undefined=well_known)
                for offering in group.offerings
            )
            for group in allocatable_groups(it)
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AllocatableGroup:
    """The available offerings of a type with the same resources, and these resources."""

    offerings: tuple[Offering, ...]
    capacity: Resources
    allocatable: Resources


def allocatable_groups(instance_type: InstanceType) -> tuple[AllocatableGroup, ...]:
    """Group available offerings by their overrides; those without any always come first."""
    plain: list[Offering] = []
    overriding: list[tuple[Offering, list[Offering]]] = []
    for offering in instance_type.offerings:
        if not offering.available:
            continue
        if not offering.capacity_override and not offering.overhead_override:
            plain.append(offering)
            continue
        for first, members in overriding:
            if (
                first.capacity_override == offering.capacity_override
                and first.overhead_override == offering.overhead_override
            ):
                members.append(offering)
                break
        else:
            overriding.append((offering, [offering]))
    base = AllocatableGroup(
        offerings=tuple(plain),
        capacity=instance_type.capacity,
        allocatable=instance_type.allocatable(),
    )
    return (base, *(_overridden(instance_type, first, group) for first, group in overriding))


def _overridden(
    instance_type: InstanceType, first: Offering, members: Sequence[Offering]
) -> AllocatableGroup:
    capacity = {**instance_type.capacity, **(first.capacity_override or {})}
    overhead = {**instance_type.overhead.total(), **(first.overhead_override or {})}
    return AllocatableGroup(
        offerings=tuple(members),
        capacity=capacity,
        allocatable=allocatable(capacity, overhead),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MinValuesResult:
    """The extent to which a list of types satisfies `minValues`.

    `needed` is the length of the shortest prefix that does (all of it when it does not), `missing`
    the number of values reached for each label that asks for more.
    """

    needed: int
    missing: Mapping[str, int] = field(default_factory=dict[str, int])

    def __bool__(self) -> bool:
        return not self.missing

    def __str__(self) -> str:
        """Write the failure for people."""
        return (
            f"minValues requirement is not met for label(s) (label(s)=[{' '.join(self.missing)}])"
        )


def count_min_values(
    instance_types: Sequence[InstanceType], requirements: Requirements
) -> MinValuesResult:
    """Count the distinct values that a list of types offers for labels with `minValues`."""
    min_values_by_key = {
        r.key: r.min_values for r in requirements.values() if r.min_values is not None
    }
    if not min_values_by_key:
        return MinValuesResult(needed=0)
    seen: dict[str, set[str]] = {key: set() for key in sorted(min_values_by_key)}
    for number, instance_type in enumerate(instance_types, start=1):
        for key, values in seen.items():
            values.update(instance_type.requirements.get(key).values)
        if all(len(seen[key]) >= count for key, count in min_values_by_key.items()):
            return MinValuesResult(needed=number)
    missing = {
        key: len(values) for key, values in seen.items() if len(values) < min_values_by_key[key]
    }
    return MinValuesResult(needed=len(instance_types), missing=missing)
