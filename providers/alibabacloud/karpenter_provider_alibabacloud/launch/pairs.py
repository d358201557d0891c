"""Into which zones and vSwitches a launch goes, as types and vSwitches in pairs. Pure functions of values.

Only zones come into question in which the type can be had, the claim allows it, and the NodeClass has a
vSwitch: a pair of another zone would give a machine that the claim cannot use.
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
    from karpenter_core.provider.kit.launch_candidates import Candidate
    from karpenter_provider_alibabacloud.discovery.vswitches import ZonalVSwitch

__all__ = [
    "BALANCED",
    "MAX_PAIRS",
    "Pair",
    "best_of",
    "in_first_zone",
    "pairs_of",
    "ranked",
    "spread",
    "steadiest_first",
    "zones_of",
]

M = TypeVar("M")

MAX_PAIRS: Final = MAX_INSTANCE_TYPES
"""Choices that a provisioning group takes (API reference: `LaunchTemplateConfig.N`)."""
_BANDS: Final = (3.0, 5.0, 10.0)
"""Between the bands of `InterruptRateDesc` in the answer of DescribeSpotAdvice, in percent."""
BALANCED: Final = "balanced"
"""The policy by which the zone with fewest nodes of the NodePool is taken."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
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
        """What it costs, per hour."""
        return self.offering.price.amount

    @property
    def reservation_id(self) -> str:
        """The private pool that it is bought from; empty for none."""
        return reservation_of(self.offering)


def zones_of(candidates: Iterable[Candidate]) -> tuple[str, ...]:
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
    dealt: dict[str, list[M]] = {}
    for member in members:
        zone = ranked(names, nodes=counts, free=free)[0]
        counts[zone] += 1
        dealt.setdefault(zone, []).append(member)
    return {zone: dealt[zone] for zone in sorted(dealt)}


def pairs_of(
    candidates: Iterable[Candidate],
    vswitches: Mapping[str, ZonalVSwitch],
    *,
    free: Mapping[str, int],
    image_of: Callable[[str], str],
) -> tuple[Pair, ...]:
    """Return all pairs, the cheapest first; of equal prices those with most free addresses.

    `vswitches` are by zone, `free` are the free addresses by zone. A type without an image is in none.
    """
    pairs: list[Pair] = []
    for candidate in candidates:
        image_id = image_of(candidate.instance_type.name)
        pairs += [
            Pair(
                instance_type=candidate.instance_type,
                offering=offering,
                vswitch=vswitches[offering.zone],
                image_id=image_id,
            )
            for offering in candidate.offerings
            if image_id and offering.zone in vswitches
        ]
    return tuple(
        sorted(pairs, key=lambda p: (p.price, -free.get(p.zone, 0), p.zone, p.instance_type.name))
    )


def steadiest_first(
    pairs: Iterable[Pair], interruption_percent: Callable[[str, str], float | None]
) -> tuple[Pair, ...]:
    """Return pairs by how seldom machines of that type are taken back in that zone.

    That goes by the bands in which ECS tells it, so that a price counts for more than a tenth of a
    percent: pairs of one band stay in their order. What nobody has said anything of is in the last band.
    """

    def band(pair: Pair) -> int:
        percent = interruption_percent(pair.instance_type.name, pair.zone)
        return len(_BANDS) if percent is None else bisect_right(_BANDS, percent)

    return tuple(sorted(pairs, key=band))


def best_of(pairs: Sequence[Pair], *, needs_variety: bool = False) -> tuple[Pair, ...]:
    """Return as many as a call takes, in their order: the first.

    With `needs_variety` each type comes once before any comes again.
    """
    if not needs_variety:
        return tuple(pairs[:MAX_PAIRS])
    seen: set[str] = set()
    first: list[int] = []
    rest: list[int] = []
    for number, pair in enumerate(pairs):
        (rest if pair.instance_type.name in seen else first).append(number)
        seen.add(pair.instance_type.name)
    return tuple(pairs[number] for number in sorted([*first, *rest][:MAX_PAIRS]))


def in_first_zone(pairs: Sequence[Pair], zones: Iterable[str]) -> tuple[Pair, ...]:
    """Return the pairs in the first of these zones that has any; none, if no zone has."""
    for zone in zones:
        found = tuple(pair for pair in pairs if pair.zone == zone)
        if found:
            return found
    return ()
