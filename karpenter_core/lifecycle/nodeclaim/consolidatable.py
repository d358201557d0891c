"""Sets the condition Consolidatable after the pool's `consolidateAfter`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import TRUE, is_true
from karpenter_core.api.labels import NODE_POOL
from karpenter_core.api.nodeclaim import CONSOLIDATABLE, INITIALIZED
from karpenter_core.lifecycle.changes import LifecycleStep
from karpenter_core.lifecycle.claim_status import (
    condition_of,
    with_condition,
    without_condition,
)
from karpenter_core.state.replacements import is_unused_replacement

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodepool import NodePool

__all__ = ["REPLACEMENT_GRACE", "consolidatable_at", "consolidatable_step", "quiet_since"]

REPLACEMENT_GRACE: Final = timedelta(minutes=5)
"""The least time that a replacement without pods is kept for.

Its command may have ended before it was ready, with its time limit or its process. The next pass moves
the pods there; if it were removed as empty, that pass would launch another one.
"""


def quiet_since(claim: NodeClaim) -> datetime | None:
    """Return when the last pod came or went; before the first one, when the claim initialised."""
    if claim.status.last_pod_event_time is not None:
        return claim.status.last_pod_event_time
    condition = condition_of(claim, INITIALIZED)
    if condition is None or condition.status != TRUE:
        return None
    return condition.last_transition_time


def consolidatable_at(
    claim: NodeClaim, pool: NodePool, *, latest: datetime | None = None
) -> datetime | None:
    """Return when the claim's node will have been quiet for `consolidateAfter`; None if never.

    The quiet time began at `latest` at the latest, whatever later time the claim's status has.
    """
    window = pool.spec.disruption.consolidate_after.timedelta
    if window is None or not is_true(claim.status.conditions, INITIALIZED):
        return None
    reference = quiet_since(claim)
    if reference is None:
        return None
    if is_unused_replacement(claim):
        window = max(window, REPLACEMENT_GRACE)
    return (reference if latest is None else min(reference, latest)) + window


def consolidatable_step(
    claim: NodeClaim,
    pool: NodePool | None,
    *,
    now: datetime,
    observed_quiet_time: timedelta = timedelta(),
) -> LifecycleStep:
    """Set or clear the condition; before the quiet time is over, requeue for its end.

    `observed_quiet_time` is for how long this process has seen no pod come or go. It counts if the
    claim's start of quiet lies in the future, because a clock was ahead or is behind now. Claims of
    static pools are never consolidatable; claims without a pool are left as they are.
    """
    if pool is None or claim.is_deleting or NODE_POOL not in claim.metadata.labels:
        return LifecycleStep(claim=claim)
    if pool.spec.replicas is not None:
        return LifecycleStep(claim=without_condition(claim, CONSOLIDATABLE))
    at = consolidatable_at(claim, pool, latest=now - observed_quiet_time)
    if at is None:
        return LifecycleStep(claim=without_condition(claim, CONSOLIDATABLE))
    if at - now > timedelta():
        return LifecycleStep(claim=without_condition(claim, CONSOLIDATABLE), requeue_after=at - now)
    return LifecycleStep(claim=with_condition(claim, CONSOLIDATABLE, now=now))
