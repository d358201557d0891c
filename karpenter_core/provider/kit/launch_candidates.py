"""Selects the instance types and available offerings that a claim allows.

Pure functions, for providers that choose among many offerings themselves. Results for the
requirements of one claim are shared by all claims with the same requirements, whatever resources
they request.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    CAPACITY_TYPES,
    ON_DEMAND,
    RESERVED,
    SPOT,
)
from karpenter_core.errors import OfferingKey
from karpenter_core.provider.catalogue import Overhead, compatible_offerings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from karpenter_core.api.records import Resources
    from karpenter_core.provider.catalogue import InstanceType, Offering, Requirements

__all__ = [
    "FEW_TYPES",
    "AllocatableOfferings",
    "CompatibleType",
    "LaunchCandidate",
    "allocatable_for",
    "allows_capacity_type",
    "capacity_type_of",
    "compatible_types",
    "fitting_candidates",
    "is_inflexible",
    "offering_key",
    "offering_keys",
    "offerings_in",
    "unmet_min_values",
    "with_fullest_reservations",
    "with_offerings",
    "without_exotic",
    "without_expensive_spot",
]

FEW_TYPES: Final = 5
"""Fewer types than this are few to choose spot capacity from."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchCandidate:
    """An instance type for a launch, with its possible offerings."""

    instance_type: InstanceType
    offerings: tuple[Offering, ...]

    @property
    def price(self) -> float:
        """The lowest price per hour."""
        return min(offering.price.amount for offering in self.offerings)

    def to_instance_type(self) -> InstanceType:
        """Return the type with this offering only."""
        return replace(self.instance_type, offerings=self.offerings)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AllocatableOfferings:
    """Offerings of a type with the same resources, and the amount that pods may use."""

    allocatable: Resources
    offerings: tuple[Offering, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompatibleType:
    """An instance type that a claim's requirements allow, with its available offerings."""

    instance_type: InstanceType
    allocatable_offerings: tuple[AllocatableOfferings, ...]


def compatible_types(
    instance_types: Iterable[InstanceType],
    requirements: Requirements,
    *,
    is_open: Callable[[InstanceType, Offering], bool],
    well_known: Collection[str],
) -> tuple[CompatibleType, ...]:
    """Return the types that meet the requirements and have available offerings.

    `is_open` returns False for offerings that were sold out since the catalogue was listed;
    `well_known` are the labels that a type may leave undefined.
    """
    types: list[CompatibleType] = []
    for it in instance_types:
        if not it.requirements.intersects(requirements):
            continue
        offerings = tuple(
            offering
            for offering in compatible_offerings(it, requirements, well_known=well_known)
            if is_open(it, offering)
        )
        if offerings:
            types.append(
                CompatibleType(
                    instance_type=it, allocatable_offerings=_by_allocatable(it, offerings)
                )
            )
    return tuple(types)


def fitting_candidates(
    types: Iterable[CompatibleType], requests: Resources
) -> tuple[LaunchCandidate, ...]:
    """Return the types that are large enough for the requests, with the offerings that are."""
    fitting: list[LaunchCandidate] = []
    for compatible in types:
        offerings = tuple(
            offering
            for group in compatible.allocatable_offerings
            if _fits(requests, group.allocatable)
            for offering in group.offerings
        )
        if offerings:
            fitting.append(
                LaunchCandidate(instance_type=compatible.instance_type, offerings=offerings)
            )
    return tuple(fitting)


def with_fullest_reservations(
    candidates: Sequence[LaunchCandidate],
    requirements: Requirements,
    *,
    reservation_of: Callable[[Offering], str],
) -> tuple[LaunchCandidate, ...]:
    """Keep one reserved offering of a type in each zone, with most instances left, and no others.

    `reservation_of` returns the reservation id of an offering; among equals the first id is kept. Keep
    everything if the requirements allow no reserved offering, or none is available.
    """
    if not allows_capacity_type(requirements, RESERVED):
        return tuple(candidates)
    kept: list[LaunchCandidate] = []
    for candidate in candidates:
        fullest: dict[str, Offering] = {}
        for offering in sorted(offerings_in((candidate,), RESERVED), key=reservation_of):
            best = fullest.get(offering.zone)
            if best is None or offering.reservation_capacity > best.reservation_capacity:
                fullest[offering.zone] = offering
        if fullest:
            offerings = tuple(fullest[zone] for zone in sorted(fullest))
            kept.append(replace(candidate, offerings=offerings))
    return tuple(kept) or tuple(candidates)


def without_expensive_spot(
    candidates: Sequence[LaunchCandidate], requirements: Requirements
) -> tuple[LaunchCandidate, ...]:
    """Remove spot offerings that cost more than the cheapest on-demand one, if both are allowed.

    Has no effect if the requirements have `minValues`.
    """
    if requirements.has_min_values or not (
        allows_capacity_type(requirements, SPOT) and allows_capacity_type(requirements, ON_DEMAND)
    ):
        return tuple(candidates)
    on_demand = [offering.price.amount for offering in offerings_in(candidates, ON_DEMAND)]
    if not on_demand or not any(offerings_in(candidates, SPOT)):
        return tuple(candidates)
    limit = min(on_demand)
    return with_offerings(
        candidates,
        lambda offering: offering.capacity_type != SPOT or offering.price.amount <= limit,
    )


def with_offerings(
    candidates: Iterable[LaunchCandidate], keep: Callable[[Offering], bool]
) -> tuple[LaunchCandidate, ...]:
    """Return the candidates with the offerings that `keep` accepts; drop those without any."""
    narrowed = (replace(c, offerings=tuple(filter(keep, c.offerings))) for c in candidates)
    return tuple(candidate for candidate in narrowed if candidate.offerings)


def offerings_in(candidates: Iterable[LaunchCandidate], capacity_type: str) -> list[Offering]:
    """Return the offerings of one capacity type, in the order of the candidates."""
    return [
        offering
        for candidate in candidates
        for offering in candidate.offerings
        if offering.capacity_type == capacity_type
    ]


def allows_capacity_type(requirements: Requirements, capacity_type: str) -> bool:
    """Return whether requirements allow a capacity type."""
    return requirements.get(CAPACITY_TYPE).has(capacity_type)


def capacity_type_of(candidates: Iterable[LaunchCandidate]) -> str:
    """Return the capacity type of a launch: the first available of reserved, spot and on-demand."""
    offered = {offering.capacity_type for c in candidates for offering in c.offerings}
    return next((name for name in CAPACITY_TYPES if name in offered), ON_DEMAND)


def is_inflexible(
    candidates: Sequence[LaunchCandidate], capacity_type: str, requirements: Requirements
) -> bool:
    """Whether on-demand is launched although spot is allowed, because spot has few types."""
    return (
        capacity_type == ON_DEMAND
        and allows_capacity_type(requirements, SPOT)
        and len(candidates) < FEW_TYPES
    )


def without_exotic(
    candidates: Sequence[LaunchCandidate],
    requirements: Requirements,
    *,
    is_exotic: Callable[[InstanceType], bool],
) -> tuple[LaunchCandidate, ...]:
    """Leave out exotic types (bare metal, accelerators) as long as others are left.

    Not where `minValues` asks for variety.
    """
    if requirements.has_min_values:
        return tuple(candidates)
    generic = tuple(c for c in candidates if not is_exotic(c.instance_type))
    return generic or tuple(candidates)


def unmet_min_values(
    candidates: Sequence[LaunchCandidate], requirements: Requirements
) -> tuple[str, ...]:
    """Return the labels for which the types offer fewer values than `minValues` asks for."""
    missing: list[str] = []
    for key, requirement in requirements.items():
        if requirement.min_values is None:
            continue
        seen: set[str] = set()
        for candidate in candidates:
            values = candidate.instance_type.requirements.get(key)
            seen.update(() if values.complement else values.values)
        if len(seen) < requirement.min_values:
            missing.append(f"{key} ({len(seen)} of {requirement.min_values})")
    return tuple(sorted(missing))


def offering_keys(candidates: Iterable[LaunchCandidate]) -> tuple[OfferingKey, ...]:
    """Return the instance types and offerings of the candidates."""
    return tuple(
        offering_key(candidate.instance_type.name, offering)
        for candidate in candidates
        for offering in candidate.offerings
    )


def offering_key(instance_type: str, offering: Offering) -> OfferingKey:
    """Return the key of an offering of a type."""
    return OfferingKey(
        instance_type=instance_type, zone=offering.zone, capacity_type=offering.capacity_type
    )


def allocatable_for(it: InstanceType, offering: Offering) -> dict[str, int]:
    """Return the resources that pods may use on a type with this offering."""
    if not offering.capacity_override and not offering.overhead_override:
        return it.allocatable()
    overhead = {**it.overhead.total(), **(offering.overhead_override or {})}
    return replace(
        it,
        capacity={**it.capacity, **(offering.capacity_override or {})},
        overhead=Overhead(system_reserved=overhead),
    ).allocatable()


def _by_allocatable(
    it: InstanceType, offerings: Iterable[Offering]
) -> tuple[AllocatableOfferings, ...]:
    """Group offerings by their resources; most types have one group."""
    groups: dict[tuple[tuple[tuple[str, int], ...], ...], list[Offering]] = {}
    for offering in offerings:
        key = (_sorted(offering.capacity_override), _sorted(offering.overhead_override))
        groups.setdefault(key, []).append(offering)
    return tuple(
        AllocatableOfferings(allocatable=allocatable_for(it, group[0]), offerings=tuple(group))
        for group in groups.values()
    )


def _sorted(amounts: Resources | None) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((amounts or {}).items()))


def _fits(requests: Resources, allocatable: Resources) -> bool:
    return all(amount >= 0 for amount in allocatable.values()) and all(
        amount <= allocatable.get(name, 0) for name, amount in requests.items()
    )
