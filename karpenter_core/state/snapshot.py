"""Defines the immutable Snapshot of the cluster that every decision reads.

A Snapshot costs little: it shares all unchanged tables with the one before. It never changes; the
builder makes the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from karpenter_core.state.node_identity import is_node_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_core.api.autoscalers import VerticalPodAutoscalerView
    from karpenter_core.api.capacity_buffer import CapacityBuffer
    from karpenter_core.api.capacity_quota import CapacityQuota
    from karpenter_core.api.devices import (
        DeviceClassView,
        ResourceClaimTemplateView,
        ResourceClaimView,
        ResourceSliceView,
    )
    from karpenter_core.api.judgements import FailedJudgement
    from karpenter_core.api.nodeclaim import NodeClaim, NodeClassRef
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodeoverlay import NodeOverlay
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.provisioning_request import ProvisioningRequest
    from karpenter_core.api.records import (
        NamespaceView,
        NodeView,
        PodShape,
        PodView,
        Resources,
        Taint,
        VirtualSource,
    )
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
    from karpenter_core.scheduling.problem import Catalogue
    from karpenter_core.scheduling.virtual_pods import VirtualPlacement
    from karpenter_core.state.ledger_view import LedgerView
    from karpenter_core.state.pool_schedules import PoolSchedule

__all__ = ["Snapshot", "StateNode"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StateNode:
    """A node as the core sees it: a Node, a NodeClaim, or both joined by provider ID.

    Labels, annotations and taints come from the claim until the node is registered; zero
    quantities of an uninitialised node are filled from the claim; ephemeral and startup taints do
    not count before initialisation. A node without a claim is taken as it is.
    """

    name: str
    """The Node's name, else the NodeClaim's."""
    provider_id: str
    node: NodeView | None
    claim: NodeClaim | None
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    taints: tuple[Taint, ...]
    capacity: Resources
    allocatable: Resources
    pods: tuple[PodView, ...]
    """Bound and not terminal."""
    requests: Resources
    daemon_requests: Resources
    pool: str
    managed: bool
    registered: bool
    initialized: bool
    marked_for_deletion: bool
    nominated_until: datetime | None

    def is_nominated(self, now: datetime) -> bool:
        """Whether pods are still expected here."""
        return self.nominated_until is not None and now < self.nominated_until


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """Everything a decision may read; keys are names unless a field says otherwise."""

    version: int
    synced: bool
    ledger: LedgerView
    node_pools: Mapping[str, NodePool] = field(default_factory=dict[str, "NodePool"])
    """As they are in force: with what the open windows of their schedules change."""
    pool_schedules: Mapping[str, PoolSchedule] = field(default_factory=dict[str, "PoolSchedule"])
    """By pool name; pools without schedules are absent."""
    node_claims: Mapping[str, NodeClaim] = field(default_factory=dict[str, "NodeClaim"])
    node_classes: Mapping[tuple[str, str, str], NodeClass] = field(
        default_factory=dict[tuple[str, str, str], "NodeClass"],
    )
    """By group, kind and name."""
    node_overlays: Mapping[str, NodeOverlay] = field(default_factory=dict[str, "NodeOverlay"])
    nodes: Mapping[str, NodeView] = field(default_factory=dict[str, "NodeView"])
    pods: Mapping[str, PodView] = field(default_factory=dict[str, "PodView"])
    """By UID."""
    pods_by_node: Mapping[str, tuple[PodView, ...]] = field(
        default_factory=dict[str, "tuple[PodView, ...]"],
    )
    unbound_pods: Mapping[str, PodView] = field(default_factory=dict[str, "PodView"])
    """Pods without a node that have not finished, by UID; also those that nothing is planned for."""
    pending_pods: Mapping[str, PodView] = field(default_factory=dict[str, "PodView"])
    """By UID: the provisionable ones."""
    nominated_pods: Mapping[str, PodView] = field(default_factory=dict[str, "PodView"])
    """By UID: those that wait for the node that their status names."""
    untried_pods: Mapping[str, PodView] = field(default_factory=dict[str, "PodView"])
    """By UID: those that no scheduler has tried yet."""
    refused_shapes: Mapping[PodShape, int] = field(default_factory=dict["PodShape", int])
    """The number of pending pods of each shape."""
    daemon_sets: Mapping[str, DaemonSetView] = field(default_factory=dict[str, "DaemonSetView"])
    """By `namespace/name`, like the next two."""
    disruption_budgets: Mapping[str, PodDisruptionBudgetView] = field(
        default_factory=dict[str, "PodDisruptionBudgetView"],
    )
    volume_claims: Mapping[str, PersistentVolumeClaimView] = field(
        default_factory=dict[str, "PersistentVolumeClaimView"],
    )
    volumes: Mapping[str, PersistentVolumeView] = field(
        default_factory=dict[str, "PersistentVolumeView"],
    )
    storage_classes: Mapping[str, StorageClassView] = field(
        default_factory=dict[str, "StorageClassView"],
    )
    csi_nodes: Mapping[str, CSINodeView] = field(default_factory=dict[str, "CSINodeView"])
    volume_attachments: Mapping[str, VolumeAttachmentView] = field(
        default_factory=dict[str, "VolumeAttachmentView"],
    )
    namespaces: Mapping[str, NamespaceView] = field(default_factory=dict[str, "NamespaceView"])
    services: Mapping[str, ServiceView] = field(default_factory=dict[str, "ServiceView"])
    """By `namespace/name`; empty unless pods get a default topology spread."""
    workloads: Mapping[str, WorkloadView] = field(default_factory=dict[str, "WorkloadView"])
    """By `kind/namespace/name`: the controllers of pods; empty unless there is a default topology
    spread or there are CapacityBuffers."""
    resource_claims: Mapping[str, ResourceClaimView] = field(
        default_factory=dict[str, "ResourceClaimView"],
    )
    """By `namespace/name`; empty while requests for devices are ignored, like the next three."""
    resource_claim_templates: Mapping[str, ResourceClaimTemplateView] = field(
        default_factory=dict[str, "ResourceClaimTemplateView"],
    )
    """By `namespace/name`."""
    resource_slices: Mapping[str, ResourceSliceView] = field(
        default_factory=dict[str, "ResourceSliceView"],
    )
    device_classes: Mapping[str, DeviceClassView] = field(
        default_factory=dict[str, "DeviceClassView"],
    )
    vertical_pod_autoscalers: Mapping[str, VerticalPodAutoscalerView] = field(
        default_factory=dict[str, "VerticalPodAutoscalerView"]
    )
    """By `namespace/name`; empty unless requests are predicted."""
    capacity_buffers: Mapping[str, CapacityBuffer] = field(
        default_factory=dict[str, "CapacityBuffer"]
    )
    """By `namespace/name`; empty without the feature gate."""
    provisioning_requests: Mapping[str, ProvisioningRequest] = field(
        default_factory=dict[str, "ProvisioningRequest"]
    )
    """By `namespace/name`; empty unless they are served."""
    pod_templates: Mapping[str, PodTemplateView] = field(
        default_factory=dict[str, "PodTemplateView"],
    )
    """By `namespace/name`."""
    capacity_quotas: Mapping[str, CapacityQuota] = field(
        default_factory=dict[str, "CapacityQuota"],
    )
    """Empty unless they are enforced."""
    set_aside: tuple[FailedJudgement, ...] = ()
    """Nodes that are not in `state_nodes`, since joining Node and NodeClaim failed."""
    outlined_state_nodes: tuple[StateNode, ...] = ()
    """Outlines of those: they count against limits and budgets of their pools."""
    catalogues: Mapping[str, Catalogue] = field(default_factory=dict[str, "Catalogue"])
    """By pool name, as overlays change them and with unavailable offerings masked."""
    listed_catalogues: Mapping[str, Catalogue] = field(default_factory=dict[str, "Catalogue"])
    """By pool name, as providers and plug-ins list them."""
    daemon_pods: Mapping[str, PodView] = field(default_factory=dict[str, "PodView"])
    """By UID of the DaemonSet: the newest of its pods."""
    state_nodes: tuple[StateNode, ...] = ()
    """By name."""
    state_nodes_by_node: Mapping[str, StateNode] = field(default_factory=dict[str, StateNode])
    state_nodes_by_claim: Mapping[str, StateNode] = field(default_factory=dict[str, StateNode])
    nodes_by_provider_id: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict[str, tuple[str, ...]],
    )
    claims_by_provider_id: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict[str, tuple[str, ...]],
    )
    claims_by_node_name: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict[str, tuple[str, ...]],
    )
    """By `status.nodeName`: the claims that the Node of this name registered for."""
    virtual_pods: Mapping[VirtualSource, tuple[PodView, ...]] = field(
        default_factory=dict["VirtualSource", "tuple[PodView, ...]"],
    )
    """Pods that exist in scheduling problems and what-ifs only, by the object that asks for them."""
    virtual_placements: Mapping[VirtualSource, VirtualPlacement] = field(
        default_factory=dict["VirtualSource", "VirtualPlacement"],
    )
    """Nodes that a pass chose for the virtual pods of each source; absent until one has decided."""
    virtual_pod_counts: Mapping[str, int] | None = None
    """Virtual pods that the last pass put on existing capacity, by the name of the NodeClaim, or of
    a Node without one; None before the first pass."""
    managed_kinds: frozenset[tuple[str, str]] = frozenset()
    """Group and kind of every NodeClass that some loaded provider serves."""

    @property
    def counted_nodes(self) -> tuple[StateNode, ...]:
        """Return every node that counts for its pool, including those that were set aside."""
        return (*self.state_nodes, *self.outlined_state_nodes)

    def nodes_of(self, claim: NodeClaim) -> tuple[NodeView, ...]:
        """Return the Nodes of a claim: several only until one of them registers.

        A claim without a provider ID has none. `refused_nodes_of` has the others that show its id.
        """
        return tuple(node for node in self._nodes_with_id_of(claim) if is_node_of(claim, node))

    def refused_nodes_of(self, claim: NodeClaim) -> tuple[NodeView, ...]:
        """Return the Nodes that show the claim's provider ID and cannot be the claim's."""
        return tuple(node for node in self._nodes_with_id_of(claim) if not is_node_of(claim, node))

    def claims_of(self, node: NodeView) -> tuple[NodeClaim, ...]:
        """Return every NodeClaim whose Node this can be; one without a provider ID has none."""
        if not node.provider_id:
            return ()
        names = self.claims_by_provider_id.get(node.provider_id, ())
        claims = (self.node_claims[name] for name in names)
        return tuple(claim for claim in claims if is_node_of(claim, node))

    def state_node(self, name: str) -> StateNode | None:
        """Return the state node with a claim or, failing that, a node of this name."""
        return self.state_nodes_by_claim.get(name) or self.state_nodes_by_node.get(name)

    @property
    def waiting_count(self) -> int:
        """The number of pods that the scheduler has refused or has not tried yet."""
        return len(self.pending_pods) + len(self.untried_pods)

    @property
    def has_virtual_pods(self) -> bool:
        """Whether any object asks for virtual pods."""
        return any(self.virtual_pods.values())

    def _nodes_with_id_of(self, claim: NodeClaim) -> tuple[NodeView, ...]:
        if not claim.status.provider_id:
            return ()
        names = self.nodes_by_provider_id.get(claim.status.provider_id, ())
        return tuple(self.nodes[name] for name in names)

    def manages(self, ref: NodeClassRef) -> bool:
        """Tell whether some loaded provider serves this kind of NodeClass."""
        return (ref.group, ref.kind) in self.managed_kinds
