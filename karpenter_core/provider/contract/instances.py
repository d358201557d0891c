"""Listed instances; outcomes of termination, registration and drift checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from karpenter_core.errors import CloudProviderError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


__all__ = [
    "DriftFinding",
    "DriftOutcome",
    "FetchOutcome",
    "Instance",
    "InstanceListing",
    "RegistrationGate",
    "RegistrationRefusal",
    "TerminateOutcome",
    "TerminationStatus",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance of this cluster that the provider knows."""

    provider_id: str
    node_claim: str = ""
    """Name of the claim it was launched for, read from its tags."""
    token: str = ""
    """UID of that claim."""
    launched_for: tuple[str, ...] = ()
    """UIDs of all claims of its launch call, if the call was for several; empty for `token` alone."""
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    image_id: str = ""
    created: datetime | None = None
    terminating: bool = False
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


FetchOutcome: TypeAlias = Instance | CloudProviderError


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceListing:
    """The instances of this cluster that could be listed.

    `complete` is False if any region, page or account could not be read: the core deletes nothing
    because it is missing from an incomplete listing.
    """

    instances: tuple[Instance, ...]
    complete: bool = True
    problem: str = ""
    """The reason why it is incomplete."""
    as_of: datetime | None = None
    """The time that it shows, by `ProviderContext.clock`, if it may be behind; None: when it was read.

    An instance that was launched later may be missing, one that ended later may be there.
    """


class TerminationStatus(StrEnum):
    """The state of a termination."""

    STARTED = "started"
    GONE = "gone"


TerminateOutcome: TypeAlias = TerminationStatus | CloudProviderError


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationGate:
    """Delays a node's registration; the core calls the hook again after `retry_after`."""

    name: str
    retry_after: timedelta = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationRefusal:
    """Refuses a Node that shows the provider ID of an instance and is not the instance's."""

    reason: str
    """It follows the name of the Node in conditions and Events: `is not named like its instance`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftFinding:
    """The reason why an instance no longer matches its NodeClass."""

    reason: str


DriftOutcome: TypeAlias = DriftFinding | CloudProviderError | None
