"""The end of a claim: its nodes drain and go, its instance goes, then its finalizer."""

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
from karpenter_core.errors import AuthError, BadInputError, TerminationRefusedError
from karpenter_core.lifecycle.changes import Fact, Step
from karpenter_core.lifecycle.claim_status import (
    condition_of,
    metric_labels,
    with_condition,
    with_metadata,
)
from karpenter_core.lifecycle.nodeclaim.launch import launched_step

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.errors import CloudProviderError
    from karpenter_core.state.ledger import LedgerView

__all__ = [
    "INSTANCE_POLL",
    "ClaimTermination",
    "TerminationAction",
    "claim_termination",
    "deadline_of",
    "expiring_notice",
    "finished_step",
    "instance_terminating_step",
    "termination_refused_notices",
    "with_deadline",
    "with_instance",
]

INSTANCE_POLL: Final = timedelta(seconds=5)  # upstream default
REFUSAL_REPEATED: Final = timedelta(minutes=15)
"""How often the same refusal to terminate an instance is told of one object."""


class TerminationAction(Enum):
    """What the end of a claim waits for."""

    NONE = "nothing to do: the finalizer is not there"
    AWAIT_LAUNCH = "a launch is open, and may yet bring an instance"
    AWAIT_NODES = "nodes are draining"
    TERMINATE_INSTANCE = "the provider is to be asked"
    FINISH = "there is no instance: the finalizer may go"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimTermination:
    """What to do next, after the step's writes; `delete_nodes` are names of Nodes."""

    action: TerminationAction
    step: Step
    delete_nodes: tuple[str, ...] = ()


def claim_termination(
    claim: NodeClaim, nodes: Sequence[NodeView], ledger: LedgerView, *, now: datetime
) -> ClaimTermination:
    """Say what stands between a deleted claim and its end.

    Only nodes that were registered are ours to delete; of the others the kubelet's lease is left
    to whoever looks after nodes without machines. A node that we have let go of is not waited for,
    however long the finalizer of somebody else keeps it.
    """
    if TERMINATION_FINALIZER not in claim.metadata.finalizers:
        return ClaimTermination(action=TerminationAction.NONE, step=Step(claim=claim))
    step = _with_deadline(_with_late_launch(claim, ledger, now))
    if claim.uid in ledger.open_launches:
        return ClaimTermination(action=TerminationAction.AWAIT_LAUNCH, step=step)
    is_registered = is_true(claim.status.conditions, REGISTERED)
    awaited = tuple(
        node for node in nodes if (is_registered or _is_let_in(node)) and not _is_let_go(node)
    )
    if awaited:
        names = tuple(node.name for node in awaited if not node.is_deleting)
        return ClaimTermination(action=TerminationAction.AWAIT_NODES, step=step, delete_nodes=names)
    if step.claim.status.provider_id:
        return ClaimTermination(action=TerminationAction.TERMINATE_INSTANCE, step=step)
    return ClaimTermination(action=TerminationAction.FINISH, step=step)


def with_instance(claim: NodeClaim, provider_id: str) -> NodeClaim:
    """Return the claim with the instance that was found for it: it goes before the claim does."""
    status = claim.status.model_copy(update={"provider_id": provider_id})
    return claim.model_copy(update={"status": status})


def instance_terminating_step(claim: NodeClaim, *, now: datetime) -> Step:
    """Note that the provider has begun; it is asked again until the instance is gone."""
    return Step(
        claim=with_condition(claim, INSTANCE_TERMINATING, now=now), requeue_after=INSTANCE_POLL
    )


def finished_step(claim: NodeClaim, *, now: datetime) -> Step:
    """Take the finalizer off: nothing stands behind the claim any more."""
    facts = [Fact(metric="nodeclaims_terminated", labels=_labels(claim))]
    pool = metric_labels(claim, "nodepool")
    if claim.status.provider_id:
        begun = condition_of(claim, INSTANCE_TERMINATING)
        since = None if begun is None or begun.status != TRUE else begun.last_transition_time
        seconds = 0.0 if since is None else (now - since).total_seconds()  # gone when first asked
        facts.append(
            Fact(
                metric="nodeclaims_instance_termination_duration",
                labels=pool,
                value=max(seconds, 0.0),
            )
        )
    if claim.metadata.deletion_timestamp is not None:
        seconds = (now - claim.metadata.deletion_timestamp).total_seconds()
        facts.append(
            Fact(metric="nodeclaims_termination_duration", labels=pool, value=max(seconds, 0.0))
        )
    finalizers = tuple(f for f in claim.metadata.finalizers if f != TERMINATION_FINALIZER)
    return Step(claim=with_metadata(claim, finalizers=finalizers), facts=tuple(facts))


def deadline_of(claim: NodeClaim | None) -> datetime | None:
    """Return when the machine goes in any case; None when that was never said.

    Raises:
        BadInputError: somebody wrote an annotation that is no instant.
    """
    text = None if claim is None else claim.metadata.annotations.get(TERMINATION_TIMESTAMP)
    if text is None or claim is None:
        return None
    try:
        deadline = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInputError(
            f'NodeClaim {claim.name}: annotation {TERMINATION_TIMESTAMP} is "{text}", '
            "which is not an RFC 3339 instant"
        ) from error
    return deadline if deadline.tzinfo is not None else deadline.replace(tzinfo=UTC)


def with_deadline(claim: NodeClaim, deadline: datetime) -> NodeClaim:
    """Return the claim with the moment written down at which its machine goes in any case."""
    annotations = {**claim.metadata.annotations, TERMINATION_TIMESTAMP: _rfc3339(deadline)}
    return with_metadata(claim, annotations=annotations)


def expiring_notice(ref: ObjectRef, deadline: datetime) -> Notice:
    """Say until when a node or claim has time."""
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
    """Say of NodeClaim and Node why an instance stays; nothing of errors that pass by themselves."""
    if not isinstance(error, TerminationRefusedError | AuthError):
        return ()
    return tuple(
        Notice(
            regarding=ref,
            type="Warning",
            reason="InstanceTerminationRefused",
            message=(
                f"Instance {provider_id} may not be terminated: {error}. It is tried again until "
                "the cloud permits it"
            ),
            dedupe=(ref.kind, ref.uid),
            window=REFUSAL_REPEATED,
        )
        for ref in refs
    )


def _is_let_in(node: NodeView) -> bool:
    """Tell whether pods may run on a node, although its claim does not say so yet.

    The node is written first: the claim may have been deleted, or we may have died, in between.
    """
    return node.labels.get(REGISTERED_LABEL) == "true"


def _is_let_go(node: NodeView) -> bool:
    return node.is_deleting and TERMINATION_FINALIZER not in node.finalizers


def _with_late_launch(claim: NodeClaim, ledger: LedgerView, now: datetime) -> NodeClaim:
    """Take over a launch that came back after the claim was deleted: its instance must go too."""
    known = ledger.launches.get(claim.uid)
    if known is None or claim.status.provider_id:
        return claim
    return launched_step(claim, known.claim, now).claim


def _with_deadline(claim: NodeClaim) -> Step:
    period = claim.spec.termination_grace_period
    deleted = claim.metadata.deletion_timestamp
    if period is None or deleted is None or TERMINATION_TIMESTAMP in claim.metadata.annotations:
        return Step(claim=claim)
    deadline = deleted + period.timedelta
    return Step(
        claim=with_deadline(claim, deadline),
        notices=(expiring_notice(claim.ref, deadline),),
    )


def _labels(claim: NodeClaim) -> dict[str, str]:
    return metric_labels(claim, "nodepool", "capacity_type", "zone")


def _rfc3339(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
