"""Describes shortages that are wider than one offering: quotas, full zones, capacity types.

A quota covers a group of instance types, such as a family, and mostly one capacity type; smaller types
of the group may still fit in. A failed allocation may cover a zone, whatever the group. One type says
all of it: an empty field covers all values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from karpenter_core.provider.kit.launch_candidates import offering_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from karpenter_core.errors import OfferingKey
    from karpenter_core.provider.catalogue import InstanceType

__all__ = ["Shortage", "covered_offerings"]


class Shortage(NamedTuple):
    """Offerings that are unavailable together; an empty field covers all of its values."""

    capacity_type: str = ""
    zone: str = ""
    group: str = ""
    """Instance types that share a quota, by a name of the cloud's."""
    least_cpu_milli: int = 0
    """Instance types with less CPU are not covered."""

    def covers(self, *, capacity_type: str, zone: str, group: str = "", cpu_milli: int = 0) -> bool:
        """Whether an offering is covered, given the group and the CPU of its instance type."""
        return (
            self.capacity_type in {"", capacity_type}
            and self.zone in {"", zone}
            and self.group in {"", group}
            and self.least_cpu_milli <= cpu_milli
        )

    def without_size(self) -> Shortage:
        """Return the same shortage for instance types of every size."""
        return self._replace(least_cpu_milli=0)


def covered_offerings(
    shortages: Iterable[Shortage],
    instance_types: Iterable[InstanceType],
    *,
    group_of: Callable[[str], str] = lambda _name: "",
) -> Iterator[OfferingKey]:
    """Yield the offerings that shortages cover, for `InsufficientCapacityError.offerings`.

    `group_of` returns the quota group of an instance type by its name.
    """
    found = frozenset(shortages)
    if not found:
        return
    for it in instance_types:
        group, cpu_milli = group_of(it.name), it.capacity.get("cpu", 0)
        for offering in it.offerings:
            if any(
                shortage.covers(
                    capacity_type=offering.capacity_type,
                    zone=offering.zone,
                    group=group,
                    cpu_milli=cpu_milli,
                )
                for shortage in found
            ):
                yield offering_key(it.name, offering)
