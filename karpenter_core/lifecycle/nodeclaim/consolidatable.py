"""The condition `Consolidatable`: the node has been left in peace for as long as its pool says."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from karpenter_core.api.conditions import TRUE, is_true
from karpenter_core.api.labels import NODE_POOL
from karpenter_core.api.nodeclaim import CONSOLIDATABLE, INITIALIZED
from karpenter_core.lifecycle.changes import Step
from karpenter_core.lifecycle.claim_status import (
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


def settled_at(
    claim: NodeClaim, pool: NodePool, *, latest: datetime | None = None
) -> datetime | None:
    """Return when the claim's node has been quiet for `consolidateAfter`; None when it never is.

    Quiet is known to have begun at `latest`, if that is before the time that the claim says.
    """
    window = pool.spec.disruption.consolidate_after.timedelta
    if window is None or not is_true(claim.status.conditions, INITIALIZED):
        return None
    reference = quiet_since(claim)
    if reference is None:
        return None
    return (reference if latest is None else min(reference, latest)) + window


def consolidatable_step(
    claim: NodeClaim, pool: NodePool | None, *, now: datetime, watched: timedelta = timedelta()
) -> Step:
    """Set or clear the condition; within the window look again exactly at its end.

    `watched` is for how long this process has seen no pod come or go. It counts where the start of
    quiet lies in the future: the clock was ahead when that was noted, or is behind now.
    Claims of static pools are never consolidatable; those without a pool are left as they are.
    """
    if pool is None or claim.is_deleting or NODE_POOL not in claim.metadata.labels:
        return Step(claim=claim)
    if pool.spec.replicas is not None:
        return Step(claim=without_condition(claim, CONSOLIDATABLE))
    at = settled_at(claim, pool, latest=now - watched)
    if at is None:
        return Step(claim=without_condition(claim, CONSOLIDATABLE))
    if at - now > timedelta():
        return Step(claim=without_condition(claim, CONSOLIDATABLE), requeue_after=at - now)
    return Step(claim=with_condition(claim, CONSOLIDATABLE, now=now))
