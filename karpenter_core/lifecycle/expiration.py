"""Expiry: a claim that has lived as long as it may is deleted, whatever stands in the way.

Forceful on purpose: budgets, PodDisruptionBudgets and do-not-disrupt are not asked, and nothing is
launched in advance. Who wants old nodes replaced gently changes the NodePool, and lets them drift.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.lifecycle.changes import Fact, Step
from karpenter_core.lifecycle.claim_status import disrupted_labels
from karpenter_core.lifecycle.launch import DISRUPTED

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import PodView

__all__ = ["EXPIRED", "expiration_step", "expires_at"]

EXPIRED: Final = "expired"
PAUSED_RETRY: Final = timedelta(minutes=1)


def expires_at(claim: NodeClaim) -> datetime | None:
    """Return when a claim has lived as long as it may; None for one that never has."""
    lifetime = claim.spec.expire_after.timedelta
    created = claim.metadata.creation_timestamp
    return None if lifetime is None or created is None else created + lifetime


def expiration_step(
    claim: NodeClaim, pods: Iterable[PodView], *, now: datetime, paused: bool = False
) -> Step:
    """Delete a claim whose time is over, else look again when it is; `pods` are on its node.

    While all disruption of its pool is `paused` its time is not over.
    """
    at = None if claim.is_deleting else expires_at(claim)
    if at is None:
        return Step(claim=claim)
    if at - now > timedelta():
        return Step(claim=claim, requeue_after=at - now)
    if paused:
        return Step(claim=claim, requeue_after=PAUSED_RETRY)
    labels = disrupted_labels(claim, EXPIRED)
    moving = sum(pod.is_reschedulable for pod in pods)
    return Step(
        claim=claim,
        facts=(
            Fact(metric=DISRUPTED, labels=labels),
            Fact(metric="pods_disruption_initiated", labels=labels, value=moving),
        ),
        delete=EXPIRED,
    )
