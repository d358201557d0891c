"""Interruptions: a cloud says that a machine is going, and by when.

The claim is deleted, so that its node drains in the usual order, and its deadline is the cloud's if
that comes before its own: pods that would outlive the machine are ended in time. What cannot be had
any more is masked before anything is planned, so the replacement is not ordered from the shelf that
has just been emptied. Everything here may be done twice: a message is acknowledged after it was
handled, and a crash in between brings it back.
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
from karpenter_core.lifecycle.changes import Fact
from karpenter_core.lifecycle.claim_status import (
    condition_of,
    with_condition,
    without_condition,
)
from karpenter_core.lifecycle.node.termination import node_ref
from karpenter_core.lifecycle.nodeclaim.disrupted import disrupted_facts
from karpenter_core.lifecycle.nodeclaim.termination import deadline_of, with_deadline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["MESSAGE_TYPES", "Announcement", "InterruptionStep", "interruption_step"]

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
"""Labels of metrics by kind, as the AWS provider of Karpenter calls them; the last is our own."""

_EVENTS: Final[Mapping[InterruptionKind, tuple[Literal["Normal", "Warning"], str, str]]] = {
    InterruptionKind.SPOT_RECLAIM: (
        "Warning", "SpotInterrupted", "The cloud takes this spot instance back",
    ),
    InterruptionKind.RESERVATION_RECLAIM: (
        "Warning", "CapacityReservationInstanceInterrupted",
        "The cloud takes the capacity reservation of this instance back",
    ),
    InterruptionKind.SCHEDULED_MAINTENANCE: (
        "Warning", "InstanceMaintenanceScheduled", "The cloud is going to work on this instance",
    ),
    InterruptionKind.INSTANCE_STOPPED: (
        "Warning", "InstanceStopping", "The instance stops or has stopped",
    ),
    InterruptionKind.INSTANCE_TERMINATED: (
        "Warning", "InstanceTerminating", "The instance is going or gone",
    ),
    InterruptionKind.INSTANCE_UNHEALTHY: (
        "Warning", "InstanceUnhealthy", "The cloud's checks of this instance fail",
    ),
    InterruptionKind.REBALANCE: (
        "Normal", "SpotRebalanceRecommendation",
        "The cloud recommends to leave this instance: it is likelier than others to be taken back",
    ),
}  # fmt: skip


class Announcement(Protocol):
    """What a cloud says about an instance, as a provider passes it on."""

    @property
    def kind(self) -> InterruptionKind: ...  # noqa: D102 - as in the provider contract
    @property
    def deadline(self) -> datetime | None: ...  # noqa: D102
    @property
    def detail(self) -> str: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionStep:
    """What follows from an announcement for one claim: mask, write, then delete if so."""

    claim: NodeClaim
    """As it should be; the very object given in when nothing changes."""
    delete: bool = False
    exhausted: tuple[OfferingKey, ...] = ()
    notices: tuple[Notice, ...] = ()
    """Events that hold in any case."""
    on_delete: tuple[Notice, ...] = ()
    """Events, and numbers, for whoever deletes the claim: of two that try only one does."""
    facts: tuple[Fact, ...] = ()


def interruption_step(
    snapshot: Snapshot,
    claim: NodeClaim,
    said: Announcement,
    *,
    now: datetime,
    act_on_rebalance: bool = False,
) -> InterruptionStep:
    """Say what an announcement means for a claim.

    A claim that is going already keeps its reason, and its deadline unless the cloud's is earlier.
    """
    kind = said.kind
    if kind in {InterruptionKind.IRRELEVANT, InterruptionKind.UNKNOWN}:
        return InterruptionStep(claim=claim)
    notices = _notices(snapshot, claim, *_EVENTS[kind], said=said)
    if kind is InterruptionKind.REBALANCE and not act_on_rebalance:
        return InterruptionStep(claim=claim, notices=notices)
    wanted = _with_earlier_deadline(claim, said, now)
    if claim.is_deleting:
        return InterruptionStep(claim=wanted, notices=notices)
    reason = str(kind)
    earlier = condition_of(wanted, DISRUPTION_REASON)
    if earlier is not None and earlier.reason not in INTERRUPTION_REASONS:
        # What a command wrote gives way, so that the time of the condition is the interruption's.
        wanted = without_condition(wanted, DISRUPTION_REASON)
    return InterruptionStep(
        claim=with_condition(wanted, DISRUPTION_REASON, now=now, reason=reason, message=reason),
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
        facts=disrupted_facts(snapshot, claim, MESSAGE_TYPES[kind]),
    )


def _with_earlier_deadline(claim: NodeClaim, said: Announcement, now: datetime) -> NodeClaim:
    """Return the claim with the cloud's deadline, if none that it has already comes before."""
    deadline = now if said.kind is InterruptionKind.INSTANCE_UNHEALTHY else said.deadline
    if deadline is None:
        return claim
    try:
        known = deadline_of(claim)
    except BadInputError:
        known = None
    period = claim.spec.termination_grace_period
    if known is None and period is not None:
        known = (claim.metadata.deletion_timestamp or now) + period.timedelta
    return claim if known is not None and known <= deadline else with_deadline(claim, deadline)


def _exhausted(claim: NodeClaim, kind: InterruptionKind) -> tuple[OfferingKey, ...]:
    """Return the offering that the cloud has just shown to be short of."""
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
    said: Announcement | None = None,
) -> tuple[Notice, ...]:
    """Tell the claim and its Node."""
    if said is not None and said.deadline is not None:
        message += f" by {said.deadline.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    if said is not None and said.detail:
        message += f": {said.detail}"
    refs = (claim.ref, *(node_ref(node) for node in snapshot.nodes_of(claim)))
    return tuple(
        Notice(regarding=ref, type=severity, reason=reason, message=message, dedupe=(ref.uid,))
        for ref in refs
    )
