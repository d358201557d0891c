"""Lean, immutable records of the Kubernetes objects that decisions read.

A cluster holds up to a hundred thousand pods, and decisions read about a tenth of the fields of
each, so these records hold only those. The fields that pods of one template share (all but names,
binding and status) are one `PodShape`: 65 MiB instead of 13 GiB for 100,000 pods, and whether two
pending pods are alike is a comparison by identity.

Quantities are already integers in fixed units when a record exists: `cpu` in milli-cores (rounded
up), everything else in base units (bytes, counts; rounded up). `kube.wire` decodes server bytes
into these; `testing.builders` builds them by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, TypeAlias

import msgspec

__all__ = [
    "LOWEST_PRIORITY",
    "AffinityTerm",
    "ContainerRequests",
    "ContainerStage",
    "Effect",
    "HostPort",
    "LabelSelector",
    "LabelSelectorRequirement",
    "NamespaceView",
    "NodeConditionView",
    "NodeSelectorRequirement",
    "NodeSelectorTerm",
    "NodeView",
    "OwnerView",
    "PodRequestParts",
    "PodShape",
    "PodView",
    "PreferredNodeTerm",
    "Resources",
    "Taint",
    "Toleration",
    "TopologySpread",
    "VirtualSource",
    "VolumeView",
    "WeightedAffinityTerm",
]

Resources: TypeAlias = Mapping[str, int]
"""Resource name to amount; `cpu` in milli-cores, everything else in base units."""

Effect: TypeAlias = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the records: frozen, compared by value."""


class Taint(Record, frozen=True, kw_only=True, gc=False):
    """A node taint; key and effect identify it, the value does not."""

    key: str
    effect: str
    value: str = ""
    time_added: str = ""
    """The server's text; kept only so that our writes do not lose it."""


