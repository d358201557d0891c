"""Defines the events that change the state.

`StateBuilder.apply_event(event)` is the only mutator. Watch events and the responses of our own
writes carry objects; everything that is not an object (a decision, the end of a provider call, time
passing) is one of the other events and goes to the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from karpenter_core.api.autoscalers import VerticalPodAutoscalerView
from karpenter_core.api.capacity_buffer import CapacityBuffer
from karpenter_core.api.capacity_quota import CapacityQuota
from karpenter_core.api.devices import (
    DeviceClassView,
    ResourceClaimTemplateView,
    ResourceClaimView,
    ResourceSliceView,
)
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.nodeclass import NodeClass
from karpenter_core.api.nodeoverlay import NodeOverlay
from karpenter_core.api.nodepool import NodePool
from karpenter_core.api.provisioning_request import ProvisioningRequest
from karpenter_core.api.records import NamespaceView, NodeView, PodView
from karpenter_core.api.storage_records import (
    CSINodeView,
    PersistentVolumeClaimView,
    PersistentVolumeView,
    StorageClassView,
    VolumeAttachmentView,
)
from karpenter_core.api.workload_records import (
    DaemonSetView,
    PodDisruptionBudgetView,
    PodTemplateView,
    ServiceView,
    WorkloadView,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from karpenter_core.api.records import VirtualSource
    from karpenter_core.errors import OfferingMask
    from karpenter_core.scheduling.overlays import OverlayStore
    from karpenter_core.scheduling.problem import Catalogue
    from karpenter_core.scheduling.virtual_pods import VirtualPlacement

__all__ = [
    "CataloguePublished",
    "ClockSet",
    "DeletionMarked",
    "DeletionUnmarked",
    "InformersSynced",
    "LaunchCallFinished",
    "LaunchCallStarted",
    "NodesNominated",
    "ObjectObserved",
    "ObjectRemoved",
    "ObjectWritten",
    "OfferingsUnavailable",
    "OverlaysEvaluated",
    "PodReplacementEnded",
    "PodReplacementStarted",
    "PodsDecided",
    "RegistrationHealthReset",
    "RegistrationSettled",
    "StateEvent",
    "StateObject",
    "TimePassed",
    "VirtualPodsDeclared",
    "VirtualPodsPlaced",
]

StateObject: TypeAlias = (
    PodView
    | NodeView
    | NodeClaim
    | NodePool
    | NodeClass
    | NodeOverlay
    | DaemonSetView
    | PodDisruptionBudgetView
    | PersistentVolumeClaimView
    | PersistentVolumeView
    | StorageClassView
    | CSINodeView
    | VolumeAttachmentView
    | NamespaceView
    | ProvisioningRequest
    | ServiceView
    | WorkloadView
    | ResourceClaimView
    | ResourceSliceView
    | DeviceClassView
    | ResourceClaimTemplateView
    | VerticalPodAutoscalerView
    | PodTemplateView
    | CapacityBuffer
    | CapacityQuota
)


@dataclass(frozen=True, slots=True)
class ObjectObserved:
    """A watch or list shows this object; an older resourceVersion of the same UID is ignored.

    An `authoritative` one is not ignored: it is in a complete list of an API server that was
    restored from a backup, and later versions no longer exist.
    """

    object: StateObject
    authoritative: bool = False


@dataclass(frozen=True, slots=True)
class ObjectRemoved:
    """A watch or re-list shows that this object is gone; its UID is remembered."""

    object: StateObject


@dataclass(frozen=True, slots=True)
class ObjectWritten:
    """The API server answered our write with this object (read-your-writes)."""

    object: StateObject


@dataclass(frozen=True, slots=True)
class InformersSynced:
    """Every informer has listed its objects once."""


@dataclass(frozen=True, slots=True)
class CataloguePublished:
    """A pool has a new catalogue, or no longer has one."""

    pool: str
    catalogue: Catalogue | None


@dataclass(frozen=True, slots=True)
class OverlaysEvaluated:
    """All NodeOverlays were evaluated: what they change, in every pool at once."""

    store: OverlayStore


@dataclass(frozen=True, slots=True)
class LaunchCallStarted:
    """A launch for this claim was handed to a provider."""

    claim_uid: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCallFinished:
    """A launch call for this claim ended; `launched` is the claim as the provider completed it."""

    claim_uid: str
    launched: NodeClaim | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesNominated:
    """Pods are expected on these nodes or claims (names); they are not disrupted before `until`."""

    names: tuple[str, ...]
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionMarked:
    """These claims (by name) are being removed; their nodes are no longer capacity."""

    names: tuple[str, ...]
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionUnmarked:
    """A disruption of these claims was rolled back."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsDecided:
    """A pass decided about these pods: the claim or node of each, or that none was found."""

    placed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Pod UID to the name of its NodeClaim or Node."""
    failed: frozenset[str] = frozenset()
    at: datetime


@dataclass(frozen=True, slots=True)
class PodReplacementStarted:
    """A rollout is about to replace this pod (by UID): another pod takes the place that it needs."""

    uid: str


@dataclass(frozen=True, slots=True)
class PodReplacementEnded:
    """No rollout replaces this pod (by UID) any more."""

    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingsUnavailable:
    """These offerings were out of stock; masked with a growing time to live."""

    offerings: tuple[OfferingMask, ...]
    provider: str
    at: datetime
    node_class: str = ""
    """The only NodeClass for which they are unavailable; empty for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationSettled:
    """A claim of this pool (by UID) registered, or was given up before it did.

    `reason` and `message` say why a launch failed; they are empty for what was launched.
    """

    pool_uid: str
    succeeded: bool
    reason: str = ""
    message: str = ""
    demands: tuple[str, ...] = ()
    """Demands of the pods that the claim was launched for (`paused_pods.demand_of`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationHealthReset:
    """The recorded registrations of a pool are replaced by these, oldest first."""

    pool_uid: str
    results: tuple[bool, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualPodsDeclared:
    """The virtual pods of a source are known; they replace those declared before.

    None withdraws the source. An empty tuple says that the source is known to need none.
    """

    source: VirtualSource
    pods: tuple[PodView, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualPodsPlaced:
    """A pass decided about every virtual pod; replaces what the pass before said."""

    counts: Mapping[str, int]
    """Virtual pods on existing capacity, by the name of the NodeClaim, or of a Node without one."""
    placements: Mapping[VirtualSource, VirtualPlacement]


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time passed: entries past their expiry are dropped."""

    now: datetime


@dataclass(frozen=True, slots=True)
class ClockSet:
    """`now` was set, forwards or (negative) backwards; no time passed.

    `now` is the API server's time, as far as this is known: either that clock was set, or it became
    known how much this process's clock differs.
    """

    by: timedelta


StateEvent: TypeAlias = (
    ObjectObserved
    | ObjectRemoved
    | ObjectWritten
    | InformersSynced
    | CataloguePublished
    | OverlaysEvaluated
    | LaunchCallStarted
    | LaunchCallFinished
    | NodesNominated
    | DeletionMarked
    | DeletionUnmarked
    | PodsDecided
    | PodReplacementStarted
    | PodReplacementEnded
    | OfferingsUnavailable
    | RegistrationSettled
    | RegistrationHealthReset
    | VirtualPodsDeclared
    | VirtualPodsPlaced
    | TimePassed
    | ClockSet
)
