"""Computes the effects of an interruption that a cloud announces.

The claim is deleted, so that its node drains in the usual order. Its deadline becomes the cloud's if
that is earlier, so that no pod outlives the instance without a graceful end. The offering that the
cloud took back is marked unavailable before anything is planned, so that the replacement is another
one. All of this may happen twice: a message is acknowledged after it was handled, and a crash in
between delivers it again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, Protocol

from karpenter_core.api.conditions import is_true
from karpenter_core.api.interruptions import INTERRUPTION_REASONS, InterruptionKind
from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, RESERVED, SPOT, ZONE
from karpenter_core.api.nodeclaim import DISRUPTION_REASON, REGISTERED
from karpenter_core.api.notices import Notice, node_ref
from karpenter_core.errors import (
    ExhaustedScope,
    InsufficientCapacityError,
    OfferingKey,
)
from karpenter_core.lifecycle.changes import MetricUpdate
from karpenter_core.lifecycle.claim_status import (
    condition_of,
    truncate_message,
    with_condition,
    without_condition,
)
from karpenter_core.lifecycle.nodeclaim.disruption_metrics import disrupted_metrics
from karpenter_core.lifecycle.nodeclaim.launch import exhausted_for, exhausted_offerings
from karpenter_core.lifecycle.nodeclaim.registration import pool_uid_of
from karpenter_core.lifecycle.nodeclaim.termination import with_deadline
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.state.events import RegistrationSettled
from karpenter_core.state.termination_deadline import readable_deadline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.errors import CloudProviderError, OfferingMask
    from karpenter_core.state.events import StateEvent
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "MESSAGE_TYPES",
    "InterruptionAnnouncement",
    "InterruptionStep",
    "interruption_step",
    "unclaimed_shortage",
]

MESSAGE_TYPES: Final[Mapping[InterruptionKind, str]] = {
    InterruptionKind.SPOT_RECLAIM: "spot_interrupted",
    InterruptionKind.RESERVATION_RECLAIM: "capacity_reservation_interrupted",
    InterruptionKind.SCHEDULED_MAINTENANCE: "scheduled_change",
    InterruptionKind.INSTANCE_STOPPED: "instance_stopped",
    InterruptionKind.INSTANCE_TERMINATED: "instance_terminated",
    InterruptionKind.INSTANCE_UNHEALTHY: "instance_unhealthy",
    InterruptionKind.LAUNCH_FAILED: "launch_failed",
    InterruptionKind.REBALANCE: "rebalance_recommendation",
    InterruptionKind.IRRELEVANT: "no_op",
    InterruptionKind.UNKNOWN: "unknown",
}
"""Metric labels by kind, as in Karpenter's AWS provider; `launch_failed` and the last one are our own."""

_EVENTS: Final[Mapping[InterruptionKind, tuple[Literal["Normal", "Warning"], str, str]]] = {
    InterruptionKind.SPOT_RECLAIM: (
        "Warning", "SpotInterrupted", "The cloud reclaims this spot instance",
    ),
    InterruptionKind.RESERVATION_RECLAIM: (
        "Warning", "CapacityReservationInstanceInterrupted",
        "The cloud ends the capacity reservation of this instance",
    ),
    InterruptionKind.SCHEDULED_MAINTENANCE: (
        "Warning", "InstanceMaintenanceScheduled", "The cloud has scheduled maintenance of this instance",
    ),
    InterruptionKind.INSTANCE_STOPPED: (
        "Warning", "InstanceStopping", "The instance is stopping or stopped",
    ),
    InterruptionKind.INSTANCE_TERMINATED: (
        "Warning", "InstanceTerminating", "The instance is terminating or terminated",
    ),
    InterruptionKind.INSTANCE_UNHEALTHY: (
        "Warning", "InstanceUnhealthy", "The cloud's checks of this instance fail",
    ),
    InterruptionKind.LAUNCH_FAILED: (
        "Warning", "LaunchFailed", "The cloud accepted the launch of this instance, and it failed",
    ),
    InterruptionKind.REBALANCE: (
        "Normal", "SpotRebalanceRecommendation",
        "The cloud recommends replacing this instance, because its risk of an interruption is high",
    ),
}  # fmt: skip


