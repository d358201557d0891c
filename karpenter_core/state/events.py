"""What can happen to the state: the only ways in.

`StateBuilder.fold(event)` is the one mutator. Watch events and the responses of our own writes
come in as objects; everything that is not an object (a decision, the end of a provider call, time
passing) comes in as one of the other events and lands in the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.nodeclass import NodeClass
from karpenter_core.api.nodepool import NodePool
from karpenter_core.api.records import (
    CSINodeView,
    DaemonSetView,
    NamespaceView,
    NodeView,
    PersistentVolumeClaimView,
    PersistentVolumeView,
    PodDisruptionBudgetView,
    PodView,
    ServiceView,
    StorageClassView,
    VolumeAttachmentView,
    WorkloadView,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from karpenter_core.errors import OfferingKey
    from karpenter_core.scheduling.problem import Catalogue

__all__ = [
    "CallFinished",
    "CallStarted",
    "CataloguePublished",
    "ClockSet",
    "DeletionMarked",
    "DeletionUnmarked",
    "Event",
    "Nominated",
    "Object",
    "Observed",
    "OfferingsExhausted",
    "PodsDecided",
    "RegistrationHealthReset",
    "RegistrationSettled",
    "Removed",
    "Synced",
    "Tick",
    "Wrote",
]

Object: TypeAlias = (
    PodView
    | NodeView
    | NodeClaim
    | NodePool
    | NodeClass
    | DaemonSetView
    | PodDisruptionBudgetView
    | PersistentVolumeClaimView
    | PersistentVolumeView
    | StorageClassView
    | CSINodeView
    | VolumeAttachmentView
    | NamespaceView
    | ServiceView
    | WorkloadView
)


@dataclass(frozen=True, slots=True)
class Observed:
    """A watch or list shows this object; an older resourceVersion of the same UID is ignored.

    An `authoritative` one is not: a complete list of an API server that was restored from a backup
    shows it, and what came after the backup has never been.
    """

    object: Object
    authoritative: bool = False


@dataclass(frozen=True, slots=True)
class Removed:
    """A watch or re-list shows that this object is gone; its UID is remembered as such."""

    object: Object


@dataclass(frozen=True, slots=True)
class Wrote:
    """The API server answered our write with this object (read-your-writes)."""

    object: Object


@dataclass(frozen=True, slots=True)
class Synced:
    """Every informer has listed its objects once."""


@dataclass(frozen=True, slots=True)
class CataloguePublished:
    """A pool has a (new) catalogue, or none any more."""

    pool: str
    catalogue: Catalogue | None


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A launch for this claim was handed to a provider."""

    claim_uid: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFinished:
    """A launch for this claim came back; `launched` is the claim as the provider completed it."""

    claim_uid: str
    launched: NodeClaim | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Nominated:
    """Pods are expected on these nodes or claims (by name); they are not disruptable until then."""

    names: tuple[str, ...]
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionMarked:
    """These claims (by name) are being taken away; their nodes are no capacity."""

    names: tuple[str, ...]
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionUnmarked:
    """A disruption of these claims was rolled back."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsDecided:
    """A pass decided about these pods: the claim or node each is meant for, or why none is."""

    placed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Pod UID to the name of its NodeClaim or Node."""
    failed: frozenset[str] = frozenset()
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingsExhausted:
    """These offerings were out of stock; masked with a growing time to live."""

    offerings: tuple[OfferingKey, ...]
    provider: str
    at: datetime
    node_class: str = ""
    """From which alone they cannot be had; empty for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationSettled:
    """A claim of this pool (by UID) registered, or was given up before it did.

    `reason` and `message` say why a launch failed; they are empty for what was launched.
    """

    pool_uid: str
    succeeded: bool
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationHealthReset:
    """What was remembered of a pool's registrations is replaced by this, oldest first."""

    pool_uid: str
    results: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed: entries past their expiry are dropped."""

    now: datetime


@dataclass(frozen=True, slots=True)
class ClockSet:
    """The wall clock was set, forwards or (negative) backwards; no time passed."""

    by: timedelta


Event: TypeAlias = (
    Observed
    | Removed
    | Wrote
    | Synced
    | CataloguePublished
    | CallStarted
    | CallFinished
    | Nominated
    | DeletionMarked
    | DeletionUnmarked
    | PodsDecided
    | OfferingsExhausted
    | RegistrationSettled
    | RegistrationHealthReset
    | Tick
    | ClockSet
)
