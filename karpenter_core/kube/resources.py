"""The API path and the scope of each kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from karpenter_core.api.base import CustomResource

__all__ = [
    "CSI_NODES",
    "CUSTOM_RESOURCE_DEFINITIONS",
    "DAEMON_SETS",
    "DEPLOYMENTS",
    "DEVICE_CLASSES",
    "DEVICE_KINDS",
    "EVENTS",
    "LEASES",
    "NAMESPACES",
    "NODES",
    "PERSISTENT_VOLUMES",
    "PERSISTENT_VOLUME_CLAIMS",
    "PODS",
    "POD_DISRUPTION_BUDGETS",
    "POD_TEMPLATES",
    "REPLICATION_CONTROLLERS",
    "REPLICA_SETS",
    "RESOURCE_CLAIMS",
    "RESOURCE_CLAIM_TEMPLATES",
    "RESOURCE_SLICES",
    "SERVICES",
    "STATEFUL_SETS",
    "STORAGE_CLASSES",
    "SUBJECT_ACCESS_REVIEWS",
    "TOKEN_REVIEWS",
    "VERTICAL_POD_AUTOSCALERS",
    "VOLUME_ATTACHMENTS",
    "ResourceKind",
    "custom_kind",
]


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """Group, version and plural of a kind, and whether it lives in namespaces."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """`group/version`, or `v1` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of a collection, an object or a subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if self.namespaced and namespace:
            parts.append(f"namespaces/{namespace}")
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


def custom_kind(resource: CustomResource) -> ResourceKind:
    """Return the place of one of our own kinds."""
    return ResourceKind(
        resource.group,
        resource.version,
        resource.plural,
        resource.kind,
        resource.scope == "Namespaced",
    )


PODS: Final = ResourceKind("", "v1", "pods", "Pod", namespaced=True)
NODES: Final = ResourceKind("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES: Final = ResourceKind("", "v1", "namespaces", "Namespace", namespaced=False)
EVENTS: Final = ResourceKind("", "v1", "events", "Event", namespaced=True)
PERSISTENT_VOLUMES: Final = ResourceKind(
    "", "v1", "persistentvolumes", "PersistentVolume", namespaced=False,
)  # fmt: skip
PERSISTENT_VOLUME_CLAIMS: Final = ResourceKind(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True,
)  # fmt: skip
DAEMON_SETS: Final = ResourceKind("apps", "v1", "daemonsets", "DaemonSet", namespaced=True)
DEPLOYMENTS: Final = ResourceKind("apps", "v1", "deployments", "Deployment", namespaced=True)
REPLICA_SETS: Final = ResourceKind("apps", "v1", "replicasets", "ReplicaSet", namespaced=True)
STATEFUL_SETS: Final = ResourceKind("apps", "v1", "statefulsets", "StatefulSet", namespaced=True)
REPLICATION_CONTROLLERS: Final = ResourceKind(
    "", "v1", "replicationcontrollers", "ReplicationController", namespaced=True,
)  # fmt: skip
POD_TEMPLATES: Final = ResourceKind("", "v1", "podtemplates", "PodTemplate", namespaced=True)
SERVICES: Final = ResourceKind("", "v1", "services", "Service", namespaced=True)
POD_DISRUPTION_BUDGETS: Final = ResourceKind(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True,
)  # fmt: skip
STORAGE_CLASSES: Final = ResourceKind(
    "storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False,
)  # fmt: skip
CSI_NODES: Final = ResourceKind("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
VOLUME_ATTACHMENTS: Final = ResourceKind(
    "storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False,
)  # fmt: skip
VERTICAL_POD_AUTOSCALERS: Final = ResourceKind(
    "autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler", namespaced=True,
)  # fmt: skip
RESOURCE_CLAIMS: Final = ResourceKind(
    "resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", namespaced=True,
)  # fmt: skip
RESOURCE_CLAIM_TEMPLATES: Final = ResourceKind(
    "resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", namespaced=True,
)  # fmt: skip
RESOURCE_SLICES: Final = ResourceKind(
    "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False,
)  # fmt: skip
DEVICE_CLASSES: Final = ResourceKind(
    "resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False,
)  # fmt: skip
DEVICE_KINDS: Final = (
    RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_SLICES, DEVICE_CLASSES,
)  # fmt: skip
"""The kinds that devices are allocated from (Kubernetes 1.34)."""
LEASES: Final = ResourceKind("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
CUSTOM_RESOURCE_DEFINITIONS: Final = ResourceKind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
    namespaced=False,
)  # fmt: skip
TOKEN_REVIEWS: Final = ResourceKind(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False,
)  # fmt: skip
SUBJECT_ACCESS_REVIEWS: Final = ResourceKind(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False,
)  # fmt: skip