class InterruptionAnnouncement(Protocol):
    """A cloud's announcement about an instance, as a provider passes it on."""

    @property
    def kind(self) -> InterruptionKind: ...  # noqa: D102 - as in the provider contract
    @property
    def deadline(self) -> datetime | None: ...  # noqa: D102
    @property
    def detail(self) -> str: ...  # noqa: D102
    @property
    def error(self) -> CloudProviderError | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionStep:
    """The effects of an announcement on one claim: mark offerings, write, then delete if set."""

    claim: NodeClaim
    """The claim as it should be; the object passed in when nothing changes."""
    delete: bool = False
    exhausted: tuple[OfferingMask, ...] = ()
    exhausted_for: str = ""
    """The only NodeClass for which `exhausted` is unavailable; empty for all NodeClasses."""
    notices: tuple[Notice, ...] = ()
    """Events to publish in any case."""
    on_delete: tuple[Notice, ...] = ()
    """Events, and metrics below, for the caller that deletes the claim: of two callers only one does."""
    metric_updates: tuple[MetricUpdate, ...] = ()
    events: tuple[StateEvent, ...] = ()
    """Events for the cluster state, after the deletion."""


def interruption_step(
    snapshot: Snapshot,
    claim: NodeClaim,
    announcement: InterruptionAnnouncement,
    *,
    now: datetime,
    act_on_rebalance: bool,
) -> InterruptionStep:
    """Return the effects of an announcement on a claim.

    A claim that is already deleted keeps its reason, and its deadline unless the cloud's is earlier.
    If its launch failed, its offering is unavailable all the same: the process that deleted it may
    have ended before it could remember that.
    """
    kind = announcement.kind
    if kind in {InterruptionKind.IRRELEVANT, InterruptionKind.UNKNOWN}:
        return InterruptionStep(claim=claim)
    notices = _notices(snapshot, claim, *_EVENTS[kind], announcement=announcement)
    if kind is InterruptionKind.REBALANCE and not act_on_rebalance:
        return InterruptionStep(claim=claim, notices=notices)
    dated = _with_earlier_deadline(claim, announcement, now)
    if claim.is_deleting:
        step = InterruptionStep(claim=dated, notices=notices)
        if kind is not InterruptionKind.LAUNCH_FAILED:
            return step
        return _with_shortage(step, snapshot, announcement.error)
    reason = str(kind)
    earlier = condition_of(dated, DISRUPTION_REASON)
    if earlier is not None and earlier.reason not in INTERRUPTION_REASONS:
        # The reason that a command wrote is replaced, so that the condition dates the interruption.
        dated = without_condition(dated, DISRUPTION_REASON)
    dated = with_condition(dated, DISRUPTION_REASON, now=now, reason=reason, message=reason)
    metric_updates = disrupted_metrics(snapshot, claim, MESSAGE_TYPES[kind])
    if kind is InterruptionKind.LAUNCH_FAILED:
        return _failed_launch_step(
            snapshot, dated, announcement.error, notices=notices, metric_updates=metric_updates
        )
    return InterruptionStep(
        claim=dated,
        delete=True,
        exhausted=_exhausted(claim, kind),
        notices=notices,
        on_delete=_notices(
            snapshot,
            claim,
            "Warning",
            "TerminatingOnInterruption",
            f"Draining and terminating because of an interruption: {reason}",
        ),
        metric_updates=metric_updates,
    )


def _failed_launch_step(
    snapshot: Snapshot,
    claim: NodeClaim,
    error: CloudProviderError | None,
    *,
    notices: tuple[Notice, ...],
    metric_updates: tuple[MetricUpdate, ...],
) -> InterruptionStep:
    """Return the effects of a launch that failed after the cloud had accepted it.

    Something becomes unavailable whatever the error is, and the failure counts as a failed
    registration of its NodePool: otherwise the same offering would be launched again at once.
    """
    pool = "" if is_true(claim.status.conditions, REGISTERED) else pool_uid_of(claim)
    settled = RegistrationSettled(
        pool_uid=pool,
        succeeded=False,
        reason=str(InterruptionKind.LAUNCH_FAILED),
        message="" if error is None else truncate_message(str(error)),
    )
    step = InterruptionStep(
        claim=claim,
        delete=True,
        notices=notices,
        metric_updates=metric_updates,
        events=(settled,) if pool else (),
    )
    return _with_shortage(step, snapshot, error)


