"""Filters a claim's instance types and offerings for a launch.

Pure functions of values, applied in a fixed order by `filter_candidates`, but for the query of
system disks: each type is a call, so types are queried in the order of their price, until there are
enough.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from karpenter_core.errors import InsufficientCapacityError
from karpenter_core.provider.kit.launch.groups import apply_filters
from karpenter_core.provider.kit.launch_candidates import (
    LaunchCandidate,
    capacity_type_of,
    offering_keys,
    unmet_min_values,
    with_fullest_reservations,
    with_offerings,
    without_exotic,
    without_expensive_spot,
)
from karpenter_provider_alibabacloud.catalogue.system_disks import usable_categories
from karpenter_provider_alibabacloud.labels import (
    AMD_GPU,
    CAPACITY_RESERVATION_ID,
    INSTANCE_CATEGORY,
    INSTANCE_SIZE,
    NVIDIA_GPU,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from karpenter_core.provider.catalogue import InstanceType, Offering, Requirements
    from karpenter_provider_alibabacloud.catalogue.system_disks import DisksByZone

__all__ = [
    "MAX_INSTANCE_TYPES",
    "bootable",
    "filter_candidates",
    "reservation_of",
    "with_disks",
    "without_public_offerings_of_reserved",
]

MAX_INSTANCE_TYPES: Final = 20
"""So many types a launch asks for: a provisioning group takes no more choices (API reference)."""

_GPUS: Final = (NVIDIA_GPU, AMD_GPU)
_BARE_METAL: Final = ("ebm", "scc")
"""Prefixes of categories without a hypervisor."""


def filter_candidates(
    candidates: Sequence[LaunchCandidate],
    requirements: Requirements,
    *,
    disks: Callable[[Sequence[str]], Mapping[str, DisksByZone | None]] | None = None,
    categories: Sequence[str] = (),
) -> tuple[LaunchCandidate, ...]:
    """Return what a launch asks for: at most 20 types of one capacity type, the cheapest first.

    `disks` tells which system disks types boot from, of which one in `categories` must be; None
    where any will do.

    Raises:
        InsufficientCapacityError: nothing can be had, or too little variety for `minValues`; names
            the offerings that would have been asked for.
    """
    kept = apply_filters(
        candidates,
        requirements,
        (
            without_public_offerings_of_reserved,
            partial(without_exotic, is_exotic=_is_exotic),
            without_expensive_spot,
        ),
    )
    capacity_type = capacity_type_of(kept)
    ordered = _by_price(
        with_offerings(kept, lambda offering: offering.capacity_type == capacity_type)
    )
    if disks is None:
        return _truncated(ordered, requirements)
    kept = with_disks(ordered, requirements, disks=disks, categories=categories)
    if not kept:
        raise InsufficientCapacityError(
            "none of the instance types can boot from a system disk of the categories "
            f"{', '.join(categories)}",
            offerings=offering_keys(ordered),
        )
    return _truncated(kept, requirements)


def without_public_offerings_of_reserved(
    candidates: Sequence[LaunchCandidate], requirements: Requirements
) -> tuple[LaunchCandidate, ...]:
    """Keep one private pool of a type in each zone, the one with most left, and nothing public.

    A result names type and zone, by which the pool is known then. Where none may be had, all is kept.
    """
    return with_fullest_reservations(candidates, requirements, reservation_of=reservation_of)


def with_disks(
    ordered: Sequence[LaunchCandidate],
    requirements: Requirements,
    *,
    disks: Callable[[Sequence[str]], Mapping[str, DisksByZone | None]],
    categories: Sequence[str],
) -> tuple[LaunchCandidate, ...]:
    """Return the candidates in the zones where they can boot from a disk of these categories.

    Only as many as a launch asks for are looked at, in the order given.
    """
    kept: list[LaunchCandidate] = []
    for first in range(0, len(ordered), MAX_INSTANCE_TYPES):
        part = ordered[first : first + MAX_INSTANCE_TYPES]
        kept += bootable(part, disks([c.instance_type.name for c in part]), categories)
        if len(kept) >= MAX_INSTANCE_TYPES and not unmet_min_values(kept, requirements):
            break
    return tuple(kept)


def bootable(
    candidates: Iterable[LaunchCandidate],
    disks: Mapping[str, DisksByZone | None],
    categories: Sequence[str],
) -> tuple[LaunchCandidate, ...]:
    """Return the candidates in the zones that have a disk of these categories for them."""
    kept: list[LaunchCandidate] = []
    for candidate in candidates:
        there = disks.get(candidate.instance_type.name)
        offerings = tuple(
            offering
            for offering in candidate.offerings
            if usable_categories(there, offering.zone, categories)
        )
        if offerings:
            kept.append(replace(candidate, offerings=offerings))
    return tuple(kept)


def reservation_of(offering: Offering) -> str:
    """Return the private pool of an offering; empty for none."""
    return offering.requirements.single_value(CAPACITY_RESERVATION_ID)


def _by_price(candidates: Iterable[LaunchCandidate]) -> tuple[LaunchCandidate, ...]:
    return tuple(sorted(candidates, key=lambda c: (c.price, c.instance_type.name)))


def _truncated(
    ordered: Sequence[LaunchCandidate], requirements: Requirements
) -> tuple[LaunchCandidate, ...]:
    """Return the first 20, or others among them where `minValues` asks for more variety."""
    needed = _for_variety(ordered, requirements)
    cheapest = [c for c in ordered if c not in needed]
    chosen = [*needed, *cheapest[: max(0, MAX_INSTANCE_TYPES - len(needed))]]
    kept = _by_price(chosen[:MAX_INSTANCE_TYPES])
    missing = unmet_min_values(kept, requirements)
    if missing:
        raise InsufficientCapacityError(
            f"minValues is not met for {', '.join(missing)} by {len(kept)} of {len(ordered)} "
            "instance types",
            offerings=offering_keys(kept),
        )
    return kept


def _for_variety(
    ordered: Sequence[LaunchCandidate], requirements: Requirements
) -> list[LaunchCandidate]:
    """Return the cheapest types that bring values of which `minValues` asks for more."""
    least = {
        key: requirement.min_values
        for key, requirement in requirements.items()
        if requirement.min_values is not None
    }
    seen: dict[str, set[str]] = {key: set() for key in least}
    chosen: list[LaunchCandidate] = []
    for candidate in ordered:
        is_needed = False
        for key, number in least.items():
            values = candidate.instance_type.requirements.get(key)
            is_new = not values.complement and not seen[key].issuperset(values.values)
            is_needed = is_needed or (is_new and len(seen[key]) < number)
        if is_needed:
            chosen.append(candidate)
            for key in least:
                values = candidate.instance_type.requirements.get(key)
                seen[key].update(() if values.complement else values.values)
    return chosen


def _is_exotic(it: InstanceType) -> bool:
    if any(it.capacity.get(name, 0) for name in _GPUS):
        return True
    if it.requirements.single_value(INSTANCE_CATEGORY).startswith(_BARE_METAL):
        return True
    return "metal" in it.requirements.single_value(INSTANCE_SIZE)
