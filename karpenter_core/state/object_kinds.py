"""Maps objects to their kind, key and resource version."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from karpenter_core.api.autoscalers import VerticalPodAutoscalerView
from karpenter_core.api.base import KubernetesObject
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

    from karpenter_core.state.events import StateObject

__all__ = [
    "ObjectKind",
    "kind_of",
    "object_key",
    "object_kind",
    "resource_version_of",
    "workload_key",
]


class ObjectKind(StrEnum):
    """The subject of a change: a kind of object, or a part of the state itself."""

    POD = "Pod"
    NODE = "Node"
    NODE_CLAIM = "NodeClaim"
    NODE_POOL = "NodePool"
    NODE_CLASS = "NodeClass"
    NODE_OVERLAY = "NodeOverlay"
    DAEMON_SET = "DaemonSet"
    DISRUPTION_BUDGET = "PodDisruptionBudget"
    VOLUME_CLAIM = "PersistentVolumeClaim"
    VOLUME = "PersistentVolume"
    STORAGE_CLASS = "StorageClass"
    CSI_NODE = "CSINode"
    VOLUME_ATTACHMENT = "VolumeAttachment"
    NAMESPACE = "Namespace"
    SERVICE = "Service"
    WORKLOAD = "Workload"
    """A Deployment, ReplicaSet, StatefulSet or ReplicationController."""
    RESOURCE_CLAIM = "ResourceClaim"
    RESOURCE_CLAIM_TEMPLATE = "ResourceClaimTemplate"
    RESOURCE_SLICE = "ResourceSlice"
    DEVICE_CLASS = "DeviceClass"
    AUTOSCALER = "VerticalPodAutoscaler"
    POD_TEMPLATE = "PodTemplate"
    CAPACITY_BUFFER = "CapacityBuffer"
    PROVISIONING_REQUEST = "ProvisioningRequest"
    CAPACITY_QUOTA = "CapacityQuota"
    NODE_PODS = "NodePods"
    """The pods of a node, by the node's name."""
    POD_EVENT = "PodEvent"
    """A pod, not of a DaemonSet, came to a node, ended on it or left it; by the node's name.

    Pods of the first list are no events.
    """
    CATALOGUE = "Catalogue"
    """The catalogue of a pool, by the pool's name."""
    VIRTUAL_PODS = "VirtualPods"
    """The virtual pods of an object, by `kind/namespace/name`."""
    VIRTUAL_PLACEMENT = "VirtualPlacement"
    """The places that a pass found for the virtual pods of an object; named likewise."""
    SYNCED = "Synced"
    """Every informer has listed once."""


_KINDS: Final[Mapping[type, ObjectKind]] = {
    PodView: ObjectKind.POD,
    NodeView: ObjectKind.NODE,
    NodeClaim: ObjectKind.NODE_CLAIM,
    NodePool: ObjectKind.NODE_POOL,
    NodeOverlay: ObjectKind.NODE_OVERLAY,
    DaemonSetView: ObjectKind.DAEMON_SET,
    PodDisruptionBudgetView: ObjectKind.DISRUPTION_BUDGET,
    PersistentVolumeClaimView: ObjectKind.VOLUME_CLAIM,
    PersistentVolumeView: ObjectKind.VOLUME,
    StorageClassView: ObjectKind.STORAGE_CLASS,
    CSINodeView: ObjectKind.CSI_NODE,
    VolumeAttachmentView: ObjectKind.VOLUME_ATTACHMENT,
    NamespaceView: ObjectKind.NAMESPACE,
    ServiceView: ObjectKind.SERVICE,
    WorkloadView: ObjectKind.WORKLOAD,
    ResourceClaimView: ObjectKind.RESOURCE_CLAIM,
    ResourceClaimTemplateView: ObjectKind.RESOURCE_CLAIM_TEMPLATE,
    ResourceSliceView: ObjectKind.RESOURCE_SLICE,
    DeviceClassView: ObjectKind.DEVICE_CLASS,
    VerticalPodAutoscalerView: ObjectKind.AUTOSCALER,
    PodTemplateView: ObjectKind.POD_TEMPLATE,
    ProvisioningRequest: ObjectKind.PROVISIONING_REQUEST,
    CapacityBuffer: ObjectKind.CAPACITY_BUFFER,
    CapacityQuota: ObjectKind.CAPACITY_QUOTA,
}


def object_kind(obj: StateObject) -> ObjectKind:
    """Return the kind of an object; providers' NodeClasses share one."""
    return kind_of(type(obj))


def kind_of(model: type[object]) -> ObjectKind:
    """Return the kind of all objects of a model; providers' NodeClasses share one."""
    return _KINDS.get(model, ObjectKind.NODE_CLASS)


def object_key(obj: StateObject) -> str | tuple[str, str, str]:
    """Return the key of an object within its kind."""
    match obj:
        case PodView():
            return obj.uid
        case (
            DaemonSetView() | PodDisruptionBudgetView() | PersistentVolumeClaimView()
            | ServiceView() | PodTemplateView() | CapacityBuffer() | ResourceClaimView()
            | ResourceClaimTemplateView() | VerticalPodAutoscalerView()
        ):  # fmt: skip
            return f"{obj.namespace}/{obj.name}"
        case ProvisioningRequest():
            return obj.key
        case WorkloadView():
            return workload_key(obj.kind, obj.namespace, obj.name)
        case NodeClass():
            resource = type(obj).resource
            return (resource.group, resource.kind, obj.name)
        case _:
            return obj.name


def workload_key(kind: str, namespace: str, name: str) -> str:
    """Return the key of a controller of pods; all kinds share one table."""
    return f"{kind}/{namespace}/{name}"


def resource_version_of(obj: StateObject) -> int:
    """Return the resource version of an object as a number; 0 without one.

    The API server promises that resource versions of one kind may be compared as numbers.
    """
    if isinstance(obj, KubernetesObject):
        text = obj.metadata.resource_version
        return int(text) if text.isdecimal() else 0
    return obj.resource_version
