"""Which of a claim's instance types a launch asks for, and in which offerings.

Pure functions of values, applied in a fixed order by `filtered`. Offerings are those that can be had and
that the claim allows, from the first filter on; later ones only leave out more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CAPACITY_TYPE, ON_DEMAND, RESERVED, SPOT, WELL_KNOWN
from karpenter_core.errors import InsufficientCapacityError, OfferingKey
from karpenter_core.provider.catalogue import Overhead, compatible_offerings
from karpenter_provider_aws.labels import (
    AMD_GPU,
    CAPACITY_RESERVATION_ID,
    CAPACITY_RESERVATION_INTERRUPTIBLE,
    CAPACITY_RESERVATION_TYPE,
    HABANA_GAUDI,
    INSTANCE_SIZE,
    LABEL_CLASSES,
    NEURON,
    NEURON_CORE,
    NVIDIA_GPU,
)
from karpenter_provider_aws.launch.template_data import CAPACITY_BLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from karpenter_core.api.records import Resources
    from karpenter_core.provider.catalogue import InstanceType, Offering, Requirements

__all__ = [
    "MAX_INSTANCE_TYPES",
    "Candidate",
    "CompatibleType",
    "Machine",
    "allocatable_in",
    "candidates_of",
    "compatible_types",
    "filtered",
    "reservation_kind",
    "without_capacity_blocks_but_one",
    "without_dear_spot",
    "without_exotic",
    "without_mixed_reservations",
    "without_shared_pools",
]

MAX_INSTANCE_TYPES: Final = 60
"""So many types a fleet is asked for; with five zones that stays below its limit of overrides."""

_WELL_KNOWN: Final = WELL_KNOWN | LABEL_CLASSES.well_known
_EXOTIC: Final = (NVIDIA_GPU, AMD_GPU, HABANA_GAUDI, NEURON, NEURON_CORE)
_KINDS: Final = (("default", False), (CAPACITY_BLOCK, False), ("default", True))
"""Type of a reservation and whether it is interruptible, preferred ones first."""
_DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """A type that a launch may become, and the offerings that it may be bought in."""

    instance_type: InstanceType
    offerings: tuple[Offering, ...]

    @property
    def price(self) -> float:
        """What it costs at least, per hour."""
        return min(offering.price.amount for offering in self.offerings)

    def to_instance_type(self) -> InstanceType:
        """Return the type as if nothing else of it could be bought."""
        return replace(self.instance_type, offerings=self.offerings)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Machine:
    """The offerings of a type that give the same machine, and what pods may use of it."""

    allocatable: Resources
    offerings: tuple[Offering, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompatibleType:
    """A type that a claim's requirements allow, with what can be had of it."""

    instance_type: InstanceType
    machines: tuple[Machine, ...]


def compatible_types(
    instance_types: Iterable[InstanceType],
    requirements: Requirements,
    *,
    is_open: Callable[[InstanceType, Offering], bool],
) -> tuple[CompatibleType, ...]:
    """Return the types that meet the requirements and can be bought now.

    `is_open` knows what has been sold out since the catalogue was listed. The answer serves all
    claims with these requirements, whatever they request.
    """
    found: list[CompatibleType] = []
    for it in instance_types:
        if not it.requirements.intersects(requirements):
            continue
        offerings = tuple(
            offering
            for offering in compatible_offerings(it, requirements, well_known=_WELL_KNOWN)
            if is_open(it, offering)
        )
        if offerings:
            found.append(CompatibleType(instance_type=it, machines=_machines(it, offerings)))
    return tuple(found)


def candidates_of(types: Iterable[CompatibleType], requests: Resources) -> tuple[Candidate, ...]:
    """Return the types that hold the requests, in the machines that do."""
    found: list[Candidate] = []
    for compatible in types:
        offerings = tuple(
            offering
            for machine in compatible.machines
            if _fits(requests, machine.allocatable)
            for offering in machine.offerings
        )
        if offerings:
            found.append(Candidate(instance_type=compatible.instance_type, offerings=offerings))
    return tuple(found)


