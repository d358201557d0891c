"""Computes the next step of claim termination: nodes, instance, finalizer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import TRUE, is_true
from karpenter_core.api.labels import REGISTERED as REGISTERED_LABEL
from karpenter_core.api.labels import TERMINATION_FINALIZER, TERMINATION_TIMESTAMP
from karpenter_core.api.nodeclaim import INSTANCE_TERMINATING, REGISTERED
from karpenter_core.api.notices import Notice, ObjectRef
from karpenter_core.errors import AuthError, TerminationRefusedError
from karpenter_core.lifecycle.changes import LifecycleMetric, LifecycleStep, MetricUpdate
from karpenter_core.lifecycle.claim_status import (
    condition_of,
    metric_labels,
    with_condition,
    with_metadata,
)
from karpenter_core.lifecycle.nodeclaim.launch import launched_step
from karpenter_core.state.state_nodes import is_released

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.errors import CloudProviderError
    from karpenter_core.state.ledger_view import LedgerView

__all__ = [
    "INSTANCE_POLL",
    "ClaimTermination",
    "TerminationAction",
    "claim_termination",
    "expiring_notice",
    "finished_step",
    "instance_terminating_step",
    "termination_refused_notices",
    "with_deadline",
    "with_instance",
    "with_late_launch",
    "without_deadline",
]

INSTANCE_POLL: Final = timedelta(seconds=5)  # upstream default
REFUSAL_REPEAT_INTERVAL: Final = timedelta(minutes=15)
"""The interval after which the same refusal to terminate an instance is repeated as an Event."""


class TerminationAction(Enum):
    """The next action in the termination of a claim."""

    NONE = "nothing: it has no finalizer of ours"
    AWAIT_LAUNCH = "wait for the open launch call, which may bring an instance"
    AWAIT_NODES = "delete its nodes and wait until they have drained"
    TERMINATE_INSTANCE = "terminate its instance"
    FINISH = "remove the finalizer: there is no instance"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimTermination:
    """The next action, after the writes of `step`; `delete_nodes` are names of Nodes."""

    action: TerminationAction
    step: LifecycleStep
    delete_nodes: tuple[str, ...] = ()
    kept_nodes: tuple[str, ...] = ()
    """Drained Nodes that finalizers of other controllers keep."""


def claim_termination(
    claim: NodeClaim, nodes: Sequence[NodeView], ledger: LedgerView, *, now: datetime
) -> ClaimTermination:
    """Return the next action in the termination of a deleted claim; `nodes` are its instance's.

    Only registered nodes are deleted; the others are left to the controller that removes nodes without
    an instance. The instance does not wait for a drained node that only the finalizer of another
    controller keeps; the claim does (`kept_nodes`), once the instance is gone.
    """
    if TERMINATION_FINALIZER not in claim.metadata.finalizers:
        return ClaimTermination(action=TerminationAction.NONE, step=LifecycleStep(claim=claim))
    step = _with_deadline(with_late_launch(claim, ledger, now))
    if claim.uid in ledger.open_launches:
        return ClaimTermination(action=TerminationAction.AWAIT_LAUNCH, step=step)
    is_registered = is_true(claim.status.conditions, REGISTERED)
    own = tuple(node for node in nodes if is_registered or _may_run_pods(node))
    awaited = tuple(node for node in own if not is_released(node))
    if awaited:
        names = tuple(node.name for node in awaited if not node.is_deleting)
        return ClaimTermination(action=TerminationAction.AWAIT_NODES, step=step, delete_nodes=names)
    if step.claim.status.provider_id:
        kept = tuple(node.name for node in own)
        return ClaimTermination(
            action=TerminationAction.TERMINATE_INSTANCE, step=step, kept_nodes=kept
        )
    return ClaimTermination(action=TerminationAction.FINISH, step=step)


def with_instance(claim: NodeClaim, provider_id: str) -> NodeClaim:
    """Return the claim with the id of an instance found for it, which must end before the claim."""
    status = claim.status.model_copy(update={"provider_id": provider_id})
    return claim.model_copy(update={"status": status})


def instance_terminating_step(
    claim: NodeClaim, *, now: datetime, period: timedelta | None = INSTANCE_POLL
) -> LifecycleStep:
    """Set InstanceTerminating; the provider is called again until the instance is gone.

    Without a period the claim waits for its Nodes, which finalizers of other controllers keep.
    """
    return LifecycleStep(
        claim=with_condition(claim, INSTANCE_TERMINATING, now=now), requeue_after=period
    )


def finished_step(claim: NodeClaim, *, now: datetime) -> LifecycleStep:
    """Remove the finalizer, because the claim's instance is gone."""
    metric_updates = [
        MetricUpdate(metric=LifecycleMetric.NODECLAIMS_TERMINATED, labels=_labels(claim))
    ]
    pool = metric_labels(claim, "nodepool")
    if claim.status.provider_id:
        started_at = condition_of(claim, INSTANCE_TERMINATING)
        since = (
            None
            if started_at is None or started_at.status != TRUE
            else started_at.last_transition_time
        )
        seconds = 0.0 if since is None else (now - since).total_seconds()  # gone when first asked
        metric_updates.append(
            MetricUpdate(
                metric=LifecycleMetric.NODECLAIMS_INSTANCE_TERMINATION_DURATION,
                labels=pool,
                value=max(seconds, 0.0),
            )
        )
    if claim.metadata.deletion_timestamp is not None:
        seconds = (now - claim.metadata.deletion_timestamp).total_seconds()
        metric_updates.append(
            MetricUpdate(
                metric=LifecycleMetric.NODECLAIMS_TERMINATION_DURATION,
                labels=pool,
                value=max(seconds, 0.0),
            )
        )
    finalizers = tuple(f for f in claim.metadata.finalizers if f != TERMINATION_FINALIZER)
    return LifecycleStep(
        claim=with_metadata(claim, finalizers=finalizers), metric_updates=tuple(metric_updates)
    )


