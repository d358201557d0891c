"""The condition `Consolidatable`: the node has been left in peace for as long as its pool says."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from karpenter_core.api.conditions import TRUE, is_true
from karpenter_core.api.labels import NODE_POOL
from karpenter_core.api.nodeclaim import CONSOLIDATABLE, INITIALIZED
from karpenter_core.lifecycle.changes import Step
from karpenter_core.lifecycle.claim_status import (
    CLOCKS_DIFFER,
    condition_of,
    with_condition,
    without_condition,
)

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodepool import NodePool

__all__ = ["consolidatable_step", "quiet_since", "settled_at"]


def quiet_since(claim: NodeClaim) -> datetime | None:
    """Return when the last pod came or went or, before any did, when the claim was initialised."""
    if claim.status.last_pod_event_time is not None:
        return claim.status.last_pod_event_time
    condition = condition_of(claim, INITIALIZED)
    if condition is None or condition.status != TRUE:
        return None
    return condition.last_transition_time


def settled_at(claim: NodeClaim, pool: NodePool) -> datetime | None:
    """Return when the claim's node has been quiet for `consolidateAfter`; None when it never is."""
    window = pool.spec.disruption.consolidate_after.timedelta
    if window is None or not is_true(claim.status.conditions, INITIALIZED):
        return None
    reference = quiet_since(claim)
    return None if reference is None else reference + window


def consolidatable_step(claim: NodeClaim, pool: NodePool | None, *, now: datetime) -> Step:
    """Set or clear the condition; within the window look again exactly at its end.

    Where the clock was ahead when quiet was noted, and has been put right, it is counted from now.
    Claims of static pools are never consolidatable; those without a pool are left as they are.
    """
    if pool is None or claim.is_deleting or NODE_POOL not in claim.metadata.labels:
        return Step(claim=claim)
    if pool.spec.replicas is not None:
        return Step(claim=without_condition(claim, CONSOLIDATABLE))
    quiet = quiet_since(claim)
    if quiet is not None and quiet - now > CLOCKS_DIFFER:
        status = claim.status.model_copy(update={"last_pod_event_time": now})
        claim = claim.model_copy(update={"status": status})
    at = settled_at(claim, pool)
    if at is None:
        return Step(claim=without_condition(claim, CONSOLIDATABLE))
    if at - now > timedelta():
        return Step(claim=without_condition(claim, CONSOLIDATABLE), requeue_after=at - now)
    return Step(claim=with_condition(claim, CONSOLIDATABLE, now=now))
