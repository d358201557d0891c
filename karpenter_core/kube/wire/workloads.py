"""Converts Services and the controllers of pods from raw JSON to views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.records import LabelSelector, ServiceView, WorkloadView
from karpenter_core.kube.wire.selectors import label_selector

if TYPE_CHECKING:
    from karpenter_core.kube.wire.raw import RawReplicationController, RawService, RawWorkload

__all__ = ["replication_controller_view", "service_view", "workload_view"]


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
