"""Registers Nodes: adds labels and taints, removes the unregistered taint.

A node boots with the taint `karpenter.sh/unregistered`, so that no pod is bound to it before its
labels and taints are set. One patch sets them and removes that taint.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from karpenter_core.api.conditions import FALSE, UNKNOWN, is_true, is_unknown
from karpenter_core.api.labels import (
    API_VERSION,
    DO_NOT_SYNC_TAINTS,
    TERMINATION_FINALIZER,
    UNREGISTERED_TAINT,
)
from karpenter_core.api.labels import (
    REGISTERED as REGISTERED_LABEL,
)
from karpenter_core.api.nodeclaim import (
    LAUNCHED,
    MULTIPLE_NODES_FOUND,
    NODE_NOT_FOUND,
    NODE_REFUSED,
    REGISTERED,
    REGISTRATION_HOOK_PENDING,
)
from karpenter_core.api.notices import Notice
from karpenter_core.api.records import OwnerView, Taint
from karpenter_core.lifecycle.changes import LifecycleMetric, LifecycleStep, MetricUpdate, NodePatch
from karpenter_core.lifecycle.claim_status import metric_labels, with_condition
from karpenter_core.lifecycle.nodeclaim.refused_nodes import REFUSAL_RETRY
from karpenter_core.lifecycle.nodeclaim.unfit_nodes import find_unfitness
from karpenter_core.state.events import RegistrationSettled
from karpenter_core.state.paused_pods import demands_of
from karpenter_core.state.taints import UNREGISTERED, has_taint, taint_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView, PodView
    from karpenter_core.lifecycle.nodeclaim.refused_nodes import RefusedNode

__all__ = [
    "PendingGate",
    "awaits_registration",
    "pool_uid_of",
    "registered_patch",
    "registration_step",
    "synced_node",
]


class PendingGate(Protocol):
    """A gate of a provider that does not let the node register yet."""

    @property
    def name(self) -> str: ...  # noqa: D102 - as in the provider contract
    @property
    def retry_after(self) -> timedelta: ...  # noqa: D102


def awaits_registration(claim: NodeClaim) -> bool:
    """Tell whether the claim is launched and its node is not registered."""
    conditions = claim.status.conditions
    return is_true(conditions, LAUNCHED) and is_unknown(conditions, REGISTERED)


def synced_node(claim: NodeClaim, node: NodeView) -> NodeView:
    """Return the node with the claim's labels, annotations and taints, to pass to the gates."""
    return _synced(claim, node).applied_to(node)


def registration_step(
    claim: NodeClaim,
    nodes: Sequence[NodeView],
    *,
    now: datetime,
    refused: Sequence[RefusedNode] = (),
    pending: Sequence[PendingGate] = (),
    gate_error: Exception | None = None,
    planned: Iterable[PodView] = (),
) -> LifecycleStep:
    """Register the node, or set the condition that says what registration waits for.

    `refused` are other nodes that show the claim's provider ID, `pending` are the gates that hold it.
    Meanwhile labels, annotations and taints are synced already, but the unregistered taint stays.
    `planned` are the waiting pods for which the node was launched.
    """
    if not nodes and refused:
        text = "; ".join(node.text for node in refused)
        waiting = _waiting(claim, NODE_REFUSED, text, now=now)
        return replace(waiting, requeue_after=REFUSAL_RETRY)
    if not nodes:
        return _waiting(claim, NODE_NOT_FOUND, "Node not registered with cluster", now=now)
    if len(nodes) > 1:
        return LifecycleStep(
            claim=with_condition(
                claim,
                REGISTERED,
                status=FALSE,
                reason=MULTIPLE_NODES_FOUND,
                message="Invariant violated, matched multiple nodes",
                now=now,
            )
        )
    node = nodes[0]
    notices = () if _had_unregistered_taint(node) else (_taint_missing(claim),)
    if pending or gate_error is not None:
        names = ", ".join(gate.name for gate in pending)
        held = _waiting(claim, REGISTRATION_HOOK_PENDING, names or str(gate_error), now=now)
        return LifecycleStep(
            claim=held.claim,
            node=_synced(claim, node),
            notices=notices,
            requeue_after=min((gate.retry_after for gate in pending), default=None),
            error=gate_error,
        )
    registered = with_condition(claim, REGISTERED, now=now)
    status = registered.status.model_copy(update={"node_name": node.name})
    owner = pool_uid_of(claim)
    planned = tuple(planned)
    return LifecycleStep(
        claim=registered.model_copy(update={"status": status}),
        node=registered_patch(claim, node),
        notices=notices,
        metric_updates=(
            MetricUpdate(
                metric=LifecycleMetric.NODES_CREATED,
                labels=metric_labels(claim, "nodepool", "zone"),
            ),
        ),
        events=(_settled(owner, find_unfitness(claim, node, planned), planned),) if owner else (),
    )


