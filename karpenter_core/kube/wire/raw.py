# ruff: noqa: D101 - the structs mirror the API; its reference documents them
"""Structs for the fields of Kubernetes' JSON that we read.

A typed decoder skips what is not named here (environments, probes, managed fields) without making
Python objects of it: that is where the speed comes from. These structs live only while a page is
decoded; the records of `api.records` are what stays.
"""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

import msgspec

__all__ = [
    "Amount",
    "Amounts",
    "RawCSINode",
    "RawContainer",
    "RawContainerStatus",
    "RawDaemonSet",
    "RawHeldResources",
    "RawMeta",
    "RawNamespace",
    "RawNode",
    "RawNodeSelector",
    "RawPersistentVolume",
    "RawPersistentVolumeClaim",
    "RawPod",
    "RawPodDisruptionBudget",
    "RawPodSpec",
    "RawPodStatus",
    "RawPodTemplate",
    "RawPodTemplateObject",
    "RawReplicationController",
    "RawResources",
    "RawSelector",
    "RawService",
    "RawStorageClass",
    "RawTemplatedWorkload",
    "RawTopologyTerm",
    "RawVolumeAttachment",
    "RawWorkload",
]

Amount: TypeAlias = str | int | float
Amounts: TypeAlias = dict[str, Amount]


class _Raw(msgspec.Struct, rename="camel", omit_defaults=True):
    """Base: camelCase on the wire, absent fields take defaults, defaults are not encoded."""


class RawOwner(_Raw, gc=False):
    api_version: str = msgspec.field(name="apiVersion", default="")
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class RawMeta(_Raw):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[RawOwner] | None = None


class RawResources(_Raw):
    requests: Amounts | None = None
    limits: Amounts | None = None


class RawPort(_Raw, gc=False):
    container_port: int = 0
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(name="hostIP", default="")


class RawContainer(_Raw):
    name: str = ""
    resources: RawResources | None = None
    restart_policy: str | None = None
    ports: list[RawPort] | None = None


class RawExpression(_Raw):
    key: str
    operator: str
    values: list[str] | None = None


class RawSelector(_Raw):
    match_labels: dict[str, str] | None = None
    match_expressions: list[RawExpression] | None = None


class RawNodeTerm(_Raw):
    match_expressions: list[RawExpression] | None = None
    match_fields: list[RawExpression] | None = None


class RawPreferredNodeTerm(_Raw):
    weight: int
    preference: RawNodeTerm


class RawNodeSelector(_Raw):
    node_selector_terms: list[RawNodeTerm] | None = None


class RawNodeAffinity(_Raw):
    required: RawNodeSelector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: list[RawPreferredNodeTerm] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class RawAffinityTerm(_Raw):
    topology_key: str = ""
    label_selector: RawSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: RawSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class RawWeightedAffinityTerm(_Raw):
    weight: int
    pod_affinity_term: RawAffinityTerm


class RawPodAffinity(_Raw):
    required: list[RawAffinityTerm] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: list[RawWeightedAffinityTerm] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class RawAffinity(_Raw):
    node_affinity: RawNodeAffinity | None = None
    pod_affinity: RawPodAffinity | None = None
    pod_anti_affinity: RawPodAffinity | None = None


class RawToleration(_Raw, gc=False):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class RawSpread(_Raw):
    topology_key: str
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: RawSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class RawClaimSource(_Raw, gc=False):
    claim_name: str = ""


class RawClaimTemplateSpec(_Raw, gc=False):
    storage_class_name: str | None = None


class RawClaimTemplate(_Raw):
    spec: RawClaimTemplateSpec | None = None


class RawEphemeral(_Raw):
    volume_claim_template: RawClaimTemplate | None = None


class RawVolume(_Raw):
    name: str = ""
    persistent_volume_claim: RawClaimSource | None = None
    ephemeral: RawEphemeral | None = None


class RawNamed(_Raw, gc=False):
    name: str = ""


class RawPodResourceClaim(_Raw, gc=False):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class RawPodResourceClaimStatus(_Raw, gc=False):
    name: str = ""
    resource_claim_name: str | None = None


class RawPodSpec(_Raw):
    node_name: str = ""
    containers: list[RawContainer] | None = None
    init_containers: list[RawContainer] | None = None
    overhead: Amounts | None = None
    resources: RawResources | None = None
    node_selector: dict[str, str] | None = None
    affinity: RawAffinity | None = None
    tolerations: list[RawToleration] | None = None
    topology_spread_constraints: list[RawSpread] | None = None
    volumes: list[RawVolume] | None = None
    priority: int | None = None
    priority_class_name: str = ""
    scheduler_name: str = "default-scheduler"
    scheduling_gates: list[RawNamed] | None = None
    resource_claims: list[RawPodResourceClaim] | None = None
    termination_grace_period_seconds: int | None = 30
    host_network: bool = False


class RawCondition(_Raw, gc=False):
    type: str
    status: str = "Unknown"
    reason: str = ""
    last_transition_time: datetime | None = None


class RawHeldResources(_Raw):
    """The resources that a running container, or pod, has."""

    resources: RawResources | None = None
    allocated_resources: Amounts | None = None


class RawContainerStatus(RawHeldResources):
    name: str = ""


class RawPodStatus(_Raw):
    phase: str = "Pending"
    conditions: list[RawCondition] | None = None
    start_time: datetime | None = None
    nominated_node_name: str = ""
    container_statuses: list[RawContainerStatus] | None = None
    init_container_statuses: list[RawContainerStatus] | None = None
    resource_claim_statuses: list[RawPodResourceClaimStatus] | None = None
    resources: RawResources | None = None
    allocated_resources: Amounts | None = None


