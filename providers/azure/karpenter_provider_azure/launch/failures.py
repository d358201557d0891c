"""Classifies errors of launches by their codes and texts. Pure functions.

An error is classified the same whether Azure refused the request or failed its operation later. Errors of
too many calls have the code of quotas and are recognised by their status first: `ArmClient` raises
`ThrottledError` for status 429.

Codes, texts and times are those of Karpenter's provider for Azure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from karpenter_core.api.labels import SPOT
from karpenter_provider_azure.arm.errors import disallows_size
from karpenter_provider_azure.launch.boot_data import SCRIPT_EXTENSION

if TYPE_CHECKING:
    from karpenter_provider_azure.arm.errors import ArmError

__all__ = [
    "REGIONAL_QUOTA_LIFE",
    "LaunchFailure",
    "LaunchFailureKind",
    "classify_failure",
    "is_of_launch",
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
    """The quota of a family of sizes, for the capacity type of the attempt."""
    SIZE_NOT_AVAILABLE = "size-not-available"
    """The size is not sold to the subscription, in the placement scope of the attempt."""
    SIZE_DISALLOWED = "size-disallowed"
    """A policy of the subscription does not allow the size."""
    ZONE_FULL = "zone-full"
    """The zone has no capacity, neither as spot nor on demand."""
    SCOPE_FULL = "scope-full"
    """The zones, or the region for virtual machines without a zone, have no capacity."""
    ZONE_OVERCONSTRAINED = "zone-overconstrained"
    """The zone has no capacity of the capacity type for what the request combines."""
    SCOPE_OVERCONSTRAINED = "scope-overconstrained"
    """The placement scope has no capacity of the capacity type for what the request combines."""
    REGIONAL_QUOTA = "regional-quota"
    """The quota of all cores of the region."""
    SUBNET_FULL = "subnet-full"
    THROTTLED = "throttled"
    OTHER = "other"


class _Rule(NamedTuple):
    codes: frozenset[str]
    text: re.Pattern[str] | None
    kind: LaunchFailureKind
    reason: str


def _rule(kind: LaunchFailureKind, reason: str, *codes: str, text: str = "") -> _Rule:
    pattern = re.compile(text, re.IGNORECASE) if text else None
    return _Rule(frozenset(code.lower() for code in codes), pattern, kind, reason)


_QUOTA_CODES: Final = ("OperationNotAllowed", "QuotaExceeded")
_QUOTA_REACHED: Final = "SubscriptionQuotaReached"
_TOO_MANY: Final = r"too many requests"
_RULES: Final = (
    _rule(LaunchFailureKind.THROTTLED, "", "TooManyRequests", "SubscriptionRequestsThrottled"),
    _rule(LaunchFailureKind.THROTTLED, "", "OperationNotAllowed", text=_TOO_MANY),
    _rule(
        LaunchFailureKind.SPOT_QUOTA, _QUOTA_REACHED, *_QUOTA_CODES, text=r"low\s*priority\s*cores"
    ),
    _rule(
        LaunchFailureKind.FAMILY_QUOTA,
        _QUOTA_REACHED,
        *_QUOTA_CODES,
        text=r"family\s+cores\s+quota",
    ),
    _rule(LaunchFailureKind.SIZE_NOT_AVAILABLE, "SKUNotAvailable", "SkuNotAvailable"),
    _rule(LaunchFailureKind.ZONE_FULL, "ZonalAllocationFailure", "ZonalAllocationFailed"),
    _rule(LaunchFailureKind.SCOPE_FULL, "AllocationFailure", "AllocationFailed"),
    _rule(
        LaunchFailureKind.ZONE_OVERCONSTRAINED,
        "OverconstrainedZonalAllocationFailure",
        "OverconstrainedZonalAllocationRequest",
    ),
    _rule(
        LaunchFailureKind.SCOPE_OVERCONSTRAINED,
        "OverconstrainedAllocationFailure",
        "OverconstrainedAllocationRequest",
    ),
    _rule(
        LaunchFailureKind.REGIONAL_QUOTA,
        _QUOTA_REACHED,
        *_QUOTA_CODES,
        text=r"total\s+regional\s+cores\s+quota",
    ),
    # The code is known from other users of the API, and was not seen in launches of this provider.
    _rule(LaunchFailureKind.SUBNET_FULL, "SubnetIsFull", "SubnetIsFull"),
)
_EXTENSION: Final = "vmextension"
"""Codes of failed extensions begin with it: `VMExtensionProvisioningError`."""
_NO_QUOTA: Final = re.compile(r"current limit:\s*0(?![\d.])", re.IGNORECASE)


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


def classify_failure(error: ArmError, *, capacity_type: str) -> LaunchFailure:
    """Return what a launch of this capacity type failed of.

    Codes are compared at every depth of the error, and without case like the texts.
    """
    if disallows_size(error):
        reason = "SizeDisallowedByPolicy"
        return LaunchFailure(
            kind=LaunchFailureKind.SIZE_DISALLOWED,
            code=error.code,
            reason=reason,
            text=_text(reason, error.code, error.text),
            life=_LONG_LIFE,
        )
    by_lower = {code.lower(): code for code in reversed(error.codes)}
    text = error.text
    for rule in _RULES:
        code = next((by_lower[lower] for lower in by_lower if lower in rule.codes), None)
        if code is not None and (rule.text is None or rule.text.search(text)):
            return LaunchFailure(
                kind=rule.kind,
                code=code,
                reason=rule.reason,
                text=_text(rule.reason, code, text),
                life=_life(rule.kind, text, capacity_type),
            )
    reason = "CreateInstanceFailed"
    return LaunchFailure(
        kind=LaunchFailureKind.OTHER,
        code=error.code,
        reason=reason,
        text=_text(error.code or reason, text or str(error)),
    )


def is_of_launch(error: ArmError) -> bool:
    """Whether the failure of a virtual machine is that of its launch.

    An extension that fails leaves a virtual machine that runs in the state Failed, too. Only without
    the script that makes it join it is no node.
    """
    is_of_extension = any(code.lower().startswith(_EXTENSION) for code in error.codes)
    return not is_of_extension or SCRIPT_EXTENSION in error.text


def _text(*parts: str) -> str:
    return ": ".join(part for part in parts if part)[:MAX_TEXT]


def _life(kind: LaunchFailureKind, text: str, capacity_type: str) -> timedelta:
    match kind:
        case (
            LaunchFailureKind.SPOT_QUOTA
            | LaunchFailureKind.SIZE_DISALLOWED
            | LaunchFailureKind.ZONE_FULL
            | LaunchFailureKind.SCOPE_FULL
            | LaunchFailureKind.ZONE_OVERCONSTRAINED
            | LaunchFailureKind.SCOPE_OVERCONSTRAINED
        ):
            return _LONG_LIFE
        case LaunchFailureKind.FAMILY_QUOTA:
            return _LONG_LIFE if _NO_QUOTA.search(text) else _QUOTA_LIFE
        case LaunchFailureKind.SIZE_NOT_AVAILABLE:
            return _LONG_LIFE if capacity_type == SPOT else _NOT_SOLD_LIFE
        case LaunchFailureKind.REGIONAL_QUOTA:
            return REGIONAL_QUOTA_LIFE
        case LaunchFailureKind.SUBNET_FULL | LaunchFailureKind.THROTTLED | LaunchFailureKind.OTHER:
            return timedelta(0)
