"""How objects of every kind are filed: table, key, and which of two versions is newer."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from karpenter_core.api.base import KubernetesObject
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

    from karpenter_core.state.events import Object

__all__ = ["Kind", "file_key", "kind_of", "resource_version_of", "workload_key"]


class Kind(StrEnum):
    """What a change is about: a kind of object, or something of the state's own."""

    POD = "Pod"
    NODE = "Node"
    NODE_CLAIM = "NodeClaim"
    NODE_POOL = "NodePool"
    NODE_CLASS = "NodeClass"
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
    """A ReplicaSet, StatefulSet or ReplicationController."""
    NODE_PODS = "NodePods"
    """The pods of a node, by the node's name."""
    POD_EVENT = "PodEvent"
    """A pod, not a daemon's, came to a node, ended on it or left it; by the node's name.

    What is there when the state is first filled is no event.
    """
    CATALOGUE = "Catalogue"
    """The catalogue of a pool, by the pool's name."""
    SYNCED = "Synced"
    """Every informer has listed once."""


_KINDS: Final[Mapping[type, Kind]] = {
    PodView: Kind.POD,
    NodeView: Kind.NODE,
    NodeClaim: Kind.NODE_CLAIM,
    NodePool: Kind.NODE_POOL,
    DaemonSetView: Kind.DAEMON_SET,
    PodDisruptionBudgetView: Kind.DISRUPTION_BUDGET,
    PersistentVolumeClaimView: Kind.VOLUME_CLAIM,
    PersistentVolumeView: Kind.VOLUME,
    StorageClassView: Kind.STORAGE_CLASS,
    CSINodeView: Kind.CSI_NODE,
    VolumeAttachmentView: Kind.VOLUME_ATTACHMENT,
    NamespaceView: Kind.NAMESPACE,
    ServiceView: Kind.SERVICE,
    WorkloadView: Kind.WORKLOAD,
}


def kind_of(obj: Object) -> Kind:
    """Return the kind an object is filed under; providers' NodeClasses share one."""
    return _KINDS.get(type(obj), Kind.NODE_CLASS)


def file_key(obj: Object) -> str | tuple[str, str, str]:
    """Return the key an object is filed under within its kind."""
    match obj:
        case PodView():
            return obj.uid
        case (
            DaemonSetView() | PodDisruptionBudgetView() | PersistentVolumeClaimView()
            | ServiceView()
        ):  # fmt: skip
            return f"{obj.namespace}/{obj.name}"
        case WorkloadView():
            return workload_key(obj.kind, obj.namespace, obj.name)
        case NodeClass():
            resource = type(obj).resource
            return (resource.group, resource.kind, obj.name)
        case _:
            return obj.name


def workload_key(kind: str, namespace: str, name: str) -> str:
    """Return the key of what controls pods: kinds share one table, names are unique in each."""
    return f"{kind}/{namespace}/{name}"


def resource_version_of(obj: Object) -> int:
    """Return how new an object is; 0 when nobody said.

    The API server promises that resource versions of one kind may be compared as numbers.
    """
    if isinstance(obj, KubernetesObject):
        text = obj.metadata.resource_version
        return int(text) if text.isdecimal() else 0
    return obj.resource_version