class Toleration(Record, frozen=True, kw_only=True, gc=False):
    """A pod toleration; an empty key with `Exists` tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeSelectorRequirement(Record, frozen=True, kw_only=True):
    """One match expression over node labels."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Record, frozen=True, kw_only=True):
    """Expressions that must all match; `match_fields` is kept only to be refused."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class PreferredNodeTerm(Record, frozen=True, kw_only=True):
    """A preferred node affinity term with its weight, 1..100."""

    weight: int
    term: NodeSelectorTerm


class LabelSelectorRequirement(Record, frozen=True, kw_only=True):
    """One match expression over an object's labels."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Record, frozen=True, kw_only=True):
    """Labels and expressions that must all match; an empty selector matches everything."""

    match_labels: Mapping[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class AffinityTerm(Record, frozen=True, kw_only=True):
    """A pod (anti-)affinity term; None as selector matches nothing."""

    topology_key: str
    selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedAffinityTerm(Record, frozen=True, kw_only=True):
    """A preferred pod (anti-)affinity term with its weight, 1..100."""

    weight: int
    term: AffinityTerm


class TopologySpread(Record, frozen=True, kw_only=True):
    """One topology spread constraint of a pod."""

    topology_key: str
    max_skew: int
    when_unsatisfiable: str
    selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()

    @property
    def is_hard(self) -> bool:
        """Whether a pod that would break it is not scheduled."""
        return self.when_unsatisfiable == "DoNotSchedule"


class HostPort(Record, frozen=True, kw_only=True, gc=False):
    """A port that a pod claims on its node."""

    port: int
    protocol: str = "TCP"
    ip: str = "0.0.0.0"  # noqa: S104 - Kubernetes' spelling of "any address", nothing binds here


class VolumeView(Record, frozen=True, kw_only=True, gc=False):
    """A volume of a pod that is a PersistentVolumeClaim: named, or generated (ephemeral)."""

    name: str
    claim_name: str = ""
    ephemeral: bool = False
    storage_class: str | None = None


class OwnerView(Record, frozen=True, kw_only=True, gc=False):
    """An owner reference."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


LOWEST_PRIORITY: Final = -(2**31)
"""The priority of a virtual pod that gives way to every real pod: the lowest of the API."""


class VirtualSource(Record, frozen=True, kw_only=True, gc=False):
    """The object for which a virtual pod exists, such as a CapacityBuffer.

    A virtual pod exists in scheduling problems and what-ifs only: the cluster has no such object,
    so it is never nominated, patched or named in an Event.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> str:
        """`kind/namespace/name`."""
        return f"{self.kind}/{self.namespace}/{self.name}"

    def __str__(self) -> str:
        """Return kind, namespace and name: `CapacityBuffer web/headroom`."""
        return f"{self.kind} {self.namespace}/{self.name}"


class ContainerStage(StrEnum):
    """The part of a pod's life in which a container runs."""

    MAIN = "main"
    SIDECAR = "sidecar"
    """Starts among the init containers, and stays."""
    START_UP = "start-up"


class ContainerRequests(Record, frozen=True, kw_only=True):
    """The requests of one container."""

    name: str
    stage: ContainerStage
    requests: Resources = {}


class PodRequestParts(Record, frozen=True, kw_only=True):
    """The summands of a pod's requests; init containers are in their order."""

    containers: tuple[ContainerRequests, ...]
    overhead: Resources = {}
    pod_level_requests: Resources = {}
    pod_level_limits: Resources = {}


class PodShape(Record, frozen=True, kw_only=True, eq=False, weakref=True):
    """The fields that pods of one template share; interned, so equal shapes are one object.

    `requests` and `limits` are those of the whole pod (init containers, sidecars, overhead,
    pod-level resources, in-place resize: KEP-753, KEP-2837) and include `pods: 1`.
    """

    namespace: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    """Only the annotations some rule reads (do-not-disrupt, deletion cost …)."""
    requests: Resources = {}
    request_parts: PodRequestParts | None = None
    """The summands of `requests`, as the spec has them; None unless requests are predicted."""
    limits: Resources = {}
    node_selector: Mapping[str, str] = {}
    required_node_terms: tuple[NodeSelectorTerm, ...] = ()
    preferred_node_terms: tuple[PreferredNodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    pod_affinity: tuple[AffinityTerm, ...] = ()
    preferred_pod_affinity: tuple[WeightedAffinityTerm, ...] = ()
    pod_anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred_pod_anti_affinity: tuple[WeightedAffinityTerm, ...] = ()
    topology_spread: tuple[TopologySpread, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    volumes: tuple[VolumeView, ...] = ()
    priority: int = 0
    priority_class_name: str = ""
    scheduler_name: str = "default-scheduler"
    scheduling_gates: tuple[str, ...] = ()
    resource_claims: tuple[str, ...] = ()
    """The pod's names of its ResourceClaims (Dynamic Resource Allocation)."""
    resource_claim_names: Mapping[str, str] = {}
    """The ResourceClaims that the pod names itself, by the pod's name; others are generated."""
    resource_claim_templates: Mapping[str, str] = {}
    """The ResourceClaimTemplates that those are generated from, by the pod's name."""
    termination_grace_period_seconds: int | None = 30
    owner_api_version: str = ""
    """API version of the controlling owner, else of the first; `PodView` has its name and UID."""
    owner_kind: str = ""
    owner_controls: bool = True
    """Whether that owner controls the pods; meaningless without an owner."""
    is_pinned: bool = False
    """Whether a DaemonSet of another API group than Kubernetes' has pinned each pod to its node."""
    virtual_source: VirtualSource | None = None
    """The object for which the pods exist in simulations only; None for real pods."""

    @property
    def gives_way(self) -> bool:
        """Whether the pods are virtual and are placed after all others."""
        return self.virtual_source is not None and self.priority <= LOWEST_PRIORITY


class PodView(Record, frozen=True, kw_only=True, eq=False):
    """One pod: its shape and its own fields."""

    uid: str
    name: str
    shape: PodShape
    resource_version: int = 0
    node_name: str = ""
    phase: str = "Pending"
    created: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    start_time: datetime | None = None
    nominated_node_name: str = ""
    resource_claim_statuses: Mapping[str, str] = {}
    """The generated ResourceClaims, by the pod's name; an empty one is not needed."""
    owner_name: str = ""
    owner_uid: str = ""
    unschedulable: bool = False
    """Whether PodScheduled has the reason Unschedulable, with any status."""
    tried: bool = False
    """Whether PodScheduled is there: a scheduler has tried the pod, or gates hold it back."""
    ready: bool | None = None
    """The condition Ready; None if it is absent or Unknown."""
    ready_time: datetime | None = None
    scheduled_time: datetime | None = None

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return self.shape.namespace

    @property
    def key(self) -> str:
        """`namespace/name`, as users write it."""
        return f"{self.shape.namespace}/{self.name}"

    @property
    def is_virtual(self) -> bool:
        """Whether the pod exists in simulations only."""
        return self.shape.virtual_source is not None

    @property
    def is_terminal(self) -> bool:
        """Whether the pod has finished (Succeeded or Failed)."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def is_terminating(self) -> bool:
        """Whether the pod is being deleted (has a deletion timestamp)."""
        return self.deletion_timestamp is not None

    @property
    def is_active(self) -> bool:
        """Whether the pod is neither finished nor being deleted."""
        return self.deletion_timestamp is None and not self.is_terminal

    @property
    def is_daemon(self) -> bool:
        """Whether an apps/v1 DaemonSet owns the pod, or another one has pinned it to its node."""
        shape = self.shape
        return shape.owner_kind == "DaemonSet" and (
            shape.owner_api_version == "apps/v1" or shape.is_pinned
        )

    @property
    def is_mirror(self) -> bool:
        """Whether the pod mirrors a static pod of the kubelet (owned by a v1 Node)."""
        return self.shape.owner_kind == "Node" and self.shape.owner_api_version == "v1"

    @property
    def is_provisionable(self) -> bool:
        """Whether the pod is unschedulable and needs a new node or room on an existing one."""
        return self._waits and not self.nominated_node_name

    @property
    def is_nominated(self) -> bool:
        """Whether the pod waits for a scheduler, but its status nominates a node for it.

        The scheduler has refused it, or has not tried it yet.
        """
        return bool(self.nominated_node_name) and (self._waits or self.awaits_first_try)

    @property
    def is_untried(self) -> bool:
        """Whether the pod waits until a scheduler tries it for the first time."""
        return self.awaits_first_try and not self.nominated_node_name

    @property
    def awaits_first_try(self) -> bool:
        """Whether no scheduler has tried the pod yet, which may be nominated already."""
        return (
            not (self.tried or self.unschedulable)
            and not self.shape.scheduling_gates
            and self._needs_node
        )

    @property
    def _waits(self) -> bool:
        return self.unschedulable and self._needs_node

    @property
    def _needs_node(self) -> bool:
        return not self.node_name and self.is_active and not self.is_daemon and not self.is_mirror

    @property
    def is_reschedulable(self) -> bool:
        """Whether the pod needs another node if its node is removed."""
        if self.is_daemon or self.is_mirror:
            return False
        if self.is_terminal:
            return False
        return not self.is_terminating or (
            self.shape.owner_kind == "StatefulSet" and self.shape.owner_api_version == "apps/v1"
        )


class NodeConditionView(Record, frozen=True, kw_only=True, gc=False):
    """One condition of a Node."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class NodeView(Record, frozen=True, kw_only=True, eq=False):
    """One Node."""

    uid: str
    name: str
    resource_version: int = 0
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owners: tuple[OwnerView, ...] = ()
    created: datetime | None = None
    deletion_timestamp: datetime | None = None
    provider_id: str = ""
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    capacity: Resources = {}
    allocatable: Resources = {}
    conditions: tuple[NodeConditionView, ...] = ()
    kubelet_version: str = ""
    """As the kubelet reports it: `v1.34.2`; empty before it does."""

    @property
    def ready(self) -> str:
        """Status of the condition Ready: True, False or Unknown (also when there is none)."""
        for condition in self.conditions:
            if condition.type == "Ready":
                return condition.status
        return "Unknown"

    @property
    def is_deleting(self) -> bool:
        """Whether the Node is being deleted (has a deletion timestamp)."""
        return self.deletion_timestamp is not None


class NamespaceView(Record, frozen=True, kw_only=True, eq=False):
    """A namespace, for namespace selectors."""

    uid: str
    name: str
    resource_version: int = 0
    labels: Mapping[str, str] = {}
