"""Decides what to do with a queued pod, and interprets eviction answers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import TRUE
from karpenter_core.api.nodeclaim import DISRUPTION_REASON
from karpenter_core.api.notices import Notice, ObjectRef
from karpenter_core.errors import is_webhook_denial
from karpenter_core.lifecycle.changes import LifecycleMetric, MetricUpdate
from karpenter_core.lifecycle.claim_status import condition_of
from karpenter_core.lifecycle.node.drain import needs_force
from karpenter_core.state.pod_rules import is_evictable, pod_ref

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView, PodView

__all__ = [
    "BACKOFF_BASE",
    "BACKOFF_CAP",
    "EvictionAction",
    "EvictionAdvice",
    "EvictionVerdict",
    "denied_deletion_notice",
    "disrupted_notice",
    "drain_reason",
    "drained_pod_metric",
    "earlier_deadline",
    "evicted_notice",
    "eviction_advice",
    "eviction_verdict",
    "refused_notice",
]

BACKOFF_BASE: Final = timedelta(milliseconds=100)  # upstream default
BACKOFF_CAP: Final = timedelta(seconds=10)  # upstream default

_OK: Final = 200
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_TOO_MANY: Final = 429
_INTERNAL: Final = 500
_DISRUPTION_BUDGET: Final = "DisruptionBudget"  # policy/v1's cause
_SEVERAL_BUDGETS: Final = "more than one PodDisruptionBudget"


class EvictionAction(Enum):
    """The action for a pod in the eviction queue."""

    DONE = "drop it from the queue: it is gone, ended or ending"
    HOLD = "try again after the back-off: it must not be evicted now"
    EVICT = "evict it"
    DELETE = "delete it: its node's deadline is too near for its grace period"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionAdvice:
    """The action for a pod; a deletion leaves it `grace_seconds`, never zero."""

    action: EvictionAction
    grace_seconds: int = 0


def eviction_advice(
    pod: PodView | None, *, uid: str, deadline: datetime | None, now: datetime
) -> EvictionAdvice:
    """Return the action for the queued pod with this UID; `pod` is what the cluster holds now."""
    if pod is None or pod.uid != uid:
        return EvictionAdvice(action=EvictionAction.DONE)
    if deadline is not None and needs_force(pod, deadline, now):
        grace = max(int((deadline - now).total_seconds()), 1)
        if _has_grace_within(pod, grace):
            return EvictionAdvice(action=EvictionAction.DONE)
        return EvictionAdvice(action=EvictionAction.DELETE, grace_seconds=grace)
    if not pod.is_active:
        return EvictionAdvice(action=EvictionAction.DONE)
    if not is_evictable(pod, now):
        return EvictionAdvice(action=EvictionAction.HOLD)
    return EvictionAdvice(action=EvictionAction.EVICT)


def _has_grace_within(pod: PodView, seconds: int) -> bool:
    """Tell whether a pod is being deleted with no more grace: the API server would change nothing."""
    granted = pod.deletion_grace_period_seconds
    return pod.is_terminating and granted is not None and granted <= seconds


class EvictionVerdict(Enum):
    """The meaning of the API server's answer to an eviction."""

    EVICTED = "evicted"
    GONE = "gone"
    BLOCKED = "a PodDisruptionBudget refuses it"
    THROTTLED = "the API server is overloaded"
    SEVERAL_BUDGETS = "several PodDisruptionBudgets select the pod"
    DENIED = "the API server denies it"
    FAILED = "failed"


_REFUSALS: Final = {
    EvictionVerdict.BLOCKED: "evicting pod violates a PDB",
    EvictionVerdict.SEVERAL_BUDGETS: "eviction does not support multiple PDBs",
    EvictionVerdict.DENIED: "the API server denies the eviction",
}
"""The words of the Event for each refusal that the back-off alone does not mend."""


