"""The kinds that are read and written, and their places in the API."""

from __future__ import annotations

import pytest

from karpenter_core.kube import resources
from karpenter_core.kube.resources import ResourceKind

PLACES = {
    "CSINode": "/apis/storage.k8s.io/v1/csinodes/web",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/web",
    "DaemonSet": "/apis/apps/v1/namespaces/shop/daemonsets/web",
    "Deployment": "/apis/apps/v1/namespaces/shop/deployments/web",
    "Event": "/api/v1/namespaces/shop/events/web",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/shop/leases/web",
    "Namespace": "/api/v1/namespaces/web",
    "Node": "/api/v1/nodes/web",
    "PersistentVolume": "/api/v1/persistentvolumes/web",
    "PersistentVolumeClaim": "/api/v1/namespaces/shop/persistentvolumeclaims/web",
    "Pod": "/api/v1/namespaces/shop/pods/web",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/web",
    "PodTemplate": "/api/v1/namespaces/shop/podtemplates/web",
    "VerticalPodAutoscaler": (
        "/apis/autoscaling.k8s.io/v1/namespaces/shop/verticalpodautoscalers/web"
    ),
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/shop/resourceclaims/web",
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/namespaces/shop/resourceclaimtemplates/web",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices/web",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses/web",
    "ReplicaSet": "/apis/apps/v1/namespaces/shop/replicasets/web",
    "ReplicationController": "/api/v1/namespaces/shop/replicationcontrollers/web",
    "Service": "/api/v1/namespaces/shop/services/web",
    "StatefulSet": "/apis/apps/v1/namespaces/shop/statefulsets/web",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses/web",
    "SubjectAccessReview": "/apis/authorization.k8s.io/v1/subjectaccessreviews/web",
    "TokenReview": "/apis/authentication.k8s.io/v1/tokenreviews/web",
    "VolumeAttachment": "/apis/storage.k8s.io/v1/volumeattachments/web",
}
KINDS = {kind.kind: kind for kind in vars(resources).values() if isinstance(kind, ResourceKind)}


def test_every_kind_has_its_place_in_the_table():
    assert KINDS.keys() == PLACES.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_is_where_kubernetes_has_it(kind):
    namespace = "shop" if KINDS[kind].namespaced else ""
    assert KINDS[kind].path(namespace=namespace, name="web") == PLACES[kind]
