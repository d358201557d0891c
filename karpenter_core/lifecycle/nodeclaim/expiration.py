"""Expires claims: deletes those older than `expireAfter` by force.

Forceful on purpose: budgets, PodDisruptionBudgets and do-not-disrupt do not count, and nothing is
launched in advance. To replace old nodes gently, users change the NodePool and let its claims drift.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import is_true
from karpenter_core.api.nodeclaim import REGISTERED
from karpenter_core.lifecycle.changes import LifecycleMetric, LifecycleStep, MetricUpdate
from karpenter_core.lifecycle.claim_status import disrupted_labels
from karpenter_core.lifecycle.nodeclaim.registration import pool_uid_of
from karpenter_core.state.events import RegistrationSettled

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import PodView

__all__ = ["EXPIRED", "expiration_step", "expires_at"]

EXPIRED: Final = "expired"
EXPIRED_TOO_EARLY: Final = "ExpiredBeforeRegistration"
PAUSED_RETRY: Final = timedelta(minutes=1)


def expires_at(claim: NodeClaim) -> datetime | None:
    """Return when a claim expires, so long after its creation; None if it never does."""
    lifetime, created = claim.spec.expire_after.timedelta, claim.metadata.creation_timestamp
    return None if lifetime is None or created is None else created + lifetime


def expiration_step(
    claim: NodeClaim, pods: Iterable[PodView], *, now: datetime, paused: bool
) -> LifecycleStep:
    """Delete an expired claim, or requeue it for when it expires; `pods` run on its node.

    While all disruption of its pool is `paused`, the claim does not expire. One that expires before its
    node has registered counts as a failed registration: a lifetime shorter than the boot of a node would
    launch instances for ever.
    """
    at = None if claim.is_deleting else expires_at(claim)
    if at is None:
        return LifecycleStep(claim=claim)
    if at - now > timedelta():
        return LifecycleStep(claim=claim, requeue_after=at - now)
    if paused:
        return LifecycleStep(claim=claim, requeue_after=PAUSED_RETRY)
    owner = "" if is_true(claim.status.conditions, REGISTERED) else pool_uid_of(claim)
    settled = RegistrationSettled(
        pool_uid=owner,
        succeeded=False,
        reason=EXPIRED_TOO_EARLY,
        message=f"expireAfter of NodeClaim {claim.name}, {claim.spec.expire_after}, has passed "
        "before its node registered; set a longer one in the NodePool",
    )
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
        events=(settled,) if owner else (),
        delete=EXPIRED,
    )
