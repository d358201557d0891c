"""Describes shortages beyond one offering: quotas, full zones, capacity types.

A quota covers a group of instance types, such as a family, and mostly one capacity type; smaller types
of the group may still fit in. A failed allocation may cover a zone, whatever the group. One type says
all of it: an empty field covers all values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from karpenter_core.api.labels import RESERVED
from karpenter_core.errors import (
    CloudProviderError,
    ExhaustedScope,
    InsufficientCapacityError,
    QuotaGroup,
)
from karpenter_core.provider.kit.launch_candidates import offering_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from karpenter_core.errors import OfferingKey
    from karpenter_core.provider.catalogue import InstanceType, Offering

__all__ = ["Shortage", "narrow_to_reservations", "quota_groups"]


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


def quota_groups(
    shortages: Iterable[Shortage],
    instance_types: Iterable[InstanceType],
    *,
    label: str,
    group_of: Callable[[str], str] = lambda _name: "",
) -> Iterator[QuotaGroup]:
    """Yield what shortages cover, for `InsufficientCapacityError.quota_groups`.

    `group_of` returns the quota group of an instance type by its name. `label` is one that all instance
    types have, and whose values are finer than the groups: the family, or the name of the type. A shortage
    of a group becomes a quota group for each value that instance types of the group have. Of shortages that
    differ in the least size alone the smallest counts.
    """
    smallest: dict[Shortage, Shortage] = {}
    for shortage in sorted(shortages):
        smallest.setdefault(shortage.without_size(), shortage)
    values: dict[str, set[str]] = {}
    for it in instance_types if smallest else ():
        if label in it.requirements:
            of_group = values.setdefault(group_of(it.name), set())
            of_group.update(it.requirements.get(label).values)
    for shortage in smallest.values():
        for value in sorted(values.get(shortage.group, ())) if shortage.group else ("",):
            yield QuotaGroup(
                label=label if value else "",
                value=value,
                least_cpu_milli=shortage.least_cpu_milli,
                zone=shortage.zone,
                capacity_type=shortage.capacity_type,
            )


def narrow_to_reservations(
    error: CloudProviderError, offerings: Iterable[tuple[str, Offering]], *, label: str
) -> CloudProviderError:
    """Return a shortage that names the used-up reservations instead of their offerings.

    An `OfferingKey` covers all reservations of a type in a zone, and others may have instances left, which
    are paid for. `offerings`, by instance type, are those that the shortage can be about; `label` is the one
    by which an offering names its reservation.
    """
    if (
        not isinstance(error, InsufficientCapacityError)
        or error.scope is not ExhaustedScope.OFFERING
    ):
        return error
    reservations: dict[OfferingKey, dict[QuotaGroup, None]] = {}
    for name, offering in offerings:
        reservation = offering.requirements.single_value(label)
        if offering.capacity_type == RESERVED and reservation:
            group = QuotaGroup(label=label, value=reservation, capacity_type=RESERVED)
            reservations.setdefault(offering_key(name, offering), {})[group] = None
    groups = dict.fromkeys(group for key in error.offerings for group in reservations.get(key, ()))
    if not groups:
        return error
    narrowed = InsufficientCapacityError(
        str(error),
        offerings=tuple(key for key in error.offerings if key not in reservations),
        scope=error.scope,
        quota_groups=tuple(dict.fromkeys((*error.quota_groups, *groups))),
    )
    narrowed.__cause__ = error.__cause__
    return narrowed