def filtered(candidates: Sequence[Candidate], requirements: Requirements) -> tuple[Candidate, ...]:
    """Return what a fleet is asked for: at most 60 types, the cheapest first.

    Raises:
        InsufficientCapacityError: nothing can be had, or too little variety for `minValues`; names
            the offerings that would have been asked for.
    """
    kept = tuple(candidates)
    for keep in (
        without_mixed_reservations,
        without_capacity_blocks_but_one,
        without_shared_pools,
        without_exotic,
        without_dear_spot,
    ):
        before, kept = kept, keep(kept, requirements)
        if not kept:
            raise InsufficientCapacityError(
                "all requested instance types were unavailable during launch",
                offerings=_keys(before),
            )
    kept = tuple(sorted(kept, key=lambda c: (c.price, c.instance_type.name)))[:MAX_INSTANCE_TYPES]
    missing = _missing_values(kept, requirements)
    if missing:
        raise InsufficientCapacityError(
            f"minValues is not met for {', '.join(missing)} by the {len(kept)} cheapest of "
            f"{len(candidates)} instance types",
            offerings=_keys(kept),
        )
    return kept


def without_mixed_reservations(
    candidates: Sequence[Candidate], requirements: Requirements
) -> tuple[Candidate, ...]:
    """Keep reservations of one kind: a fleet buys on one market only.

    It is the kind with the cheapest offering; of equals an ordinary reservation comes before a
    capacity block, and that before what may be taken back. Without any reservation all is kept.
    """
    if not _allows(requirements, RESERVED):
        return tuple(candidates)
    cheapest: dict[tuple[str, bool], float] = {}
    for offering in _offerings(candidates, RESERVED):
        kind = reservation_kind(offering)
        cheapest[kind] = min(cheapest.get(kind, offering.price.amount), offering.price.amount)
    known = [kind for kind in _KINDS if kind in cheapest]
    if not known:
        return tuple(candidates)
    chosen = min(known, key=lambda kind: (cheapest[kind], _KINDS.index(kind)))
    return _narrowed(
        candidates,
        lambda offering: (
            offering.capacity_type == RESERVED and reservation_kind(offering) == chosen
        ),
    )


def without_capacity_blocks_but_one(
    candidates: Sequence[Candidate], requirements: Requirements
) -> tuple[Candidate, ...]:
    """Keep the cheapest capacity block alone: a fleet takes no more than one."""
    if not _allows(requirements, RESERVED):
        return tuple(candidates)
    blocks = [
        (offering.price.amount, candidate.instance_type.name, _reservation_id(offering), offering)
        for candidate in candidates
        for offering in candidate.offerings
        if offering.capacity_type == RESERVED and reservation_kind(offering)[0] == CAPACITY_BLOCK
    ]
    if not blocks:
        return tuple(candidates)
    chosen = min(blocks, key=lambda block: block[:3])[3]
    return _narrowed(candidates, lambda offering: offering is chosen)


def without_shared_pools(
    candidates: Sequence[Candidate], requirements: Requirements
) -> tuple[Candidate, ...]:
    """Keep one reservation of a type in each zone, the one with most left, and no other type.

    A fleet takes a type in a zone once. Where nothing is reserved, all is kept.
    """
    if not _allows(requirements, RESERVED):
        return tuple(candidates)
    kept: list[Candidate] = []
    for candidate in candidates:
        fullest: dict[str, Offering] = {}
        for offering in sorted(_offerings((candidate,), RESERVED), key=_reservation_id):
            best = fullest.get(offering.zone)
            if best is None or offering.reservation_capacity > best.reservation_capacity:
                fullest[offering.zone] = offering
        if fullest:
            offerings = tuple(fullest[zone] for zone in sorted(fullest))
            kept.append(replace(candidate, offerings=offerings))
    return tuple(kept) or tuple(candidates)


def without_exotic(
    candidates: Sequence[Candidate], requirements: Requirements
) -> tuple[Candidate, ...]:
    """Leave out bare metal and accelerators as long as something else is there.

    Not where `minValues` asks for variety.
    """
    if requirements.has_min_values:
        return tuple(candidates)
    generic = tuple(c for c in candidates if not _is_exotic(c.instance_type))
    return generic or tuple(candidates)


