"""Converts Nodes, disruption budgets and namespaces from raw JSON to views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.records import NamespaceView, NodeConditionView, NodeView, OwnerView, Taint
from karpenter_core.api.workload_records import PodDisruptionBudgetView
from karpenter_core.kube.wire.raw import (
    RawNodeSpec,
    RawNodeStatus,
    RawPodDisruptionBudgetSpec,
    RawPodDisruptionBudgetStatus,
)
from karpenter_core.kube.wire.requests import amounts
from karpenter_core.kube.wire.selectors import label_selector

if TYPE_CHECKING:
    from karpenter_core.kube.wire.raw import RawNamespace, RawNode, RawPodDisruptionBudget

__all__ = ["namespace_view", "node_view", "pod_disruption_budget_view"]


def node_view(raw: RawNode) -> NodeView:
    """Read a Node."""
    meta = raw.metadata
    spec, status = raw.spec or RawNodeSpec(), raw.status or RawNodeStatus()
    return NodeView(
        uid=meta.uid,
        name=meta.name,
        resource_version=int(meta.resource_version or 0),
        labels=meta.labels or {},
        annotations=meta.annotations or {},
        finalizers=tuple(meta.finalizers or ()),
        owners=tuple(
            OwnerView(
                api_version=owner.api_version,
                kind=owner.kind,
                name=owner.name,
                uid=owner.uid,
                controller=bool(owner.controller),
                block_owner_deletion=bool(owner.block_owner_deletion),
            )
            for owner in meta.owner_references or ()
        ),
        created=meta.creation_timestamp,
        deletion_timestamp=meta.deletion_timestamp,
        provider_id=spec.provider_id,
        unschedulable=spec.unschedulable,
        taints=tuple(
            Taint(
                key=taint.key,
                effect=taint.effect,
                value=taint.value,
                time_added=taint.time_added,
            )
            for taint in spec.taints or ()
        ),
        capacity=amounts(status.capacity),
        allocatable=amounts(status.allocatable),
        conditions=tuple(
            NodeConditionView(
                type=condition.type,
                status=condition.status,
                reason=condition.reason,
                message=condition.message,
                last_transition_time=condition.last_transition_time,
            )
            for condition in status.conditions or ()
        ),
        kubelet_version="" if status.node_info is None else status.node_info.kubelet_version,
    )


def pod_disruption_budget_view(raw: RawPodDisruptionBudget) -> PodDisruptionBudgetView:
    """Read a PodDisruptionBudget; its amounts stay as written."""
    meta, spec = raw.metadata, raw.spec or RawPodDisruptionBudgetSpec()
    status = raw.status or RawPodDisruptionBudgetStatus()
    return PodDisruptionBudgetView(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        resource_version=int(meta.resource_version or 0),
        selector=label_selector(spec.selector),
        min_available=_as_written(spec.min_available),
        max_unavailable=_as_written(spec.max_unavailable),
        unhealthy_pod_eviction_policy=spec.unhealthy_pod_eviction_policy or "",
        disruptions_allowed=status.disruptions_allowed,
        current_healthy=status.current_healthy,
        desired_healthy=status.desired_healthy,
    )


def namespace_view(raw: RawNamespace) -> NamespaceView:
    """Read a Namespace's labels."""
    meta = raw.metadata
    return NamespaceView(
        uid=meta.uid,
        name=meta.name,
        resource_version=int(meta.resource_version or 0),
        labels=meta.labels or {},
    )


def _as_written(amount: str | int | None) -> str | None:
    return None if amount is None else str(amount)