class RawPod(_Raw):
    metadata: RawMeta
    spec: RawPodSpec
    status: RawPodStatus | None = None


class RawPodTemplate(_Raw):
    spec: RawPodSpec
    metadata: RawMeta | None = None


class RawDaemonSetSpec(_Raw):
    template: RawPodTemplate


class RawDaemonSet(_Raw):
    metadata: RawMeta
    spec: RawDaemonSetSpec


class RawTaint(_Raw, gc=False):
    key: str
    effect: str
    value: str = ""
    time_added: str = ""


class RawNodeSpec(_Raw):
    provider_id: str = msgspec.field(name="providerID", default="")
    unschedulable: bool = False
    taints: list[RawTaint] | None = None


class RawNodeCondition(_Raw, gc=False):
    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class RawNodeInfo(_Raw, gc=False):
    kubelet_version: str = ""


class RawNodeStatus(_Raw):
    capacity: Amounts | None = None
    allocatable: Amounts | None = None
    conditions: list[RawNodeCondition] | None = None
    node_info: RawNodeInfo | None = None


class RawNode(_Raw):
    metadata: RawMeta
    spec: RawNodeSpec | None = None
    status: RawNodeStatus | None = None


class RawPodDisruptionBudgetSpec(_Raw):
    selector: RawSelector | None = None
    min_available: str | int | None = None
    max_unavailable: str | int | None = None
    unhealthy_pod_eviction_policy: str | None = None


class RawPodDisruptionBudgetStatus(_Raw, gc=False):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0


class RawPodDisruptionBudget(_Raw):
    metadata: RawMeta
    spec: RawPodDisruptionBudgetSpec | None = None
    status: RawPodDisruptionBudgetStatus | None = None


class RawPersistentVolumeClaimSpec(_Raw):
    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    resources: RawResources | None = None
    volume_mode: str | None = None
    selector: RawSelector | None = None


class RawPersistentVolumeClaimStatus(_Raw, gc=False):
    phase: str = "Pending"


class RawPersistentVolumeClaim(_Raw):
    metadata: RawMeta
    spec: RawPersistentVolumeClaimSpec | None = None
    status: RawPersistentVolumeClaimStatus | None = None


class RawDriver(_Raw, gc=False):
    driver: str = ""


class RawPresence(_Raw, gc=False):
    """A volume source of which only its being there matters."""


class RawClaimReference(_Raw, gc=False):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class RawVolumeNodeAffinity(_Raw):
    required: RawNodeSelector | None = None


class RawPersistentVolumeSpec(_Raw):
    csi: RawDriver | None = None
    aws_elastic_block_store: RawPresence | None = None
    azure_disk: RawPresence | None = None
    azure_file: RawPresence | None = None
    cinder: RawPresence | None = None
    gce_persistent_disk: RawPresence | None = None
    portworx_volume: RawPresence | None = None
    vsphere_volume: RawPresence | None = None
    local: RawPresence | None = None
    host_path: RawPresence | None = None
    node_affinity: RawVolumeNodeAffinity | None = None
    claim_ref: RawClaimReference | None = None
    storage_class_name: str = ""
    capacity: Amounts | None = None
    access_modes: list[str] | None = None
    volume_mode: str | None = None


class RawPersistentVolume(_Raw):
    metadata: RawMeta
    spec: RawPersistentVolumeSpec | None = None


class RawLabelExpression(_Raw):
    key: str
    values: list[str] | None = None


class RawTopologyTerm(_Raw):
    match_label_expressions: list[RawLabelExpression] | None = None


class RawStorageClass(_Raw):
    metadata: RawMeta
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[RawTopologyTerm] | None = None


class RawVolumeCount(_Raw, gc=False):
    count: int | None = None


class RawCSIDriver(_Raw):
    name: str
    allocatable: RawVolumeCount | None = None


class RawCSINodeSpec(_Raw):
    drivers: list[RawCSIDriver] | None = None


class RawCSINode(_Raw):
    metadata: RawMeta
    spec: RawCSINodeSpec | None = None


class RawAttachmentSource(_Raw, gc=False):
    persistent_volume_name: str | None = None


class RawVolumeAttachmentSpec(_Raw):
    node_name: str = ""
    source: RawAttachmentSource | None = None


class RawVolumeAttachment(_Raw):
    metadata: RawMeta
    spec: RawVolumeAttachmentSpec | None = None


class RawNamespace(_Raw):
    metadata: RawMeta


class RawServiceSpec(_Raw):
    selector: dict[str, str] | None = None


class RawService(_Raw):
    metadata: RawMeta
    spec: RawServiceSpec | None = None


class RawReplicationController(_Raw):
    metadata: RawMeta
    spec: RawServiceSpec | None = None


class RawWorkloadSpec(_Raw):
    selector: RawSelector | None = None


class RawWorkload(_Raw):
    metadata: RawMeta
    spec: RawWorkloadSpec | None = None


class RawTemplatedWorkloadSpec(RawWorkloadSpec):
    template: RawPodTemplate | None = None
    replicas: int | None = None


class RawTemplatedWorkload(_Raw):
    metadata: RawMeta
    spec: RawTemplatedWorkloadSpec | None = None


class RawGenerationMeta(RawMeta):
    generation: int = 0


class RawPodTemplateObject(_Raw):
    metadata: RawGenerationMeta
    template: RawPodTemplate
