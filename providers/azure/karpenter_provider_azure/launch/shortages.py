"""Derives from a failed launch what becomes unavailable. Pure functions of values.

A size that has no capacity stands for its quota family: sizes of the family with at least as many vCPUs are
not available either. A size whose family is not known stands for itself alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import INSTANCE_TYPE, ON_DEMAND, SPOT
from karpenter_core.errors import (
    CloudProviderError,
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    OfferingKey,
    QuotaGroup,
    ThrottledError,
)
from karpenter_core.provider.kit.shortages import Shortage
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_azure.labels import REGIONAL_ZONE
from karpenter_provider_azure.launch.failures import LaunchFailureKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from karpenter_provider_azure.launch.failures import LaunchFailure

__all__ = ["FailedMarks", "LaunchAttempt", "failed_marks", "launch_error"]

_ALL: Final = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAttempt:
    """The offering that a virtual machine was requested from."""

    instance_type: str
    zone: str
    """The label: `westus2-1`, or `0` without a zone."""
    capacity_type: str
    group: str
    """Quota family of the size in lower case; empty when it is unknown."""
    cpu_milli: int
    size_zones: tuple[str, ...]
    """Labels of all zones in which the region sells the size, without `0`."""

    @property
    def scope_zones(self) -> tuple[str, ...]:
        """The zones of the placement scope: all zones of the size, or `0` for one without a zone."""
        if self.zone == REGIONAL_ZONE:
            return (REGIONAL_ZONE,)
        return tuple(sorted({*self.size_zones, self.zone}))


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedMarks:
    """Everything that a failed launch makes unavailable."""

    shortages: tuple[Shortage, ...] = ()
    offerings: tuple[UnavailableOffering, ...] = ()

    def __bool__(self) -> bool:
        """Return whether anything becomes unavailable."""
        return bool(self.shortages or self.offerings)


def failed_marks(failure: LaunchFailure, attempt: LaunchAttempt) -> FailedMarks:
    """Return what a failed attempt makes unavailable."""
    own = attempt.capacity_type
    match failure.kind:
        case LaunchFailureKind.SPOT_QUOTA:
            return FailedMarks(shortages=(Shortage(capacity_type=SPOT),))
        case LaunchFailureKind.REGIONAL_QUOTA:
            covered = Shortage(capacity_type=own, least_cpu_milli=attempt.cpu_milli)
            return FailedMarks(shortages=(covered,))
        case LaunchFailureKind.FAMILY_QUOTA:
            return _of_size(attempt, (_ALL,), own)
        case LaunchFailureKind.SIZE_DISALLOWED:
            return _of_one_size(attempt, (_ALL,), _ALL)
        case LaunchFailureKind.SIZE_NOT_AVAILABLE | LaunchFailureKind.SCOPE_OVERCONSTRAINED:
            return _of_size(attempt, attempt.scope_zones, own)
        case LaunchFailureKind.ZONE_OVERCONSTRAINED:
            return _of_size(attempt, (attempt.zone,), own)
        case LaunchFailureKind.ZONE_FULL:
            return _of_size(attempt, (attempt.zone,), _ALL)
        case LaunchFailureKind.SCOPE_FULL:
            return _of_size(attempt, attempt.scope_zones, _ALL)
        case LaunchFailureKind.SUBNET_FULL | LaunchFailureKind.THROTTLED | LaunchFailureKind.OTHER:
            return FailedMarks()


def _of_size(attempt: LaunchAttempt, zones: Collection[str], capacity_type: str) -> FailedMarks:
    """Return the marks of a size in zones, and of the larger ones of its family."""
    if attempt.group:
        return FailedMarks(
            shortages=tuple(
                Shortage(
                    capacity_type=capacity_type,
                    zone=zone,
                    group=attempt.group,
                    least_cpu_milli=attempt.cpu_milli,
                )
                for zone in zones
            )
        )
    return _of_one_size(attempt, zones, capacity_type)


def _of_one_size(attempt: LaunchAttempt, zones: Collection[str], capacity_type: str) -> FailedMarks:
    """Return the marks of a size alone; none of a virtual machine whose size is not known."""
    if not attempt.instance_type:
        return FailedMarks()
    every_zone = (*attempt.size_zones, attempt.zone, REGIONAL_ZONE)
    named = sorted(set(every_zone)) if _ALL in zones else zones
    capacity_types = (capacity_type,) if capacity_type else (ON_DEMAND, SPOT)
    return FailedMarks(
        offerings=tuple(
            UnavailableOffering(attempt.instance_type, zone, each)
            for zone in named
            for each in capacity_types
        )
    )


def launch_error(
    failure: LaunchFailure, marks: FailedMarks, sizes_of: Callable[[str], Iterable[str]]
) -> CloudProviderError:
    """Return the core's error for a failed launch, which makes unavailable what `marks` cover.

    `sizes_of` returns the names of all VM sizes of a quota family.
    """
    match failure.kind:
        case LaunchFailureKind.THROTTLED:
            return ThrottledError(failure.text)
        case LaunchFailureKind.OTHER:
            return LaunchFailedError(failure.text, reason=failure.reason)
        case LaunchFailureKind.SUBNET_FULL:
            return InsufficientCapacityError(failure.text, scope=ExhaustedScope.NODE_CLASS)
        case _:
            return InsufficientCapacityError(
                failure.text,
                offerings=[
                    OfferingKey(
                        instance_type=each.instance_type,
                        zone=each.zone,
                        capacity_type=each.capacity_type,
                    )
                    for each in marks.offerings
                ],
                quota_groups=[
                    group
                    for shortage in marks.shortages
                    for group in _quota_groups(shortage, sizes_of)
                ],
            )


def _quota_groups(
    shortage: Shortage, sizes_of: Callable[[str], Iterable[str]]
) -> Iterator[QuotaGroup]:
    """Yield a group for each size of the family: no label of instance types names quota families."""
    for size in sorted(sizes_of(shortage.group)) if shortage.group else ("",):
        yield QuotaGroup(
            label=INSTANCE_TYPE if size else "",
            value=size,
            least_cpu_milli=shortage.least_cpu_milli,
            zone=shortage.zone,
            capacity_type=shortage.capacity_type,
        )
