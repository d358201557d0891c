"""Defines every error that karpenter_core raises on purpose.

KarpenterError
├── CloudProviderError              errors of providers; returned as outcomes or raised
│   ├── NodeClaimNotFoundError      the instance does not exist; finalizers can be removed
│   ├── InsufficientCapacityError   try other offerings; not an alarm
│   ├── NodeClassNotReadyError      wait for the NodeClass
│   ├── ThrottledError              wait for `retry_after`, if given; nothing was done
│   ├── AuthError                   credentials or permission; names the action
│   ├── LaunchFailedError           has the reason and message of the condition
│   ├── TerminationRefusedError     this instance may not be terminated; others of the batch are
│   └── CallPendingError            the time limit passed, the call is still open; do not repeat it
├── SchedulingError
│   └── UnevaluatedNodePoolError    the catalogue of a NodePool is not known
├── ApiError                        the API server refused; status, reason, retry_after
│   ├── NotFoundError (404)
│   ├── ConflictError (409)         stale resourceVersion, or the name is taken
│   ├── GoneError (410)             the resourceVersion is too old: list again
│   ├── InvalidError (422)          the object violates its schema
│   └── TooManyRequestsError (429)  throttled, or an eviction refused by a budget
├── FencedError                     a write was refused because the lease is not held
├── PluginError                     hook missing, wrong version, two owners of one kind
├── SettingsError                   a flag, variable or file that cannot be used
└── BadInputError                   an object or file given by a user; names object, field, value

A class exists only if some code catches it. Messages are fragments in lower case with the
values in them; causes are chained.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = [
    "ALL_HOOKS",
    "ApiError",
    "AuthError",
    "BadInputError",
    "CallPendingError",
    "CloudProviderError",
    "ConflictError",
    "ExhaustedScope",
    "FencedError",
    "GoneError",
    "InsufficientCapacityError",
    "InvalidError",
    "KarpenterError",
    "LaunchFailedError",
    "NodeClaimNotFoundError",
    "NodeClassNotReadyError",
    "NotFoundError",
    "OfferingKey",
    "OfferingMask",
    "PluginError",
    "QuotaGroup",
    "SchedulingError",
    "SettingsError",
    "TerminationRefusedError",
    "ThrottledError",
    "TooManyRequestsError",
    "UnevaluatedNodePoolError",
    "is_webhook_denial",
]


class KarpenterError(Exception):
    """Base of every error that this project raises on purpose."""


class CloudProviderError(KarpenterError):
    """The cloud, or its plug-in, refused or failed."""


class NodeClaimNotFoundError(CloudProviderError):
    """No instance exists with this provider ID."""


class ExhaustedScope(StrEnum):
    """Scope of a stock-out; decides which offerings the core makes unavailable."""

    OFFERING = "offering"
    PLACEMENT = "placement"
    """The instance types have no capacity in these zones, neither as spot nor on demand."""
    NODE_CLASS = "node-class"
    """The offerings have no capacity for the claim's NodeClass, for example because its subnets are
    full.
    """
    FAMILY_QUOTA = "family-quota"
    """A quota that several instance types share; the offerings, or `quota_groups`, name all of them."""
    ZONE = "zone"
    REGION = "region"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingKey:
    """An offering: an instance type, in a zone, with a capacity type."""

    instance_type: str
    zone: str
    capacity_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaGroup:
    """Offerings that share a quota, named without a list of instance types.

    An offering is in the group if all fields match it; an empty field matches every offering.

    TypeError: a field has another type. ValueError: a label has no value, or a value no label.
    """

    label: str = ""
    """A label that instance types or offerings define, such as that of the instance family."""
    value: str = ""
    """The value of this label."""
    least_cpu_milli: int = 0
    """Only instance types whose capacity has at least this CPU, in milli-cores."""
    zone: str = ""
    capacity_type: str = ""

    def __post_init__(self) -> None:
        """Refuse fields that would mask everything, or fail when they are compared."""
        for name in ("label", "value", "zone", "capacity_type"):
            _check_type(f"QuotaGroup.{name}", getattr(self, name), str)
        _check_type("QuotaGroup.least_cpu_milli", self.least_cpu_milli, int)
        if bool(self.label) != bool(self.value):
            raise ValueError(
                "QuotaGroup.label and QuotaGroup.value must be given together, not "
                f"{self.label!r} and {self.value!r}"
            )


OfferingMask: TypeAlias = OfferingKey | QuotaGroup
"""The offerings that a shortage makes unavailable."""


class InsufficientCapacityError(CloudProviderError):
    """No requested offering has capacity now.

    `offerings` are the offerings that were tried and had no capacity. The core makes them
    unavailable and schedules the pods again, for NodePools of all NodeClasses unless the scope is
    one NodeClass. For a placement it makes the same instance types in the same zones unavailable,
    as spot and on demand; for a zone or a region all offerings of their capacity types there. The
    offerings of `quota_groups` become unavailable too, whatever the scope. Without `offerings` and
    `quota_groups`, or if the groups match no requested offering, all offerings that the claim allows
    become unavailable.

    TypeError: an offering is no `OfferingKey`, or a quota group no `QuotaGroup`. ValueError: there is
    no such scope.
    """

    def __init__(
        self,
        message: str,
        *,
        offerings: Sequence[OfferingKey] = (),
        scope: ExhaustedScope = ExhaustedScope.OFFERING,
        quota_groups: Sequence[QuotaGroup] = (),
    ) -> None:
        super().__init__(message)
        self.offerings: Final = tuple(offerings)
        self.scope: Final = ExhaustedScope(scope)
        self.quota_groups: Final = tuple(quota_groups)
        for key in self.offerings:
            _check_type("InsufficientCapacityError.offerings", key, OfferingKey)
        for group in self.quota_groups:
            _check_type("InsufficientCapacityError.quota_groups", group, QuotaGroup)


def _check_type(field: str, value: object, wanted: type) -> None:
    if not isinstance(value, wanted):
        raise TypeError(f"{field} must have the type {wanted.__name__}, not {value!r}")


class NodeClassNotReadyError(CloudProviderError):
    """The NodeClass became unusable between scheduling and launch."""


ALL_HOOKS: Final = "all"
"""In `ThrottledError.pauses`: all hooks of the provider that call the cloud."""


class ThrottledError(CloudProviderError):
    """The cloud throttled the call; nothing was done.

    `retry_after` is the time to wait, None if the cloud named none: the core's wait then grows.
    `pauses` are the names of all hooks whose calls the cloud would throttle too, or `ALL_HOOKS`: the
    core does not call them for `retry_after` (a second without one, five minutes at most). Without
    names only this call waits.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after: timedelta | None = None,
        pauses: Collection[str] = (),
    ) -> None:
        super().__init__(message)
        if retry_after is not None:
            _check_type("ThrottledError.retry_after", retry_after, timedelta)
        self.retry_after: Final = retry_after
        self.pauses: Final = frozenset(pauses)