def with_late_launch(claim: NodeClaim, ledger: LedgerView, now: datetime) -> NodeClaim:
    """Apply a launch that the claim does not name yet: its instance must end too.

    It ended after the claim was deleted, or its result could not be written.
    """
    launch = ledger.launches.get(claim.uid)
    if launch is None or claim.status.provider_id:
        return claim
    return launched_step(claim, launch.claim, now).claim


def with_deadline(claim: NodeClaim, deadline: datetime) -> NodeClaim:
    """Return the claim with the deadline after which its instance ends in any case."""
    annotations = {**claim.metadata.annotations, TERMINATION_TIMESTAMP: _rfc3339(deadline)}
    return with_metadata(claim, annotations=annotations)


def without_deadline(claim: NodeClaim) -> NodeClaim:
    """Return the claim without a deadline: a deletion sets one of its own."""
    annotations = dict(claim.metadata.annotations)
    annotations.pop(TERMINATION_TIMESTAMP, None)
    return with_metadata(claim, annotations=annotations)


def expiring_notice(ref: ObjectRef, deadline: datetime) -> Notice:
    """Return the Event that names the termination deadline of a node or claim."""
    return Notice(
        regarding=ref,
        type="Warning",
        reason="TerminationGracePeriodExpiring",
        message=f"All pods will be deleted by {_rfc3339(deadline)}",
        dedupe=(ref.name,),
    )


def termination_refused_notices(
    error: CloudProviderError, provider_id: str, *, refs: Iterable[ObjectRef]
) -> tuple[Notice, ...]:
    """Return the Events on why an instance cannot be terminated; none for temporary errors."""
    if not isinstance(error, TerminationRefusedError | AuthError):
        return ()
    return tuple(
        Notice(
            regarding=ref,
            type="Warning",
            reason="InstanceTerminationRefused",
            message=(
                f"Instance {provider_id} cannot be terminated: {error}. The controller retries until "
                "the cloud permits it"
            ),
            dedupe=(ref.kind, ref.uid),
            window=REFUSAL_REPEAT_INTERVAL,
        )
        for ref in refs
    )


def _may_run_pods(node: NodeView) -> bool:
    """Tell whether a node is registered, although its claim may not say so yet.

    The node is written first; the claim may be deleted, or the process may end, in between.
    """
    return node.labels.get(REGISTERED_LABEL) == "true"


def _with_deadline(claim: NodeClaim) -> LifecycleStep:
    period = claim.spec.termination_grace_period
    deleted = claim.metadata.deletion_timestamp
    if period is None or deleted is None or TERMINATION_TIMESTAMP in claim.metadata.annotations:
        return LifecycleStep(claim=claim)
    deadline = deleted + period.timedelta
    return LifecycleStep(
        claim=with_deadline(claim, deadline),
        notices=(expiring_notice(claim.ref, deadline),),
    )


def _labels(claim: NodeClaim) -> dict[str, str]:
    return metric_labels(claim, "nodepool", "capacity_type", "zone")


def _rfc3339(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
