"""Expires claims: deletes those older than `expireAfter` by force.

Forceful on purpose: budgets, PodDisruptionBudgets and do-not-disrupt do not count, and nothing is
launched in advance. To replace old nodes gently, users change the NodePool and let its claims drift.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.nodeclaim import LAUNCHED
from karpenter_core.lifecycle.changes import LifecycleMetric, LifecycleStep, MetricUpdate
from karpenter_core.lifecycle.claim_status import condition_of, disrupted_labels, is_in_future

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import PodView

__all__ = ["EXPIRED", "expiration_step", "expires_at"]

EXPIRED: Final = "expired"
PAUSED_RETRY: Final = timedelta(minutes=1)
MAX_LAUNCH_TIME: Final = timedelta(minutes=10)
"""Longest time from creation to launch; a claim that is not launched is given up far sooner."""


def expires_at(claim: NodeClaim, now: datetime) -> datetime | None:
    """Return when a claim expires; None if it never does."""
    lifetime = claim.spec.expire_after.timedelta
    born = _created_at(claim, now)
    return None if lifetime is None or born is None else born + lifetime


def _created_at(claim: NodeClaim, now: datetime) -> datetime | None:
    """Return when a claim's lifetime began: at its creation, which the API server's clock dates.

    If the launch, dated by the controller's clock, seems to be much later, the two clocks differ. The
    lifetime then begins with the launch: otherwise the claim would expire as soon as it is launched.
    """
    created, launched = claim.metadata.creation_timestamp, condition_of(claim, LAUNCHED)
    since = None if launched is None else launched.last_transition_time
    if created is None or since is None or since - created <= MAX_LAUNCH_TIME:
        return created
    return created if is_in_future(since, now) else since


def expiration_step(
    claim: NodeClaim, pods: Iterable[PodView], *, now: datetime, paused: bool = False
) -> LifecycleStep:
    """Delete an expired claim, or requeue it for when it expires; `pods` run on its node.

    While all disruption of its pool is `paused`, the claim does not expire.
    """
    at = None if claim.is_deleting else expires_at(claim, now)
    if at is None:
        return LifecycleStep(claim=claim)
    if at - now > timedelta():
        return LifecycleStep(claim=claim, requeue_after=at - now)
    if paused:
        return LifecycleStep(claim=claim, requeue_after=PAUSED_RETRY)
    labels = disrupted_labels(claim, EXPIRED)
    moving = sum(pod.is_reschedulable for pod in pods)
    return LifecycleStep(
        claim=claim,
        metric_updates=(
            MetricUpdate(metric=LifecycleMetric.NODECLAIMS_DISRUPTED, labels=labels),
            MetricUpdate(
                metric=LifecycleMetric.PODS_DISRUPTION_INITIATED, labels=labels, value=moving
            ),
        ),
        delete=EXPIRED,
    )
