"""Chooses the zones and vSwitches of a launch.

Pure functions of values. A target is an instance type and a vSwitch. Its zone has the type in
stock, the claim allows the zone, and the NodeClass has a vSwitch there: an instance in another zone
would be of no use to the claim.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from karpenter_provider_alibabacloud.launch.filters import MAX_INSTANCE_TYPES, reservation_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from karpenter_core.provider.catalogue import InstanceType, Offering
    from karpenter_core.provider.kit.launch_candidates import LaunchCandidate
    from karpenter_provider_alibabacloud.discovery.vswitches import ZonalVSwitch

__all__ = [
    "BALANCED",
    "MAX_TARGETS",
    "LaunchTarget",
    "best_of",
    "in_first_zone",
    "ranked",
    "spread",
    "steadiest_first",
    "targets_of",
    "zones_of",
]

M = TypeVar("M")

MAX_TARGETS: Final = MAX_INSTANCE_TYPES
"""Choices that a provisioning group takes (API reference: `LaunchTemplateConfig.N`)."""
_BANDS: Final = (3.0, 5.0, 10.0)
"""Between the bands of `InterruptRateDesc` in the answer of DescribeSpotAdvice, in percent."""
BALANCED: Final = "balanced"
"""The policy by which the zone with fewest nodes of the NodePool is taken."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaunchTarget:
    """One choice of a launch: a type in a zone, in a vSwitch."""

    instance_type: InstanceType
    offering: Offering
    vswitch: ZonalVSwitch
    image_id: str

    @property
    def zone(self) -> str:
        """The zone."""
        return self.offering.zone

    @property
    def price(self) -> float:
        """Price per hour."""
        return self.offering.price.amount

    @property
    def reservation_id(self) -> str:
        """The private pool that it is bought from; empty for none."""
        return reservation_of(self.offering)


def zones_of(candidates: Iterable[LaunchCandidate]) -> tuple[str, ...]:
    """Return the zones that candidates can be had in, sorted."""
    return tuple(sorted({offering.zone for c in candidates for offering in c.offerings}))


def ranked(
    zones: Iterable[str], *, nodes: Mapping[str, int], free: Mapping[str, int]
) -> tuple[str, ...]:
    """Return zones in the order in which the policy `balanced` takes them.

    `nodes` counts what a zone has already, `free` are its free addresses: of zones with equally many
    nodes the one with most addresses is taken, then the first by id.
    """
    return tuple(sorted(zones, key=lambda z: (nodes.get(z, 0), -free.get(z, 0), z)))


def spread(
    members: Iterable[M],
    zones: Iterable[str],
    *,
    nodes: Mapping[str, int],
    free: Mapping[str, int],
) -> dict[str, list[M]]:
    """Deal the members of a launch to zones, each to the one that is `ranked` first then."""
    names = tuple(zones)
    counts = Counter(dict(nodes))
    by_zone: dict[str, list[M]] = {}
    for member in members:
        zone = ranked(names, nodes=counts, free=free)[0]
        counts[zone] += 1
        by_zone.setdefault(zone, []).append(member)
    return {zone: by_zone[zone] for zone in sorted(by_zone)}


def targets_of(
    candidates: Iterable[LaunchCandidate],
    vswitches: Mapping[str, ZonalVSwitch],
    *,
    free: Mapping[str, int],
    image_of: Callable[[str], str],
) -> tuple[LaunchTarget, ...]:
    """Return all pairs, the cheapest first; of equal prices those with most free addresses.

    `vswitches` are by zone, `free` are the free addresses by zone. A type without an image is in none.
    """
    targets: list[LaunchTarget] = []
    for candidate in candidates:
        image_id = image_of(candidate.instance_type.name)
        targets += [
            LaunchTarget(
                instance_type=candidate.instance_type,
                offering=offering,
                vswitch=vswitches[offering.zone],
                image_id=image_id,
            )
            for offering in candidate.offerings
            if image_id and offering.zone in vswitches
        ]
    return tuple(
        sorted(targets, key=lambda p: (p.price, -free.get(p.zone, 0), p.zone, p.instance_type.name))
    )


def steadiest_first(
    targets: Iterable[LaunchTarget], interruption_percent: Callable[[str, str], float | None]
) -> tuple[LaunchTarget, ...]:
    """Return targets in the order of their reclaim rate, the lowest first.

    That goes by the bands in which ECS tells it, so that a price counts for more than a tenth of a
    percent: pairs of one band stay in their order. A pair without any report is in the last band.
    """

    def band(target: LaunchTarget) -> int:
        percent = interruption_percent(target.instance_type.name, target.zone)
        return len(_BANDS) if percent is None else bisect_right(_BANDS, percent)

    return tuple(sorted(targets, key=band))


def best_of(targets: Sequence[LaunchTarget], *, needs_variety: bool) -> tuple[LaunchTarget, ...]:
    """Return as many as a call takes, in their order: the first.

    With `needs_variety` each type comes once before any comes again.
    """
    if not needs_variety:
        return tuple(targets[:MAX_TARGETS])
    seen: set[str] = set()
    first: list[int] = []
    rest: list[int] = []
    for number, target in enumerate(targets):
        (rest if target.instance_type.name in seen else first).append(number)
        seen.add(target.instance_type.name)
    return tuple(targets[number] for number in sorted([*first, *rest][:MAX_TARGETS]))


def in_first_zone(
    targets: Sequence[LaunchTarget], zones: Iterable[str]
) -> tuple[LaunchTarget, ...]:
    """Return the pairs in the first of these zones that has any; none, if no zone has."""
    for zone in zones:
        found = tuple(target for target in targets if target.zone == zone)
        if found:
            return found
    return ()
