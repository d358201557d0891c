"""Computes the effects of an interruption that a cloud announces.

The claim is deleted, so that its node drains in the usual order. Its deadline becomes the cloud's if
that is earlier, so that no pod outlives the instance without a graceful end. The offering that the
cloud took back is marked unavailable before anything is planned, so that the replacement is another
one. All of this may happen twice: a message is acknowledged after it was handled, and a crash in
between delivers it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, Protocol

from karpenter_core.api.interruptions import INTERRUPTION_REASONS, InterruptionKind
from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, RESERVED, SPOT, ZONE
from karpenter_core.api.nodeclaim import DISRUPTION_REASON
from karpenter_core.api.notices import Notice
from karpenter_core.errors import BadInputError, OfferingKey
from karpenter_core.lifecycle.changes import MetricUpdate
from karpenter_core.lifecycle.claim_status import (
    condition_of,
    with_condition,
    without_condition,
)
from karpenter_core.lifecycle.node.termination import node_ref
from karpenter_core.lifecycle.nodeclaim.disruption_metrics import disrupted_metrics
from karpenter_core.lifecycle.nodeclaim.termination import deadline_of, with_deadline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["MESSAGE_TYPES", "InterruptionAnnouncement", "InterruptionStep", "interruption_step"]

MESSAGE_TYPES: Final[Mapping[InterruptionKind, str]] = {
    InterruptionKind.SPOT_RECLAIM: "spot_interrupted",
    InterruptionKind.RESERVATION_RECLAIM: "capacity_reservation_interrupted",
    InterruptionKind.SCHEDULED_MAINTENANCE: "scheduled_change",
    InterruptionKind.INSTANCE_STOPPED: "instance_stopped",
    InterruptionKind.INSTANCE_TERMINATED: "instance_terminated",
    InterruptionKind.INSTANCE_UNHEALTHY: "instance_unhealthy",
    InterruptionKind.REBALANCE: "rebalance_recommendation",
    InterruptionKind.IRRELEVANT: "no_op",
    InterruptionKind.UNKNOWN: "unknown",
}
"""Metric labels by kind, as in Karpenter's AWS provider; the last one is our own."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionStep:
    """The effects of an announcement on one claim: mark offerings, write, then delete if set."""

    claim: NodeClaim
    """The claim as it should be; the object passed in when nothing changes."""
    delete: bool = False
    exhausted: tuple[OfferingKey, ...] = ()
    notices: tuple[Notice, ...] = ()
    """Events to publish in any case."""
    on_delete: tuple[Notice, ...] = ()
    """Events, and metrics below, for the caller that deletes the claim: of two callers only one does."""
    metric_updates: tuple[MetricUpdate, ...] = ()


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
    """
    kind = announcement.kind
    if kind in {InterruptionKind.IRRELEVANT, InterruptionKind.UNKNOWN}:
        return InterruptionStep(claim=claim)
    notices = _notices(snapshot, claim, *_EVENTS[kind], announcement=announcement)
    if kind is InterruptionKind.REBALANCE and not act_on_rebalance:
        return InterruptionStep(claim=claim, notices=notices)
    dated = _with_earlier_deadline(claim, announcement, now)
    if claim.is_deleting:
        return InterruptionStep(claim=dated, notices=notices)
    reason = str(kind)
    earlier = condition_of(dated, DISRUPTION_REASON)
    if earlier is not None and earlier.reason not in INTERRUPTION_REASONS:
        # The reason that a command wrote is replaced, so that the condition dates the interruption.
        dated = without_condition(dated, DISRUPTION_REASON)
    return InterruptionStep(
        claim=with_condition(dated, DISRUPTION_REASON, now=now, reason=reason, message=reason),
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
        metric_updates=disrupted_metrics(snapshot, claim, MESSAGE_TYPES[kind]),
    )


def _with_earlier_deadline(
    claim: NodeClaim, announcement: InterruptionAnnouncement, now: datetime
) -> NodeClaim:
    """Return the claim with the cloud's deadline, unless its own deadline is earlier."""
    deadline = (
        now if announcement.kind is InterruptionKind.INSTANCE_UNHEALTHY else announcement.deadline
    )
    if deadline is None:
        return claim
    try:
        own = deadline_of(claim)
    except BadInputError:
        own = None
    period = claim.spec.termination_grace_period
    if own is None and period is not None:
        own = (claim.metadata.deletion_timestamp or now) + period.timedelta
    return claim if own is not None and own <= deadline else with_deadline(claim, deadline)


def _exhausted(claim: NodeClaim, kind: InterruptionKind) -> tuple[OfferingKey, ...]:
    """Return the offering that the cloud has taken back, which is unavailable for now."""
    assumed = {InterruptionKind.SPOT_RECLAIM: SPOT, InterruptionKind.RESERVATION_RECLAIM: RESERVED}
    if kind not in assumed:
        return ()
    labels = claim.metadata.labels
    instance_type, zone = labels.get(INSTANCE_TYPE, ""), labels.get(ZONE, "")
    if not instance_type or not zone:
        return ()
    capacity_type = labels.get(CAPACITY_TYPE, assumed[kind])
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
    if announcement is not None and announcement.detail:
        message += f": {announcement.detail}"
    refs = (claim.ref, *(node_ref(node) for node in snapshot.nodes_of(claim)))
    return tuple(
        Notice(regarding=ref, type=severity, reason=reason, message=message, dedupe=(ref.uid,))
        for ref in refs
    )