class AuthError(CloudProviderError):
    """Credentials are missing or do not permit `action`.

    The `reason` of a launch becomes the reason of the `Launched` condition, as for
    `LaunchFailedError`.
    """

    def __init__(self, message: str, *, action: str, reason: str = "") -> None:
        super().__init__(message)
        self.action: Final = action
        self.reason: Final = reason


class LaunchFailedError(CloudProviderError):
    """A launch that retries cannot solve; `reason` becomes the reason of the `Launched` condition."""

    def __init__(self, message: str, *, reason: str = "LaunchFailed") -> None:
        super().__init__(message)
        _check_type("LaunchFailedError.reason", reason, str)
        self.reason: Final = reason


class TerminationRefusedError(CloudProviderError):
    """The cloud refuses to terminate this instance until its protection is removed.

    The message names the instance and the reason; it becomes an Event on NodeClaim and Node.
    """


class CallPendingError(CloudProviderError):
    """A provider call exceeded its time limit, and may still be executed.

    It never means that the call had no effect: the same work is not requested again while the call
    is open, and its result is applied when it arrives.
    """


class SchedulingError(KarpenterError):
    """A scheduling pass could not be computed."""


class UnevaluatedNodePoolError(SchedulingError):
    """The catalogue of a NodePool is not known yet; its nodes must not be evaluated."""

    def __init__(self, node_pool: str) -> None:
        super().__init__(f'nodepool "{node_pool}" is awaiting evaluation')
        self.node_pool: Final = node_pool


class ApiError(KarpenterError):
    """The API server answered with an error, or not at all (`status` 0)."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        reason: str = "",
        retry_after: timedelta | None = None,
        causes: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.status: Final = status
        self.reason: Final = reason
        self.retry_after: Final = retry_after
        self.causes: Final = tuple(causes)
        """Reasons in `details.causes` of the Status."""


def is_webhook_denial(message: str) -> bool:
    """Tell whether an API server's message says that an admission webhook has denied a write.

    The webhook chooses the status code: also 404, 409 or 500, which mean something else otherwise.
    """
    return "admission webhook" in message and "denied the request" in message


class NotFoundError(ApiError):
    """404: the object does not exist."""


class ConflictError(ApiError):
    """409: the resourceVersion is stale, or an object of that name exists."""


class GoneError(ApiError):
    """410: the resourceVersion is no longer kept; list again."""


class InvalidError(ApiError):
    """422: the object violates its schema or a CEL rule."""


class TooManyRequestsError(ApiError):
    """429: throttled, or, with the cause `DisruptionBudget`, an eviction that a budget refuses."""


class FencedError(KarpenterError):
    """A write was not sent because this process does not hold the lease."""


class PluginError(KarpenterError):
    """A plug-in cannot be used; the message names both plug-ins of a conflict."""


class SettingsError(KarpenterError):
    """A flag, environment variable or file given at start cannot be used."""


class BadInputError(KarpenterError):
    """An object or file from a user cannot be used; names object, field and value."""
