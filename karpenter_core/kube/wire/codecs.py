"""The codecs of every kind that is read.

Kubernetes' own kinds become lean views, ours become their pydantic models.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from karpenter_core.api.capacity_buffer import CapacityBuffer
from karpenter_core.api.capacity_quota import CapacityQuota
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.nodeoverlay import NodeOverlay
from karpenter_core.api.nodepool import NodePool
from karpenter_core.api.provisioning_request import ProvisioningRequest
from karpenter_core.kube import resources
from karpenter_core.kube.resources import ResourceKind, custom_kind
from karpenter_core.kube.wire import raw
from karpenter_core.kube.wire.autoscalers import (
    RawVerticalPodAutoscaler,
    vertical_pod_autoscaler_view,
)
from karpenter_core.kube.wire.devices import (
    RawDeviceClass,
    RawResourceClaim,
    RawResourceClaimTemplate,
    RawResourceSlice,
    device_class_view,
    resource_claim_template_view,
    resource_claim_view,
    resource_slice_view,
)
from karpenter_core.kube.wire.kind_codec import Codec, TypedDecoders, is_version
from karpenter_core.kube.wire.kind_groups import KindGroup
from karpenter_core.kube.wire.nodes import namespace_view, node_view, pod_disruption_budget_view
from karpenter_core.kube.wire.pods import daemon_set_view, pod_view
from karpenter_core.kube.wire.shapes import PodShapes
from karpenter_core.kube.wire.storage import (
    csi_node_view,
    persistent_volume_claim_view,
    persistent_volume_view,
    storage_class_view,
    volume_attachment_view,
)
from karpenter_core.kube.wire.workloads import (
    pod_template_view,
    replication_controller_view,
    service_view,
    templated_workload_view,
    workload_view,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.state.events import StateObject

__all__ = [
    "CAPACITY_BUFFERS",
    "CAPACITY_QUOTAS",
    "NODE_CLAIMS",
    "NODE_OVERLAYS",
    "NODE_POOLS",
    "PROVISIONING_REQUESTS",
    "Codecs",
]

CAPACITY_QUOTAS: Final = custom_kind(CapacityQuota.resource)
NODE_POOLS: Final = custom_kind(NodePool.resource)
CAPACITY_BUFFERS: Final = custom_kind(CapacityBuffer.resource)
NODE_CLAIMS: Final = custom_kind(NodeClaim.resource)
PROVISIONING_REQUESTS: Final = custom_kind(ProvisioningRequest.resource)
NODE_OVERLAYS: Final = custom_kind(NodeOverlay.resource)


class Codecs:
    """The codecs of every kind that is read, and the shapes that their pods share.

    Kinds that only some features need are read if their group is among `groups`.
    """

    __slots__ = ("_codecs", "shapes")

    def __init__(
        self,
        node_classes: Iterable[type[NodeClass]] = (),
        *,
        groups: Collection[KindGroup] = (),
    ) -> None:
        self.shapes: Final = PodShapes(keeps_parts=KindGroup.AUTOSCALERS in groups)
        codecs = [*_view_codecs(self.shapes), *map(_model_codec, (NodePool, NodeClaim))]
        if KindGroup.SELECTORS in groups:
            codecs += _selector_codecs(with_workloads=KindGroup.BUFFERS not in groups)
        if KindGroup.BUFFERS in groups:
            codecs += [_model_codec(CapacityBuffer), *_template_codecs(self.shapes)]
        if KindGroup.REQUESTS in groups:
            codecs.append(_model_codec(ProvisioningRequest))
        if KindGroup.REQUESTS in groups and KindGroup.BUFFERS not in groups:
            codecs.append(_pod_template_codec(self.shapes))
        if KindGroup.OVERLAYS in groups:
            codecs.append(_model_codec(NodeOverlay))
        if KindGroup.QUOTAS in groups:
            codecs.append(_model_codec(CapacityQuota))
        if KindGroup.AUTOSCALERS in groups:
            codecs.append(_autoscaler_codec())
        if KindGroup.DEVICES in groups:
            codecs += _device_codecs()
        codecs += map(_model_codec, node_classes)
        self._codecs: Final = {(codec.kind.group, codec.kind.kind): codec for codec in codecs}

    @property
    def kinds(self) -> tuple[ResourceKind, ...]:
        """Every kind that can be read."""
        return tuple(codec.kind for codec in self._codecs.values())

    def for_kind(self, kind: ResourceKind) -> Codec:
        """Return a kind's codec."""
        return self._codecs[kind.group, kind.kind]

    def find(self, group: str, kind: str) -> Codec | None:
        """Return the codec of a group and kind, if that is one we read."""
        return self._codecs.get((group, kind))


