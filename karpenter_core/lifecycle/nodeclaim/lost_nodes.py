"""Decides about registered claims whose Node is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import is_true
from karpenter_core.api.nodeclaim import REGISTERED
from karpenter_core.lifecycle.changes import LifecycleMetric, LifecycleStep, MetricUpdate
from karpenter_core.lifecycle.claim_status import disrupted_labels

if TYPE_CHECKING:
    from collections.abc import Container

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "NODE_LOST",
    "are_too_many_lost",
    "has_lost_its_node",
    "node_lost_step",
    "registered_claims",
]

NODE_LOST: Final = "node_lost"
LOST_SHARE: Final = 0.5
"""The share of registered claims above which Nodes are taken for missing by mistake: another cluster, say."""


def has_lost_its_node(claim: NodeClaim, snapshot: Snapshot) -> bool:
    """Tell whether a registered claim that is not being deleted has no Node any more.

    A Node of its name may have been created again, without a provider ID yet.
    """
    return (
        is_true(claim.status.conditions, REGISTERED)
        and not claim.is_deleting
        and bool(claim.status.node_name)
        and claim.status.node_name not in snapshot.nodes
    )


def registered_claims(snapshot: Snapshot) -> tuple[NodeClaim, ...]:
    """Return the claims that have registered, with or without their Node, and are not being deleted."""
    return tuple(
        claim
        for claim in snapshot.node_claims.values()
        if snapshot.manages(claim.spec.node_class_ref)
        and not claim.is_deleting
        and is_true(claim.status.conditions, REGISTERED)
    )


def are_too_many_lost(snapshot: Snapshot, *, before: Container[str] | None) -> bool:
    """Tell whether so many claims have lost their Nodes that the cause may be a mistake.

    `before` are the UIDs of the claims that had registered when the first Node was missed. One that has
    registered since, and has its Node, shows that instances join this cluster: then there is no mistake.
    """
    registered = registered_claims(snapshot)
    lost = sum(has_lost_its_node(claim, snapshot) for claim in registered)
    if lost <= max(1, LOST_SHARE * len(registered)):
        return False
    return before is None or not any(
        claim.uid not in before and snapshot.nodes_of(claim) for claim in registered
    )


def node_lost_step(claim: NodeClaim) -> LifecycleStep:
    """Delete a claim whose Node is gone, as the deletion of the Node would have done."""
    return LifecycleStep(
        claim=claim,
        metric_updates=(
            MetricUpdate(
                metric=LifecycleMetric.NODECLAIMS_DISRUPTED,
                labels=disrupted_labels(claim, NODE_LOST),
            ),
        ),
        delete=NODE_LOST,
    )
