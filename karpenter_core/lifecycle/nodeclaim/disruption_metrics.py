"""Counts claims that this controller deletes, and their pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.lifecycle.changes import LifecycleMetric, MetricUpdate
from karpenter_core.lifecycle.claim_status import disrupted_labels

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["disrupted_metrics"]


def disrupted_metrics(
    snapshot: Snapshot, claim: NodeClaim, reason: str
) -> tuple[MetricUpdate, ...]:
    """Return the metrics of a deleted claim: the claim itself and its reschedulable pods."""
    labels = disrupted_labels(claim, reason)
    state_node = snapshot.state_nodes_by_claim.get(claim.name)
    pods = 0 if state_node is None else sum(pod.is_reschedulable for pod in state_node.pods)
    return (
        MetricUpdate(metric=LifecycleMetric.NODECLAIMS_DISRUPTED, labels=labels),
        MetricUpdate(metric=LifecycleMetric.PODS_DISRUPTION_INITIATED, labels=labels, value=pods),
    )