def _view_codecs(shapes: PodShapes) -> list[Codec]:
    fasts: list[tuple[ResourceKind, TypedDecoders[Any]]] = [
        (resources.PODS, TypedDecoders(raw.RawPod, partial(pod_view, shapes=shapes))),
        (
            resources.DAEMON_SETS,
            TypedDecoders(raw.RawDaemonSet, partial(daemon_set_view, shapes=shapes)),
        ),
        (resources.NODES, TypedDecoders(raw.RawNode, node_view)),
        (
            resources.POD_DISRUPTION_BUDGETS,
            TypedDecoders(raw.RawPodDisruptionBudget, pod_disruption_budget_view),
        ),
        (resources.NAMESPACES, TypedDecoders(raw.RawNamespace, namespace_view)),
        (
            resources.PERSISTENT_VOLUME_CLAIMS,
            TypedDecoders(raw.RawPersistentVolumeClaim, persistent_volume_claim_view),
        ),
        (
            resources.PERSISTENT_VOLUMES,
            TypedDecoders(raw.RawPersistentVolume, persistent_volume_view),
        ),
        (resources.STORAGE_CLASSES, TypedDecoders(raw.RawStorageClass, storage_class_view)),
        (resources.CSI_NODES, TypedDecoders(raw.RawCSINode, csi_node_view)),
        (
            resources.VOLUME_ATTACHMENTS,
            TypedDecoders(raw.RawVolumeAttachment, volume_attachment_view),
        ),
    ]
    return [Codec(kind, fast.read, fast) for kind, fast in fasts]


def _template_codecs(shapes: PodShapes) -> list[Codec]:
    """Return the codecs of all that a CapacityBuffer may refer to."""
    fasts: list[tuple[ResourceKind, TypedDecoders[Any]]] = [
        (
            kind,
            TypedDecoders(
                raw.RawTemplatedWorkload,
                partial(templated_workload_view, kind=kind.kind, shapes=shapes),
            ),
        )
        for kind in (resources.DEPLOYMENTS, resources.REPLICA_SETS, resources.STATEFUL_SETS)
    ]
    return [
        _pod_template_codec(shapes),
        *(Codec(kind, fast.read, fast) for kind, fast in fasts),
    ]


def _pod_template_codec(shapes: PodShapes) -> Codec:
    fast = TypedDecoders(raw.RawPodTemplateObject, partial(pod_template_view, shapes=shapes))
    return Codec(resources.POD_TEMPLATES, fast.read, fast)


def _selector_codecs(*, with_workloads: bool) -> list[Codec]:
    fasts: list[tuple[ResourceKind, TypedDecoders[Any]]] = [
        (resources.SERVICES, TypedDecoders(raw.RawService, service_view)),
        (
            resources.REPLICATION_CONTROLLERS,
            TypedDecoders(raw.RawReplicationController, replication_controller_view),
        ),
        *(
            (kind, TypedDecoders(raw.RawWorkload, partial(workload_view, kind=kind.kind)))
            for kind in (resources.REPLICA_SETS, resources.STATEFUL_SETS)
            if with_workloads
        ),
    ]
    return [Codec(kind, fast.read, fast) for kind, fast in fasts]


def _autoscaler_codec() -> Codec:
    fast = TypedDecoders(RawVerticalPodAutoscaler, vertical_pod_autoscaler_view)
    return Codec(resources.VERTICAL_POD_AUTOSCALERS, fast.read, fast)


def _device_codecs() -> list[Codec]:
    fasts: list[tuple[ResourceKind, TypedDecoders[Any]]] = [
        (resources.RESOURCE_CLAIMS, TypedDecoders(RawResourceClaim, resource_claim_view)),
        (
            resources.RESOURCE_CLAIM_TEMPLATES,
            TypedDecoders(RawResourceClaimTemplate, resource_claim_template_view),
        ),
        (resources.RESOURCE_SLICES, TypedDecoders(RawResourceSlice, resource_slice_view)),
        (resources.DEVICE_CLASSES, TypedDecoders(RawDeviceClass, device_class_view)),
    ]
    return [Codec(kind, fast.read, fast) for kind, fast in fasts]


_Model: TypeAlias = """
    NodePool | NodeClaim | NodeOverlay | NodeClass | CapacityBuffer | CapacityQuota | ProvisioningRequest
"""


def _model_codec(model: type[_Model]) -> Codec:
    def read(body: bytes | msgspec.Raw) -> StateObject:
        found = model.model_validate_json(bytes(body))
        if not is_version(found.metadata.resource_version):
            raise ValueError("metadata.resourceVersion is no number")
        return found

    return Codec(custom_kind(model.resource), read)
