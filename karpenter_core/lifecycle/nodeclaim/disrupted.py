"""What is counted when a claim is deleted under its pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.lifecycle.changes import Fact
from karpenter_core.lifecycle.claim_status import disrupted_labels
from karpenter_core.lifecycle.nodeclaim.launch import DISRUPTED

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["PODS_DISRUPTED", "disrupted_facts"]

PODS_DISRUPTED: Final = "pods_disruption_initiated"


def disrupted_facts(snapshot: Snapshot, claim: NodeClaim, reason: str) -> tuple[Fact, ...]:
    """Return the numbers of a claim that we delete: itself, and its pods that come back elsewhere."""
    labels = disrupted_labels(claim, reason)
    machine = snapshot.state_nodes_by_claim.get(claim.name)
    pods = 0 if machine is None else sum(pod.is_reschedulable for pod in machine.pods)
    return (
        Fact(metric=DISRUPTED, labels=labels),
        Fact(metric=PODS_DISRUPTED, labels=labels, value=pods),
    )
