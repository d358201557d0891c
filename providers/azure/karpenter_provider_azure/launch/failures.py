"""Classifies launch errors, and derives unavailable offerings (pure).

An error is classified the same whether Azure refused the request or failed its operation later. Errors of
too many calls have the code of quotas and are recognised by their status first: `ArmClient` raises
`ThrottledError` for status 429. Codes, texts and times are those of Karpenter's provider for Azure.

A size that has no capacity stands for its quota family: sizes of the family with at least as many vCPUs are
not available either. A size whose family is not known stands for itself alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from karpenter_core.api.labels import INSTANCE_TYPE, ON_DEMAND, SPOT
from karpenter_core.errors import (
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    OfferingKey,
    QuotaGroup,
    ThrottledError,
)
from karpenter_core.provider.kit.shortages import Shortage
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_azure.arm.errors import disallows_size
from karpenter_provider_azure.labels import REGIONAL_ZONE
from karpenter_provider_azure.launch.boot_data import SCRIPT_EXTENSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from karpenter_core.errors import CloudProviderError
    from karpenter_provider_azure.arm.errors import ArmError

__all__ = [
    "REGIONAL_QUOTA_LIFE",
    "FailedMarks",
    "LaunchAttempt",
    "LaunchFailure",
    "LaunchFailureKind",
    "classify_failure",
    "failed_marks",
    "is_of_launch",
    "launch_error",
]

MAX_TEXT: Final = 1200
"""Characters of Azure's text that conditions and Events show."""
REGIONAL_QUOTA_LIFE: Final = timedelta(minutes=3)
"""Short: the quota covers all sizes, and any deleted node may free what is missing."""
_QUOTA_LIFE: Final = timedelta(minutes=10)
_LONG_LIFE: Final = timedelta(hours=1)
_NOT_SOLD_LIFE: Final = timedelta(hours=23)
"""On-demand capacity that a subscription cannot buy is not bought within minutes."""


class LaunchFailureKind(StrEnum):
    """Kind of a launch's failure; decides which offerings become unavailable."""

    SPOT_QUOTA = "spot-quota"
    """The quota of all spot cores of the region."""
    FAMILY_QUOTA = "family-quota"
    SIZE_NOT_AVAILABLE = "size-not-available"
    """The size is not sold to the subscription."""
    SIZE_DISALLOWED = "size-disallowed"
    """A policy of the subscription does not allow the size."""
    SIZE_UNSUITABLE = "size-unsuitable"
    """Azure makes no virtual machine of the size with the image, disk or network of the request."""
    ZONE_FULL = "zone-full"
    SCOPE_FULL = "scope-full"
    """The zones, or the region for virtual machines without a zone, have no capacity."""
    ZONE_OVERCONSTRAINED = "zone-overconstrained"
    """The zone has no capacity for what the request combines."""
    SCOPE_OVERCONSTRAINED = "scope-overconstrained"
    REGIONAL_QUOTA = "regional-quota"
    """The quota of all cores of the region."""
    SUBNET_FULL = "subnet-full"
    THROTTLED = "throttled"
    OTHER = "other"


class _Rule(NamedTuple):
    """A failure has one of the codes, and the text if there is a pattern."""

    kind: LaunchFailureKind
    reason: str
    codes: tuple[str, ...]
    text: str = ""


_KIND: Final = LaunchFailureKind
_QUOTA_CODES: Final = ("OperationNotAllowed", "QuotaExceeded")
_QUOTA: Final = "SubscriptionQuotaReached"
_RULES: Final = (
    _Rule(_KIND.THROTTLED, "", ("TooManyRequests", "SubscriptionRequestsThrottled")),
    _Rule(_KIND.THROTTLED, "", ("OperationNotAllowed",), r"too many requests"),
    _Rule(_KIND.SPOT_QUOTA, _QUOTA, _QUOTA_CODES, r"low\s*priority\s*cores"),
    _Rule(_KIND.FAMILY_QUOTA, _QUOTA, _QUOTA_CODES, r"family\s+cores\s+quota"),
    _Rule(_KIND.SIZE_NOT_AVAILABLE, "SKUNotAvailable", ("SkuNotAvailable",)),
    _Rule(_KIND.ZONE_FULL, "ZonalAllocationFailure", ("ZonalAllocationFailed",)),
    _Rule(_KIND.SCOPE_FULL, "AllocationFailure", ("AllocationFailed",)),
    _Rule(
        _KIND.ZONE_OVERCONSTRAINED,
        "OverconstrainedZonalAllocationFailure",
        ("OverconstrainedZonalAllocationRequest",),
    ),
    _Rule(
        _KIND.SCOPE_OVERCONSTRAINED,
        "OverconstrainedAllocationFailure",
        ("OverconstrainedAllocationRequest",),
    ),
    _Rule(
        _KIND.REGIONAL_QUOTA,
        _QUOTA,
        _QUOTA_CODES,
        r"total\s+regional\s+(?:cores|vcpus)\s+quota|quota\s+limits?\s+of\s+core\b",
    ),
    # The code is known from other users of the API, and was not seen in launches of this provider.
    _Rule(_KIND.SUBNET_FULL, "SubnetIsFull", ("SubnetIsFull",)),
)
_DISALLOWED: Final = _Rule(_KIND.SIZE_DISALLOWED, "SizeDisallowedByPolicy", ())
_UNSUITABLE: Final = _Rule(_KIND.SIZE_UNSUITABLE, "SizeUnsuitable", ())
_OTHER: Final = _Rule(_KIND.OTHER, "CreateInstanceFailed", ())

