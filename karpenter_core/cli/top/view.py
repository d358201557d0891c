"""Defines the view of `karpenter top`: rows and totals, without I/O or UI."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_core.api.records import PodView

__all__ = [
    "HOURS_PER_MONTH", "ClusterView", "DecisionRow", "FeedStatus", "NodeRow", "NodeState", "PendingPod", "PendingState",
    "PoolRow", "ResourceUse", "Totals", "ViewOptions",
]  # fmt: skip

HOURS_PER_MONTH: Final = 730
"""8,760 hours of a year by 12."""


class NodeState(StrEnum):
    """States of a node, in the order of its life."""

    LAUNCHING = "Launching"
    REGISTERING = "Registering"
    INITIALIZING = "Initializing"
    READY = "Ready"
    NOT_READY = "NotReady"
    CORDONED = "Cordoned"
    DISRUPTED = "Disrupted"
    DRAINING = "Draining"
    TERMINATING = "Terminating"

    @property
    def is_leaving(self) -> bool:
        """Whether the node is being disrupted or removed."""
        return self in {NodeState.DISRUPTED, NodeState.DRAINING, NodeState.TERMINATING}


class PendingState(StrEnum):
    """Prospects of a pod without a node."""

    EXISTING = "existing"
    HELD = "held"
    LAUNCH = "launch"
    UNSCHEDULABLE = "unschedulable"


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """Requests of pods, and the amount that pods can use."""

    requested: int = 0
    allocatable: int = 0

    @property
    def share(self) -> float:
        """Return the used share; 1 if something is requested where there is nothing."""
        if self.allocatable > 0:
            return self.requested / self.allocatable
        return 1.0 if self.requested > 0 else 0.0

    def plus(self, other: ResourceUse) -> ResourceUse:
        """Return the sum of two."""
        return ResourceUse(self.requested + other.requested, self.allocatable + other.allocatable)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One Node, or a NodeClaim without a Node."""

    name: str
    node_claim: str
    pool: str
    instance_type: str
    zone: str
    capacity_type: str
    state: NodeState
    reason: str
    """Reason for a state other than ready; may be empty."""
    age_seconds: float | None
    uses: Mapping[str, ResourceUse]
    """By resource; `pods` counts pods."""
    price_per_hour: float | None
    """In the reporting currency; None if it is unknown."""
    pods: tuple[PodView, ...]
    """Pods on the node that have not finished."""
    created: datetime | None = None

    def use_of(self, resource: str) -> ResourceUse:
        """Return the use of a resource, also of one that the node does not have."""
        return self.uses.get(resource, _NOTHING)


_NOTHING: Final = ResourceUse()


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPod:
    """A pod without a node, and the reason."""

    key: str
    """`namespace/name`."""
    state: PendingState
    message: str
    age_seconds: float | None
    created: datetime | None = None
    pools: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, "Mapping[str, str]"])
    """For each NodePool the constraint that fails first, as in `karpenter plan -o json`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRow:
    """One NodePool, with the sums over its nodes."""

    name: str
    nodes: int
    price_per_hour: float
    uses: Mapping[str, ResourceUse]
    limits: Mapping[str, int]
    """Of the NodePool; empty if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """One of the last decisions, as the Events of the controller tell it."""

    title: str
    """`KIND/NAME`, or the number of objects."""
    objects: tuple[str, ...]
    reason: str
    message: str
    is_warning: bool
    count: int
    at: datetime
    age_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over nodes and pods."""

    nodes: int
    states: Mapping[str, int]
    """Number of nodes by state."""
    uses: Mapping[str, ResourceUse]
    price_per_hour: float
    unpriced_nodes: int
    """Nodes whose price is unknown: the sum does not contain them."""
    pods: int
    """Pods that have neither finished nor are being deleted."""
    running_pods: int
    bound_pods: int
    pending_pods: int
    """Pods without a node."""

    @property
    def price_per_month(self) -> float:
        """Return the price of 730 hours."""
        return self.price_per_hour * HOURS_PER_MONTH


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """Everything that `karpenter top` shows of one moment."""

    nodes: tuple[NodeRow, ...]
    pools: tuple[PoolRow, ...]
    pending: tuple[PendingPod, ...]
    totals: Totals
    resources: tuple[str, ...]
    currency: str
    has_prices: bool
    notes: tuple[str, ...] = ()
    awaited: str = ""
    """Objects that are still being listed: nothing is said about them, nor about requests."""
    decisions: tuple[DecisionRow, ...] = ()
    """The last decisions, the latest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedStatus:
    """The age of a view: awaited, live, or older than it should be."""

    progress: str = ""
    """Text about the first reading, until there is a view."""
    is_live: bool = False
    """Whether watches keep the view current."""
    lost: str = ""
    """The kinds whose watch is lost, with the reasons; their objects are those of `lost_at`."""
    lost_at: float = 0.0
    """Time of the last contact, by `time.monotonic`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOptions:
    """Options that select the contents of a view."""

    resources: tuple[str, ...]
    node_selector: Mapping[str, str]
    with_prices: bool = True