def _with_shortage(
    step: InterruptionStep, snapshot: Snapshot, error: CloudProviderError | None
) -> InterruptionStep:
    """Make unavailable what the error of a failed launch names, or else the claim's own offering.

    A shortage of a claim that has no labels of an offering yet covers all that the claim allows, as
    that of a refused launch does.
    """
    claim = step.claim
    own = _own_offering(claim)
    if not isinstance(error, InsufficientCapacityError):
        return replace(step, exhausted=own)
    exhausted: tuple[OfferingMask, ...] = own
    if error.offerings or error.quota_groups or not own:
        catalogue = snapshot.catalogues.get(claim.metadata.labels.get(NODE_POOL, ""))
        exhausted = exhausted_offerings(
            error,
            () if catalogue is None else catalogue.instance_types,
            Requirements.from_specs(claim.spec.requirements),
        )
    return replace(step, exhausted=exhausted, exhausted_for=exhausted_for(claim, error))


def unclaimed_shortage(announcement: InterruptionAnnouncement) -> tuple[OfferingMask, ...]:
    """Return what a failed launch makes unavailable although its claim is gone.

    That is what its error names, unless it is about the NodeClass, which only the claim named.
    """
    error = announcement.error
    if (
        announcement.kind is not InterruptionKind.LAUNCH_FAILED
        or not isinstance(error, InsufficientCapacityError)
        or error.scope is ExhaustedScope.NODE_CLASS
    ):
        return ()
    return exhausted_offerings(error, (), Requirements())


def _with_earlier_deadline(
    claim: NodeClaim, announcement: InterruptionAnnouncement, now: datetime
) -> NodeClaim:
    """Return the claim with the cloud's deadline, unless its own deadline is earlier."""
    deadline = (
        now if announcement.kind is InterruptionKind.INSTANCE_UNHEALTHY else announcement.deadline
    )
    if deadline is None:
        return claim
    own = readable_deadline(claim)
    period = claim.spec.termination_grace_period
    if own is None and period is not None:
        own = (claim.metadata.deletion_timestamp or now) + period.timedelta
    return claim if own is not None and own <= deadline else with_deadline(claim, deadline)


def _exhausted(claim: NodeClaim, kind: InterruptionKind) -> tuple[OfferingKey, ...]:
    """Return the offering that the cloud has taken back, which is unavailable for now."""
    assumed = {InterruptionKind.SPOT_RECLAIM: SPOT, InterruptionKind.RESERVATION_RECLAIM: RESERVED}
    if kind not in assumed:
        return ()
    return _own_offering(claim, assumed[kind])


def _own_offering(claim: NodeClaim, capacity_type: str = "") -> tuple[OfferingKey, ...]:
    """Return the offering that a claim was launched in; empty if its labels do not name it.

    `capacity_type` is assumed if there is no label for it.
    """
    labels = claim.metadata.labels
    instance_type, zone = labels.get(INSTANCE_TYPE, ""), labels.get(ZONE, "")
    capacity_type = labels.get(CAPACITY_TYPE, capacity_type)
    if not instance_type or not zone or not capacity_type:
        return ()
    return (OfferingKey(instance_type=instance_type, zone=zone, capacity_type=capacity_type),)


def _notices(
    snapshot: Snapshot,
    claim: NodeClaim,
    severity: Literal["Normal", "Warning"],
    reason: str,
    message: str,
    *,
    announcement: InterruptionAnnouncement | None = None,
) -> tuple[Notice, ...]:
    """Return the Event on the claim and on its Node."""
    if announcement is not None and announcement.deadline is not None:
        message += f" by {announcement.deadline.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    if announcement is not None:
        detail = announcement.detail or truncate_message(str(announcement.error or ""))
        message += f": {detail}" if detail else ""
    refs = (claim.ref, *(node_ref(node) for node in snapshot.nodes_of(claim)))
    return tuple(
        Notice(regarding=ref, type=severity, reason=reason, message=message, dedupe=(ref.uid,))
        for ref in refs
    )
