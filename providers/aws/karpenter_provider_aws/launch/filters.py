"""Filters a claim's instance types and offerings for a launch.

Pure functions of values, applied in a fixed order by `filter_candidates`. The first filter leaves
the available offerings that the claim allows; later ones only remove more.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import RESERVED
from karpenter_core.errors import InsufficientCapacityError
from karpenter_core.provider.kit.launch.groups import apply_filters
from karpenter_core.provider.kit.launch_candidates import (
    allows_capacity_type,
    offering_keys,
    offerings_in,
    unmet_min_values,
    with_fullest_reservations,
    with_offerings,
    without_exotic,
    without_expensive_spot,
)
from karpenter_provider_aws.labels import (
    AMD_GPU,
    CAPACITY_RESERVATION_ID,
    CAPACITY_RESERVATION_INTERRUPTIBLE,
    CAPACITY_RESERVATION_TYPE,
    HABANA_GAUDI,
    INSTANCE_SIZE,
    NEURON,
    NEURON_CORE,
    NVIDIA_GPU,
)
from karpenter_provider_aws.launch.template_data import CAPACITY_BLOCK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.provider.catalogue import InstanceType, Offering, Requirements
    from karpenter_core.provider.kit.launch_candidates import LaunchCandidate

__all__ = [
    "MAX_INSTANCE_TYPES",
    "filter_candidates",
    "reservation_kind",
    "without_capacity_blocks_but_one",
    "without_mixed_reservations",
    "without_public_offerings_of_reserved",
]

MAX_INSTANCE_TYPES: Final = 60
"""So many types a fleet is asked for; with five zones that stays below its limit of overrides."""

_EXOTIC: Final = (NVIDIA_GPU, AMD_GPU, HABANA_GAUDI, NEURON, NEURON_CORE)
_KINDS: Final = (("default", False), (CAPACITY_BLOCK, False), ("default", True))
"""Type of a reservation and whether it is interruptible, preferred ones first."""
_DEFAULT: Final = "default"


def filter_candidates(
    candidates: Sequence[LaunchCandidate], requirements: Requirements
) -> tuple[LaunchCandidate, ...]:
    """Return what a fleet is asked for: at most 60 types, the cheapest first.

    Raises:
        InsufficientCapacityError: nothing can be had, or too little variety for `minValues`; names
            the offerings that would have been asked for.
    """
    kept = apply_filters(
        candidates,
        requirements,
        (
            without_mixed_reservations,
            without_capacity_blocks_but_one,
            without_public_offerings_of_reserved,
            partial(without_exotic, is_exotic=_is_exotic),
            without_expensive_spot,
        ),
    )
    kept = tuple(sorted(kept, key=lambda c: (c.price, c.instance_type.name)))[:MAX_INSTANCE_TYPES]
    missing = unmet_min_values(kept, requirements)
    if missing:
        raise InsufficientCapacityError(
            f"minValues is not met for {', '.join(missing)} by the {len(kept)} cheapest of "
            f"{len(candidates)} instance types",
            offerings=offering_keys(kept),
        )
    return kept


def without_mixed_reservations(
    candidates: Sequence[LaunchCandidate], requirements: Requirements
) -> tuple[LaunchCandidate, ...]:
    """Keep reservations of one kind: a fleet buys on one market only.

    It is the kind with the cheapest offering; of equals an ordinary reservation comes before a
    capacity block, and that before what may be taken back. Without any reservation all is kept.
    """
    if not allows_capacity_type(requirements, RESERVED):
        return tuple(candidates)
    cheapest: dict[tuple[str, bool], float] = {}
    for offering in offerings_in(candidates, RESERVED):
        kind = reservation_kind(offering)
        cheapest[kind] = min(cheapest.get(kind, offering.price.amount), offering.price.amount)
    known = [kind for kind in _KINDS if kind in cheapest]
    if not known:
        return tuple(candidates)
    chosen = min(known, key=lambda kind: (cheapest[kind], _KINDS.index(kind)))
    return with_offerings(
        candidates,
        lambda offering: (
            offering.capacity_type == RESERVED and reservation_kind(offering) == chosen
        ),
    )


def without_capacity_blocks_but_one(
    candidates: Sequence[LaunchCandidate], requirements: Requirements
) -> tuple[LaunchCandidate, ...]:
    """Keep the cheapest capacity block alone: a fleet takes no more than one."""
    if not allows_capacity_type(requirements, RESERVED):
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
    return with_offerings(candidates, lambda offering: offering is chosen)


def without_public_offerings_of_reserved(
    candidates: Sequence[LaunchCandidate], requirements: Requirements
) -> tuple[LaunchCandidate, ...]:
    """Keep one reservation of a type in each zone, the one with most left, and no other type.

    A fleet takes a type in a zone once. Where nothing is reserved, all is kept.
    """
    return with_fullest_reservations(candidates, requirements, reservation_of=_reservation_id)


def reservation_kind(offering: Offering) -> tuple[str, bool]:
    """Return the type of an offering's reservation and whether it may be taken back."""
    kind = offering.requirements.single_value(CAPACITY_RESERVATION_TYPE) or _DEFAULT
    interruptible = offering.requirements.single_value(CAPACITY_RESERVATION_INTERRUPTIBLE)
    return kind, interruptible == "true"


def _reservation_id(offering: Offering) -> str:
    return offering.requirements.single_value(CAPACITY_RESERVATION_ID)


def _is_exotic(it: InstanceType) -> bool:
    if "metal" in it.requirements.single_value(INSTANCE_SIZE):
        return True
    return any(it.capacity.get(name, 0) for name in _EXOTIC)
