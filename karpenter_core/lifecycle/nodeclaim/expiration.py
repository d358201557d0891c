"""Expiry: a claim that has lived as long as it may is deleted, whatever stands in the way.

Forceful on purpose: budgets, PodDisruptionBudgets and do-not-disrupt are not asked, and nothing is
launched in advance. Who wants old nodes replaced gently changes the NodePool, and lets them drift.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.nodeclaim import LAUNCHED
from karpenter_core.lifecycle.changes import Fact, Step
from karpenter_core.lifecycle.claim_status import CLOCKS_DIFFER, condition_of, disrupted_labels
from karpenter_core.lifecycle.nodeclaim.launch import DISRUPTED

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import PodView

__all__ = ["EXPIRED", "expiration_step", "expires_at"]

EXPIRED: Final = "expired"
PAUSED_RETRY: Final = timedelta(minutes=1)
LONGEST_LAUNCH: Final = timedelta(minutes=10)
"""From creation to launch; a claim that is not launched is given up far sooner."""


def expires_at(claim: NodeClaim, now: datetime) -> datetime | None:
    """Return when a claim has lived as long as it may; None for one that never has."""
    lifetime = claim.spec.expire_after.timedelta
    born = _born_at(claim, now)
    return None if lifetime is None or born is None else born + lifetime


def _born_at(claim: NodeClaim, now: datetime) -> datetime | None:
    """Return when a claim's life began: with its creation, which the API server's clock dates.

    Where the controller launched it much later by its own clock, the clocks differ, and what passes by
    the one does not begin by the other: else a claim would be expired as soon as it is launched.
    """
    created, launched = claim.metadata.creation_timestamp, condition_of(claim, LAUNCHED)
    since = None if launched is None else launched.last_transition_time
    if created is None or since is None or since - created <= LONGEST_LAUNCH:
        return created
    return created if since - now > CLOCKS_DIFFER else since  # of a clock that has been put right


def expiration_step(
    claim: NodeClaim, pods: Iterable[PodView], *, now: datetime, paused: bool = False
) -> Step:
    """Delete a claim whose time is over, else look again when it is; `pods` are on its node.

    While all disruption of its pool is `paused` its time is not over.
    """
    at = None if claim.is_deleting else expires_at(claim, now)
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