_EXTENSION: Final = "vmextension"
"""Codes of failed extensions begin with it: `VMExtensionProvisioningError`."""
_NO_QUOTA: Final = re.compile(r"current limit:\s*0(?![\d.])", re.IGNORECASE)


class _Zones(Enum):
    """The zones in which a size becomes unavailable."""

    ATTEMPT = "attempt"
    SCOPE = "scope"
    """All zones of the size, or the region for an attempt without a zone."""
    ALL = "all"


class _Extent(NamedTuple):
    """Offerings of a size that a failure makes unavailable, by default for the capacity type of the attempt."""

    zones: _Zones
    of_both: bool = False
    """For spot and on-demand."""
    of_family: bool = True
    """Also of the larger sizes of its family."""
    life: timedelta = _LONG_LIFE


_EXTENTS: Final = {
    _KIND.FAMILY_QUOTA: _Extent(_Zones.ALL, life=_QUOTA_LIFE),
    _KIND.SIZE_DISALLOWED: _Extent(_Zones.ALL, of_both=True, of_family=False),
    _KIND.SIZE_UNSUITABLE: _Extent(_Zones.ALL, of_both=True, of_family=False),
    _KIND.SIZE_NOT_AVAILABLE: _Extent(_Zones.SCOPE),
    _KIND.SCOPE_OVERCONSTRAINED: _Extent(_Zones.SCOPE),
    _KIND.ZONE_OVERCONSTRAINED: _Extent(_Zones.ATTEMPT),
    _KIND.ZONE_FULL: _Extent(_Zones.ATTEMPT, of_both=True),
    _KIND.SCOPE_FULL: _Extent(_Zones.SCOPE, of_both=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFailure:
    """A failed launch, as Azure explains it."""

    kind: LaunchFailureKind
    code: str
    """Azure's code that decided; the outer one of an error that is not known."""
    reason: str
    """The reason of the condition `Launched`."""
    text: str
    """Reason, code and message for people, cut to `MAX_TEXT` characters."""
    life: timedelta = timedelta(0)
    """Time for which offerings stay unavailable; zero for none."""


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
    image: str
    node_pool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedMarks:
    """Everything that a failed launch makes unavailable."""

    shortages: tuple[Shortage, ...] = ()
    offerings: tuple[UnavailableOffering, ...] = ()

    def __bool__(self) -> bool:
        """Return whether anything becomes unavailable."""
        return bool(self.shortages or self.offerings)


def classify_failure(error: ArmError, *, size: str, capacity_type: str) -> LaunchFailure:
    """Return what a launch of this VM size and capacity type failed of; the size may be empty.

    Codes are compared at every depth of the error, and without case like the texts.
    """
    rule, code = _matching_rule(error, size)
    if rule is _OTHER:
        text = _joined(error.code or rule.reason, error.text or str(error))
    else:
        text = _joined(rule.reason, code, error.text)
    life = _life(rule.kind, error.text, capacity_type)
    return LaunchFailure(kind=rule.kind, code=code, reason=rule.reason, text=text, life=life)


def _matching_rule(error: ArmError, size: str) -> tuple[_Rule, str]:
    """Return the first rule that an error meets, and the code by which it does."""
    if disallows_size(error):
        return _DISALLOWED, error.code
    by_lower = {code.lower(): code for code in reversed(error.codes)}
    for rule in _RULES:
        codes = {code.lower() for code in rule.codes}
        code = next((by_lower[each] for each in by_lower if each in codes), None)
        if code is not None and re.search(rule.text, error.text, re.IGNORECASE):
            return rule, code
    return _UNSUITABLE if _blames_size(error.text, size) else _OTHER, error.code


def _blames_size(text: str, size: str) -> bool:
    """Whether an error of no known code names the size as the reason: another one may be accepted.

    Texts such as "The VM size 'NAME' cannot boot with OS image or disk" have several general codes.
    """
    name = rf"[('\"]?{re.escape(size)}(?![\w-])"
    said = rf"(?:VM|virtual machine|has) size {name}|{name}['\"]? provided for the VM size"
    return bool(size) and re.search(said, text, re.IGNORECASE) is not None


def is_of_launch(error: ArmError) -> bool:
    """Whether the failure of a virtual machine is that of its launch.

    An extension that fails leaves a virtual machine that runs in the state Failed, too. Only without
    the script that makes it join it is no node.
    """
    is_of_extension = any(code.lower().startswith(_EXTENSION) for code in error.codes)
    return not is_of_extension or SCRIPT_EXTENSION in error.text


def _joined(*parts: str) -> str:
    return ": ".join(part for part in parts if part)[:MAX_TEXT]


def _life(kind: LaunchFailureKind, text: str, capacity_type: str) -> timedelta:
    if kind is _KIND.REGIONAL_QUOTA:
        return REGIONAL_QUOTA_LIFE
    if kind is _KIND.SPOT_QUOTA or (kind is _KIND.FAMILY_QUOTA and _NO_QUOTA.search(text)):
        return _LONG_LIFE
    if kind is _KIND.SIZE_NOT_AVAILABLE and capacity_type != SPOT:
        return _NOT_SOLD_LIFE
    extent = _EXTENTS.get(kind)
    return timedelta(0) if extent is None else extent.life


def failed_marks(failure: LaunchFailure, attempt: LaunchAttempt) -> FailedMarks:
    """Return what a failed attempt makes unavailable."""
    if failure.kind is _KIND.SPOT_QUOTA:
        return FailedMarks(shortages=(Shortage(capacity_type=SPOT),))
    if failure.kind is _KIND.REGIONAL_QUOTA:
        covered = Shortage(capacity_type=attempt.capacity_type, least_cpu_milli=attempt.cpu_milli)
        return FailedMarks(shortages=(covered,))
    extent = _EXTENTS.get(failure.kind)
    if extent is None:
        return FailedMarks()
    if attempt.group and extent.of_family:
        zones = ("",) if extent.zones is _Zones.ALL else _zones(extent.zones, attempt)
        return FailedMarks(
            shortages=tuple(
                Shortage(
                    capacity_type="" if extent.of_both else attempt.capacity_type,
                    zone=zone,
                    group=attempt.group,
                    least_cpu_milli=attempt.cpu_milli,
                )
                for zone in zones
            )
        )
    if not attempt.instance_type:  # Azure does not describe the size of the virtual machine
        return FailedMarks()
    return FailedMarks(
        offerings=tuple(
            UnavailableOffering(attempt.instance_type, zone, each)
            for zone in _zones(extent.zones, attempt)
            for each in ((ON_DEMAND, SPOT) if extent.of_both else (attempt.capacity_type,))
        )
    )


def _zones(zones: _Zones, attempt: LaunchAttempt) -> tuple[str, ...]:
    """Return the labels of zones."""
    if zones is _Zones.ATTEMPT or (zones is _Zones.SCOPE and attempt.zone == REGIONAL_ZONE):
        return (attempt.zone,)
    regional = (REGIONAL_ZONE,) if zones is _Zones.ALL else ()
    return tuple(sorted({*attempt.size_zones, attempt.zone, *regional}))


def launch_error(
    failure: LaunchFailure, marks: FailedMarks, sizes_of: Callable[[str], Iterable[str]]
) -> CloudProviderError:
    """Return the core's error for a failed launch, which makes unavailable what `marks` cover.

    `sizes_of` returns the names of all VM sizes of a quota family: no label of instance types names
    families, so that there is a quota group for each size.
    """
    match failure.kind:
        case LaunchFailureKind.THROTTLED:
            return ThrottledError(failure.text)
        case LaunchFailureKind.OTHER:
            return LaunchFailedError(failure.text, reason=failure.reason)
        case LaunchFailureKind.SUBNET_FULL:
            return InsufficientCapacityError(failure.text, scope=ExhaustedScope.NODE_CLASS)
        case LaunchFailureKind.SIZE_DISALLOWED | LaunchFailureKind.SIZE_UNSUITABLE:
            # Offerings without a reason would be called sold out.
            sizes = dict.fromkeys(each.instance_type for each in marks.offerings)
            return InsufficientCapacityError(
                failure.text,
                quota_groups=[QuotaGroup(label=INSTANCE_TYPE, value=size) for size in sizes],
            )
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
                    QuotaGroup(
                        label=INSTANCE_TYPE if size else "",
                        value=size,
                        least_cpu_milli=shortage.least_cpu_milli,
                        zone=shortage.zone,
                        capacity_type=shortage.capacity_type,
                    )
                    for shortage in marks.shortages
                    for size in (sorted(sizes_of(shortage.group)) if shortage.group else ("",))
                ],
            )
