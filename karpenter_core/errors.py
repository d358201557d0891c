"""Everything karpenter_core raises on purpose.

KarpenterError
├── CloudProviderError              what a provider answers; carried in outcomes or raised
│   ├── NodeClaimNotFoundError      the instance is gone; finalizers may go too
│   ├── InsufficientCapacityError   try other offerings; not an alarm
│   ├── NodeClassNotReadyError      wait for the NodeClass
│   ├── ThrottledError              wait `retry_after`, if said; nothing was done
│   ├── AuthError                   credentials or permission; names the action
│   ├── LaunchFailedError           carries condition reason and message
│   ├── TerminationRefusedError     this instance may not be terminated; the others of its batch may
│   └── CallPendingError            the time limit passed, the call is still open; do not repeat it
├── SchedulingError
│   └── UnevaluatedNodePoolError    a pool could not be looked at; do not judge it empty
├── ApiError                        Kubernetes said no; status, reason, retry_after
│   ├── NotFoundError (404)
│   ├── ConflictError (409)         stale resourceVersion, or the name is taken
│   ├── GoneError (410)             the resourceVersion is too old: list again
│   ├── InvalidError (422)          the object breaks its schema
│   └── TooManyRequestsError (429)  throttled, or an eviction refused by a budget
├── FencedError                     a write was refused because the lease is not held
├── PluginError                     hook missing, wrong version, two owners of one kind
├── SettingsError                   a flag, variable or file that cannot be used
└── BadInputError                   an object or file given by a user; names object, field, value

A class exists only because somebody catches it. Messages are fragments in lower case with the
values in them; causes are chained.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
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
    "PluginError",
    "SchedulingError",
    "SettingsError",
    "TerminationRefusedError",
    "ThrottledError",
    "TooManyRequestsError",
    "UnevaluatedNodePoolError",
]


class KarpenterError(Exception):
    """Base of every error this project raises on purpose."""


class CloudProviderError(KarpenterError):
    """The cloud, or the plug-in in front of it, refused."""


class NodeClaimNotFoundError(CloudProviderError):
    """No instance stands behind this provider id any more."""


class ExhaustedScope(StrEnum):
    """Scope of a stock-out; decides which offerings the core makes unavailable."""

    OFFERING = "offering"
    NODE_CLASS = "node-class"
    """The offerings cannot be had from the claim's NodeClass, whose subnets are full, say."""
    FAMILY_QUOTA = "family-quota"
    ZONE = "zone"
    REGION = "region"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingKey:
    """One thing a cloud sells: an instance type, in a zone, under a capacity type."""

    instance_type: str
    zone: str
    capacity_type: str


class InsufficientCapacityError(CloudProviderError):
    """No requested offering has capacity right now.

    `offerings` are the ones that were tried and found empty; the core masks them and schedules the
    pods again, for pools of all NodeClasses unless the scope is one. For a zone or a region it masks everything there of their capacity types; what
    shares a family's quota only the provider knows, who names it all. Without `offerings` it masks
    whatever the claim could have become.
    """

    def __init__(
        self,
        message: str,
        *,
        offerings: Sequence[OfferingKey] = (),
        scope: ExhaustedScope = ExhaustedScope.OFFERING,
    ) -> None:
        super().__init__(message)
        self.offerings: Final = tuple(offerings)
        self.scope: Final = scope


class NodeClassNotReadyError(CloudProviderError):
    """The NodeClass stopped being usable between scheduling and launch."""


class ThrottledError(CloudProviderError):
    """The cloud asked to be left alone for a while; nothing was done.

    `retry_after` is how long, None where it did not say: the core's wait then grows from time to time.
    """

    def __init__(self, message: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after: Final = retry_after


class AuthError(CloudProviderError):
    """Credentials are missing or do not permit `action`.

    The `reason` of a launch ends up in the `Launched` condition, as that of `LaunchFailedError` does.
    """

    def __init__(self, message: str, *, action: str, reason: str = "") -> None:
        super().__init__(message)
        self.action: Final = action
        self.reason: Final = reason


class LaunchFailedError(CloudProviderError):
    """A launch that waiting will not heal; `reason` ends up in the `Launched` condition."""

    def __init__(self, message: str, *, reason: str = "LaunchFailed") -> None:
        super().__init__(message)
        self.reason: Final = reason


class TerminationRefusedError(CloudProviderError):
    """The cloud refuses to terminate this instance until somebody lifts what protects it.

    The message names the instance and the reason; it becomes an Event on NodeClaim and Node.
    """


class CallPendingError(CloudProviderError):
    """A provider has not answered within its time limit, and may still do what it was asked.

    It never means "did not happen": the same work is not handed over again while the call is open,
    and its result is folded in when it comes.
    """


class SchedulingError(KarpenterError):
    """A pass could not be computed."""


class UnevaluatedNodePoolError(SchedulingError):
    """A pool's catalogue is not known yet; its nodes are not to be judged."""

    def __init__(self, node_pool: str) -> None:
        super().__init__(f'nodepool "{node_pool}" is awaiting evaluation')
        self.node_pool: Final = node_pool


class ApiError(KarpenterError):
    """Kubernetes answered with a failure, or not at all (`status` 0)."""

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


class NotFoundError(ApiError):
    """404: the object is not there."""


class ConflictError(ApiError):
    """409: the resourceVersion is stale, or an object of that name exists."""


class GoneError(ApiError):
    """410: the resourceVersion is no longer kept; list again."""


class InvalidError(ApiError):
    """422: the object breaks its schema or a CEL rule."""


class TooManyRequestsError(ApiError):
    """429: throttled, or, with the cause `DisruptionBudget`, an eviction that a budget refuses."""


class FencedError(KarpenterError):
    """A write was held back because this process does not hold the lease now."""


class PluginError(KarpenterError):
    """A plug-in that cannot be used, and why, naming both sides of a clash."""


class SettingsError(KarpenterError):
    """A flag, environment variable or file given at start that cannot be used."""


class BadInputError(KarpenterError):
    """An object or file from a user that cannot be used; names object, field and value."""
