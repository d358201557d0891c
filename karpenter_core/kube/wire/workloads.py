"""Converts Services, pods' controllers and PodTemplates from JSON to views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.records import LabelSelector
from karpenter_core.api.workload_records import PodTemplateView, ServiceView, WorkloadView
from karpenter_core.kube.wire.raw import RawMeta
from karpenter_core.kube.wire.selectors import label_selector
from karpenter_core.kube.wire.shapes import PodShapeParts, read_annotations

if TYPE_CHECKING:
    from karpenter_core.api.records import PodShape
    from karpenter_core.kube.wire.raw import (
        RawPodTemplate,
        RawPodTemplateObject,
        RawReplicationController,
        RawService,
        RawTemplatedWorkload,
        RawWorkload,
    )
    from karpenter_core.kube.wire.shapes import PodShapes

__all__ = [
    "pod_template_view",
    "replication_controller_view",
    "service_view",
    "templated_workload_view",
    "workload_view",
]


def service_view(raw: RawService) -> ServiceView:
    """Read a Service."""
    meta = raw.metadata
    return ServiceView(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        resource_version=int(meta.resource_version or 0),
        selector=raw.spec.selector if raw.spec else None,
    )


def workload_view(raw: RawWorkload, kind: str) -> WorkloadView:
    """Read a ReplicaSet or StatefulSet."""
    meta = raw.metadata
    return WorkloadView(
        kind=kind,
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        resource_version=int(meta.resource_version or 0),
        selector=label_selector(raw.spec.selector if raw.spec else None),
    )


def templated_workload_view(
    raw: RawTemplatedWorkload, kind: str, shapes: PodShapes
) -> WorkloadView:
    """Read a Deployment, ReplicaSet or StatefulSet with the shape of its pods."""
    meta, spec = raw.metadata, raw.spec
    template = spec.template if spec else None
    return WorkloadView(
        kind=kind,
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        resource_version=int(meta.resource_version or 0),
        selector=label_selector(spec.selector if spec else None),
        replicas=spec.replicas if spec else None,
        template=None if template is None else _template_shape(template, meta.namespace, shapes),
    )


def pod_template_view(raw: RawPodTemplateObject, shapes: PodShapes) -> PodTemplateView:
    """Read a PodTemplate as the shape of its pods."""
    meta = raw.metadata
    return PodTemplateView(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        resource_version=int(meta.resource_version or 0),
        generation=meta.generation,
        template=_template_shape(raw.template, meta.namespace, shapes),
    )


def _template_shape(template: RawPodTemplate, namespace: str, shapes: PodShapes) -> PodShape:
    """Return the shape of a template's pods, without an owner."""
    pod_meta = template.metadata or RawMeta()
    template.spec.node_name = ""
    return shapes.intern(
        PodShapeParts(
            namespace=namespace,
            labels=pod_meta.labels,
            annotations=read_annotations(pod_meta.annotations),
            owner_api_version="",
            owner_kind="",
            spec=template.spec,
        )
    )


def replication_controller_view(raw: RawReplicationController) -> WorkloadView:
    """Read a ReplicationController, whose selector is nothing but labels."""
    meta = raw.metadata
    labels = raw.spec.selector if raw.spec else None
    return WorkloadView(
        kind="ReplicationController",
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        resource_version=int(meta.resource_version or 0),
        selector=None if labels is None else LabelSelector(match_labels=labels),
    )