def without_dear_spot(
    candidates: Sequence[Candidate], requirements: Requirements
) -> tuple[Candidate, ...]:
    """Leave out spot offerings dearer than the cheapest on-demand one, where both may be had.

    Not where `minValues` asks for variety.
    """
    if requirements.has_min_values or not (
        _allows(requirements, SPOT) and _allows(requirements, ON_DEMAND)
    ):
        return tuple(candidates)
    on_demand = [offering.price.amount for offering in _offerings(candidates, ON_DEMAND)]
    if not on_demand or not any(_offerings(candidates, SPOT)):
        return tuple(candidates)
    limit = min(on_demand)
    return _narrowed(
        candidates,
        lambda offering: offering.capacity_type != SPOT or offering.price.amount <= limit,
    )


def reservation_kind(offering: Offering) -> tuple[str, bool]:
    """Return the type of an offering's reservation and whether it may be taken back."""
    kind = offering.requirements.single_value(CAPACITY_RESERVATION_TYPE) or _DEFAULT
    interruptible = offering.requirements.single_value(CAPACITY_RESERVATION_INTERRUPTIBLE)
    return kind, interruptible == "true"


def _machines(it: InstanceType, offerings: Iterable[Offering]) -> tuple[Machine, ...]:
    """Group offerings by the machine that they give; most types have one."""
    groups: dict[tuple[tuple[tuple[str, int], ...], ...], list[Offering]] = {}
    for offering in offerings:
        key = (_sorted(offering.capacity_override), _sorted(offering.overhead_override))
        groups.setdefault(key, []).append(offering)
    return tuple(
        Machine(allocatable=allocatable_in(it, group[0]), offerings=tuple(group))
        for group in groups.values()
    )


def allocatable_in(it: InstanceType, offering: Offering) -> dict[str, int]:
    """Return what pods may use of a type that is bought in an offering."""
    if not offering.capacity_override and not offering.overhead_override:
        return it.allocatable()
    overhead = {**it.overhead.total(), **(offering.overhead_override or {})}
    return replace(
        it,
        capacity={**it.capacity, **(offering.capacity_override or {})},
        overhead=Overhead(system_reserved=overhead),
    ).allocatable()


def _sorted(amounts: Resources | None) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((amounts or {}).items()))


def _fits(requests: Resources, allocatable: Resources) -> bool:
    return all(amount >= 0 for amount in allocatable.values()) and all(
        amount <= allocatable.get(name, 0) for name, amount in requests.items()
    )


def _allows(requirements: Requirements, capacity_type: str) -> bool:
    return requirements.get(CAPACITY_TYPE).has(capacity_type)


def _offerings(candidates: Iterable[Candidate], capacity_type: str) -> list[Offering]:
    return [
        offering
        for candidate in candidates
        for offering in candidate.offerings
        if offering.capacity_type == capacity_type
    ]


def _narrowed(
    candidates: Iterable[Candidate], keep: Callable[[Offering], bool]
) -> tuple[Candidate, ...]:
    narrowed = (replace(c, offerings=tuple(filter(keep, c.offerings))) for c in candidates)
    return tuple(candidate for candidate in narrowed if candidate.offerings)


def _reservation_id(offering: Offering) -> str:
    return offering.requirements.single_value(CAPACITY_RESERVATION_ID)


def _is_exotic(it: InstanceType) -> bool:
    sizes = it.requirements.get(INSTANCE_SIZE)
    if not sizes.complement and any("metal" in size for size in sizes.values):
        return True
    return any(it.capacity.get(name, 0) for name in _EXOTIC)


def _missing_values(candidates: Sequence[Candidate], requirements: Requirements) -> tuple[str, ...]:
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


def _keys(candidates: Iterable[Candidate]) -> tuple[OfferingKey, ...]:
    return tuple(
        OfferingKey(
            instance_type=candidate.instance_type.name,
            zone=offering.zone,
            capacity_type=offering.capacity_type,
        )
        for candidate in candidates
        for offering in candidate.offerings
    )