def eviction_verdict(status: int, message: str, causes: Sequence[str]) -> EvictionVerdict:
    """Interpret the answer to an eviction; all but EVICTED and GONE are tried again.

    A 429 from a PodDisruptionBudget carries a cause in its Status; a 429 from API Priority and
    Fairness, or from a webhook, does not. A 403 is that of a webhook, or of a missing right. A webhook
    may deny it with any other status too.
    """
    if _OK <= status < 300:  # noqa: PLR2004 - the class of successful answers
        return EvictionVerdict.EVICTED
    if status != _TOO_MANY and is_webhook_denial(message):
        return EvictionVerdict.DENIED
    if status in {_NOT_FOUND, _CONFLICT}:
        return EvictionVerdict.GONE
    if status == _TOO_MANY:
        is_budget = _DISRUPTION_BUDGET in causes
        return EvictionVerdict.BLOCKED if is_budget else EvictionVerdict.THROTTLED
    if status == _INTERNAL and _SEVERAL_BUDGETS in message:
        return EvictionVerdict.SEVERAL_BUDGETS
    return EvictionVerdict.DENIED if status == _FORBIDDEN else EvictionVerdict.FAILED


def earlier_deadline(first: datetime | None, second: datetime | None) -> datetime | None:
    """Return the earlier deadline of a pod that was queued twice; None means no deadline."""
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)


def drain_reason(node: NodeView | None, claim: NodeClaim | None) -> str:
    """Return why a node is drained, for Events and metrics; empty without Node or NodeClaim."""
    if node is None or claim is None:
        return ""
    condition = condition_of(claim, DISRUPTION_REASON)
    if condition is None or condition.status != TRUE:
        return "Forceful Termination"
    return condition.reason


def evicted_notice(pod: PodView, reason: str) -> Notice:
    """Return the Event that a pod was evicted."""
    return Notice(
        regarding=pod_ref(pod),
        type="Normal",
        reason="Evicted",
        message=f"Evicted pod: {reason}",
        dedupe=(pod.name,),
    )


def drained_pod_metric(reason: str) -> MetricUpdate:
    """Count a pod that was drained."""
    return MetricUpdate(metric=LifecycleMetric.PODS_DRAINED, labels={"reason": reason})


def disrupted_notice(pod: PodView, deadline: datetime, grace_seconds: int) -> Notice:
    """Return the Event that a pod is deleted because its node's deadline is near."""
    granted = pod.shape.termination_grace_period_seconds
    until = f"{deadline.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return Notice(
        regarding=pod_ref(pod),
        type="Normal",
        reason="Disrupted",
        message=(
            f"Deleting the pod to accommodate the terminationTime {until} of the node. The pod "
            f"was granted {grace_seconds} seconds of grace-period of its "
            f"{0 if granted is None else granted} terminationGracePeriodSeconds. This bypasses "
            "the PDB of the pod and the do-not-disrupt annotation."
        ),
        dedupe=(pod.name,),
    )


def refused_notice(
    node: ObjectRef,
    pod: PodView,
    verdict: EvictionVerdict,
    *,
    budgets: Sequence[str],
    answer: str,
) -> Notice:
    """Return the Event on a node that names the pod that blocks the drain, and why: budgets, or an answer."""
    return _blocking_notice(node, pod, _REFUSALS[verdict], budgets=budgets, answer=answer)


def denied_deletion_notice(node: ObjectRef, pod: PodView, *, answer: str) -> Notice:
    """Return the Event on a node that names the pod that outlives its deadline, and why."""
    why = "the API server denies the deletion"
    return _blocking_notice(node, pod, why, budgets=(), answer=answer)


def _blocking_notice(
    node: ObjectRef, pod: PodView, why: str, *, budgets: Sequence[str], answer: str
) -> Notice:
    message = f"Failed to drain node, {why} (Pod={pod.key})"
    if budgets:
        noun = "PodDisruptionBudget" if len(budgets) == 1 else "PodDisruptionBudgets"
        message += f": {noun} {', '.join(budgets)}"
    if answer:
        message += f": {answer}"
    return Notice(
        regarding=node,
        type="Warning",
        reason="FailedDraining",
        message=message,
        # Not merged with the Event that counts the waiting pods, which would hide this one.
        dedupe=(node.name, *(budgets or (pod.key,))),
    )
