"""Gives up claims that do not launch, register or initialise in time.

A claim that loses its Node before it is registered is given up too. How long a node may take to
initialise is limited only where a user has set it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import AWAITING_RECONCILIATION, is_true
from karpenter_core.api.labels import DO_NOT_DISRUPT
from karpenter_core.api.nodeclaim import INITIALIZED, LAUNCHED, REGISTERED
from karpenter_core.lifecycle.changes import LifecycleMetric, LifecycleStep, MetricUpdate
from karpenter_core.lifecycle.claim_status import (
    condition_of,
    disrupted_labels,
    with_past_transition_time,
)
from karpenter_core.lifecycle.nodeclaim.registration import pool_uid_of
from karpenter_core.state.events import RegistrationSettled
from karpenter_core.state.paused_pods import demands_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from karpenter_core.api.conditions import Condition
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView, PodView

__all__ = [
    "INITIALIZATION_TIMED_OUT",
    "LAUNCH_TIMED_OUT",
    "LAUNCH_TIMEOUT",
    "NODE_REMOVED",
    "RECOVERY_TIME",
    "REGISTRATION_TIMED_OUT",
    "REGISTRATION_TIMEOUT",
    "initialization_timeout_step",
    "liveness_step",
    "node_removed_step",
]

LAUNCH_TIMED_OUT: Final = "launch_timeout"
REGISTRATION_TIMED_OUT: Final = "registration_timeout"
INITIALIZATION_TIMED_OUT: Final = "initialization_timeout"
NODE_REMOVED: Final = "node_removed"

LAUNCH_TIMEOUT: Final = timedelta(minutes=5)  # upstream default
REGISTRATION_TIMEOUT: Final = timedelta(minutes=15)  # upstream default
RECOVERY_TIME: Final = timedelta(minutes=2)
"""The time that claims have after an outage of the API server, or a start of this process, though
their limits have passed: kubelets could not join, and nothing was launched. They try again within
seconds; instance types have to be listed first."""
_PROTECTED_RETRY: Final = timedelta(minutes=1)


def liveness_step(
    claim: NodeClaim,
    *,
    now: datetime,
    launch_timeout: timedelta = LAUNCH_TIMEOUT,
    registration_timeout: timedelta = REGISTRATION_TIMEOUT,
    shown_for: timedelta = RECOVERY_TIME,
    planned: Iterable[PodView] = (),
) -> LifecycleStep:
    """Delete a claim that was not launched, or did not register, in time.

    `planned` are the waiting pods for which it was launched. Both limits run from the last transition
    of the condition, not from the claim's creation. If the clock was ahead at that transition and has
    been corrected since, they run from now. `shown_for` is the time for which this process has seen
    the cluster without a gap: before, the claim could not advance.
    """
    conditions = claim.status.conditions
    if is_true(conditions, REGISTERED):
        return LifecycleStep(claim=claim)
    if is_true(conditions, LAUNCHED):
        waits_for, limit, reason = REGISTERED, registration_timeout, REGISTRATION_TIMED_OUT
    else:
        waits_for, limit, reason = LAUNCHED, launch_timeout, LAUNCH_TIMED_OUT
    condition = condition_of(claim, waits_for)
    since = claim.metadata.creation_timestamp if condition is None else None
    if condition is not None:
        since = condition.last_transition_time
    if since is None:
        return LifecycleStep(claim=claim, requeue_after=limit)
    corrected = with_past_transition_time(claim, waits_for, now)
    if corrected is not claim:
        return LifecycleStep(claim=corrected, requeue_after=limit)
    remaining = _remaining(since, limit, now=now, shown_for=shown_for)
    if remaining > timedelta():
        return LifecycleStep(claim=claim, requeue_after=remaining)
    owner = pool_uid_of(claim)
    cause, message = "", ""
    if condition is not None and waits_for == LAUNCHED and _was_tried(condition):
        cause, message = condition.reason, condition.message
    settled = RegistrationSettled(
        pool_uid=owner,
        succeeded=False,
        reason=cause,
        message=message,
        demands=demands_of(planned) if reason == REGISTRATION_TIMED_OUT else (),
    )
    return LifecycleStep(
        claim=claim,
        metric_updates=(_disrupted(claim, reason),),
        events=(settled,) if owner else (),
        delete=reason,
    )


def initialization_timeout_step(
    claim: NodeClaim,
    nodes: Iterable[NodeView],
    *,
    now: datetime,
    timeout: timedelta,
    paused: bool,
    shown_for: timedelta = RECOVERY_TIME,
) -> LifecycleStep:
    """Delete a claim that was not initialised so long after it registered; 0 means never.

    Pods are planned on such a node, and wait for it. Its NodePool did not fail to register it, and one
    node replaces another: nothing is launched more often than once in this time. Neither while
    disruption is `paused` nor with the annotation do-not-disrupt, which keeps a node to be examined.
    `shown_for` as in `liveness_step`.
    """
    conditions = claim.status.conditions
    if not timeout or not is_true(conditions, REGISTERED) or is_true(conditions, INITIALIZED):
        return LifecycleStep(claim=claim)
    corrected = with_past_transition_time(claim, REGISTERED, now)
    registered = condition_of(corrected, REGISTERED)
    since = None if registered is None else registered.last_transition_time
    if since is None or corrected is not claim:
        return LifecycleStep(claim=corrected, requeue_after=timeout)
    remaining = _remaining(since, timeout, now=now, shown_for=shown_for)
    if remaining > timedelta():
        return LifecycleStep(claim=claim, requeue_after=remaining)
    marked = (claim.metadata.annotations, *(node.annotations for node in nodes))
    if paused or any(annotations.get(DO_NOT_DISRUPT) == "true" for annotations in marked):
        return LifecycleStep(claim=claim, requeue_after=_PROTECTED_RETRY)
    return LifecycleStep(
        claim=claim,
        metric_updates=(_disrupted(claim, INITIALIZATION_TIMED_OUT),),
        delete=INITIALIZATION_TIMED_OUT,
    )


def node_removed_step(claim: NodeClaim) -> LifecycleStep:
    """Delete a claim whose Node was removed before it registered.

    The kubelet does not create the Node again, so the claim would only wait for its timeout. As for a
    registered node, the deletion of the Node ends the instance. The NodePool did not fail: nothing is
    counted against the health of its registrations.
    """
    return LifecycleStep(
        claim=claim, metric_updates=(_disrupted(claim, NODE_REMOVED),), delete=NODE_REMOVED
    )


def _remaining(
    since: datetime, limit: timedelta, *, now: datetime, shown_for: timedelta
) -> timedelta:
    """Return the rest of a time limit, or of the time after an outage, which is no longer than it."""
    return max(since + limit - now, min(RECOVERY_TIME, limit) - shown_for)


def _disrupted(claim: NodeClaim, reason: str) -> MetricUpdate:
    return MetricUpdate(
        metric=LifecycleMetric.NODECLAIMS_DISRUPTED, labels=disrupted_labels(claim, reason)
    )


def _was_tried(launched: Condition) -> bool:
    """Tell whether a launch was answered, so that the condition carries its error."""
    return launched.reason != AWAITING_RECONCILIATION
