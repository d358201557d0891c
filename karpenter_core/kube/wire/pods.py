"""Converts Pods and DaemonSets from raw JSON to views."""

from __future__ import annotations

from sys import intern
from typing import TYPE_CHECKING, Final

from karpenter_core.api.records import PodView
from karpenter_core.api.workload_records import DaemonSetView
from karpenter_core.kube.wire.raw import RawMeta, RawPodStatus
from karpenter_core.kube.wire.requests import resized_containers, resized_pod_level
from karpenter_core.kube.wire.shapes import (
    PodShapeParts,
    PodShapes,
    controlling_owner,
    read_annotations,
)

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.kube.wire.raw import RawCondition, RawDaemonSet, RawPod

__all__ = ["daemon_set_view", "pod_view"]

_NO_CLAIMS: Final[dict[str, str]] = {}
_NO_STATUS: Final = RawPodStatus()
_KNOWN: Final = {"True": True, "False": False}


def pod_view(raw: RawPod, shapes: PodShapes) -> PodView:
    """Split a decoded pod into its shared shape and its own fields."""
    meta, status = raw.metadata, raw.status or _NO_STATUS
    node_name, raw.spec.node_name = raw.spec.node_name, ""
    owner = controlling_owner(meta.owner_references)
    resized = resized_containers(raw.spec, status)
    resized_pod = resized_pod_level(raw.spec, status)
    conditions = {condition.type: condition for condition in status.conditions or ()}
    scheduled, ready = conditions.get("PodScheduled"), conditions.get("Ready")
    resize = conditions.get("PodResizePending") if resized or resized_pod else None
    shape = shapes.intern(
        PodShapeParts(
            namespace=meta.namespace,
            labels=meta.labels,
            annotations=read_annotations(meta.annotations),
            owner_api_version=owner.api_version if owner else "",
            owner_kind=owner.kind if owner else "",
            spec=raw.spec,
            resized=resized,
            resized_pod=resized_pod,
            resize_infeasible=resize is not None and resize.reason == "Infeasible",
            owner_controls=owner is None or bool(owner.controller),
        )
    )
    return PodView(
        uid=meta.uid,
        name=meta.name,
        shape=shape,
        resource_version=int(meta.resource_version or 0),
        node_name=intern(node_name),
        phase=intern(status.phase or "Pending"),
        created=meta.creation_timestamp,
        deletion_timestamp=meta.deletion_timestamp,
        deletion_grace_period_seconds=meta.deletion_grace_period_seconds,
        start_time=status.start_time,
        nominated_node_name=status.nominated_node_name,
        resource_claim_statuses={
            claim.name: claim.resource_claim_name or "" for claim in status.resource_claim_statuses
        }
        if status.resource_claim_statuses
        else _NO_CLAIMS,
        owner_name=intern(owner.name) if owner else "",
        owner_uid=intern(owner.uid) if owner else "",
        unschedulable=scheduled is not None and scheduled.reason == "Unschedulable",
        tried=scheduled is not None,
        ready=None if ready is None else _KNOWN.get(ready.status),
        ready_time=_true_since(ready),
        scheduled_time=_true_since(scheduled),
    )


def daemon_set_view(raw: RawDaemonSet, shapes: PodShapes) -> DaemonSetView:
    """Read a DaemonSet as the shape of the pods it would put on a node."""
    meta, template = raw.metadata, raw.spec.template
    pod_meta = template.metadata or RawMeta()
    shape = shapes.intern(
        PodShapeParts(
            namespace=meta.namespace,
            labels=pod_meta.labels,
            annotations=read_annotations(pod_meta.annotations),
            owner_api_version="apps/v1",
            owner_kind="DaemonSet",
            spec=template.spec,
        ),
        is_template=True,
    )
    return DaemonSetView(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        resource_version=int(meta.resource_version or 0),
        template=shape,
    )


def _true_since(condition: RawCondition | None) -> datetime | None:
    if condition is None or condition.status != "True":
        return None
    return condition.last_transition_time