def _settled(
    pool_uid: str, unfitness: tuple[str, str] | None, planned: Iterable[PodView]
) -> RegistrationSettled:
    """Return the result of a registration; a node that its pods cannot use is a failure."""
    demands = demands_of(planned)
    if unfitness is None:
        return RegistrationSettled(pool_uid=pool_uid, succeeded=True, demands=demands)
    reason, message = unfitness
    return RegistrationSettled(
        pool_uid=pool_uid, succeeded=False, reason=reason, message=message, demands=demands
    )


def pool_uid_of(claim: NodeClaim) -> str:
    """Return the UID of the NodePool that owns a claim; empty without one."""
    for owner in claim.metadata.owner_references:
        if owner.kind == "NodePool" and owner.api_version == API_VERSION:
            return owner.uid
    return ""


def _waiting(claim: NodeClaim, reason: str, message: str, *, now: datetime) -> LifecycleStep:
    return LifecycleStep(
        claim=with_condition(
            claim, REGISTERED, status=UNKNOWN, reason=reason, message=message, now=now
        )
    )


def _had_unregistered_taint(node: NodeView) -> bool:
    """Tell whether the node has the unregistered taint, or is registered already."""
    return node.labels.get(REGISTERED_LABEL) == "true" or has_taint(node.taints, UNREGISTERED)


def _synced(claim: NodeClaim, node: NodeView) -> NodePatch:
    """Return the patch from claim to node; a label on either leaves the taints to their owner."""
    labels = claim.metadata.labels
    taints: tuple[Taint, ...] = ()
    if "true" not in {node.labels.get(DO_NOT_SYNC_TAINTS), labels.get(DO_NOT_SYNC_TAINTS)}:
        specs = (*claim.spec.taints, *claim.spec.startup_taints)
        taints = tuple(taint_of(spec) for spec in specs)
    return NodePatch(
        labels=labels,
        annotations=claim.metadata.annotations,
        add_taints=taints,
        add_finalizers=(TERMINATION_FINALIZER,),
        owner=OwnerView(
            api_version=API_VERSION,
            kind="NodeClaim",
            name=claim.name,
            uid=claim.uid,
            block_owner_deletion=True,
        ),
    )


def registered_patch(claim: NodeClaim, node: NodeView) -> NodePatch:
    """Return the patch that registers a Node."""
    synced = _synced(claim, node)
    return NodePatch(
        labels={**synced.labels, REGISTERED_LABEL: "true"},
        annotations=synced.annotations,
        add_taints=synced.add_taints,
        remove_taints=(UNREGISTERED,),
        add_finalizers=synced.add_finalizers,
        owner=synced.owner,
    )


def _taint_missing(claim: NodeClaim) -> Notice:
    return Notice(
        regarding=claim.ref,
        type="Warning",
        reason="UnregisteredTaintMissing",
        message=(
            f"Missing {UNREGISTERED_TAINT} taint which prevents registration related race "
            "conditions on Karpenter-managed nodes"
        ),
        dedupe=(claim.uid,),
    )
