"""Computes the next action to terminate a deleted Node.

One function takes a deleted Node and returns the next action. When it needs an answer from the cloud
(does the instance of this silent node still exist? has its termination started?) it returns that
question, and the caller calls it again with the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal

from karpenter_core.api.conditions import FALSE, TRUE, UNKNOWN
from karpenter_core.api.labels import (
    DISRUPTED_TAINT,
    EXCLUDE_BALANCERS,
    NODE_POOL,
    TERMINATION_FINALIZER,
    ZONE,
)
from karpenter_core.api.nodeclaim import (
    AWAITING_VOLUME_DETACHMENT,
    DISRUPTION_REASON,
    DRAINED,
    DRAINING,
    INSTANCE_TERMINATING,
    TERMINATION_GRACE_PERIOD_ELAPSED,
    VOLUMES_DETACHED,
)
from karpenter_core.api.notices import Notice, node_ref
from karpenter_core.api.records import Taint
from karpenter_core.lifecycle.changes import LifecycleMetric, MetricUpdate, NodePatch
from karpenter_core.lifecycle.claim_status import (
    condition_of,
    with_condition,
    with_past_transition_time,
)
from karpenter_core.lifecycle.node.detachment import (
    names_text,
    pending_attachments,
    pending_attachments_notice,
)
from karpenter_core.lifecycle.node.drain import drain_wave
from karpenter_core.lifecycle.node.out_of_service import held_volumes, out_of_service_patch
from karpenter_core.lifecycle.nodeclaim.termination import (
    INSTANCE_POLL,
    expiring_notice,
)
from karpenter_core.state.pod_rules import is_drainable, undrained_pods
from karpenter_core.state.taints import has_taint
from karpenter_core.state.termination_deadline import deadline_of

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView, PodView
    from karpenter_core.lifecycle.node.drain import Eviction
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "DISRUPTED_NO_SCHEDULE",
    "MIN_DRAIN_TIME",
    "InstanceState",
    "NodeTermination",
    "NodeTerminationAction",
    "disrupted_patch",
    "failed_draining_notice",
    "node_termination",
    "tainted_patch",
    "undisrupted_patch",
]

MIN_DRAIN_TIME: Final = timedelta(seconds=5)
"""Upstream default: a scheduler that has not seen the taint may still bind a pod."""
_POLL: Final = timedelta(seconds=1)

DISRUPTED_NO_SCHEDULE: Final = Taint(key=DISRUPTED_TAINT, effect="NoSchedule")
EXCLUDED_BY_KARPENTER: Final = "karpenter"
"""Value of the label that excludes a node from external load balancers."""


class InstanceState(Enum):
    """The state of a node's instance, as its provider reports it."""

    UNKNOWN = "not fetched yet"
    PRESENT = "it exists"
    ENDING = "the cloud is terminating it"
    TERMINATING = "this controller has started its termination"
    GONE = "gone"


class NodeTerminationAction(Enum):
    """The next action in the termination of a node."""

    NONE = "nothing: the node is not deleted, or has no finalizer of ours"
    WAIT = "wait for pods, volumes or the instance"
    FETCH_INSTANCE = "fetch the instance of this silent node, then call again"
    TERMINATE_INSTANCE = "terminate the instance, then call again"
    FINISH = "remove the finalizer: `finish` is the patch"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTermination:
    """The next action for a node and its writes; the patch of the node comes first."""

    action: NodeTerminationAction
    node: NodePatch | None = None
    claim: NodeClaim | None = None
    """The claim as it should be; None unless the node has exactly one."""
    delete_claim: bool = False
    evictions: tuple[Eviction, ...] = ()
    finish: NodePatch | None = None
    notices: tuple[Notice, ...] = ()
    metric_updates: tuple[MetricUpdate, ...] = ()
    requeue_after: timedelta | None = None


def disrupted_patch(node: NodeView) -> NodePatch:
    """Return the patch that taints a terminating node and excludes it from load balancers.

    A label that the user or another controller has set stays, and is not removed again later.
    """
    labels = {} if EXCLUDE_BALANCERS in node.labels else {EXCLUDE_BALANCERS: EXCLUDED_BY_KARPENTER}
    return replace(tainted_patch(node), labels=labels)


def tainted_patch(node: NodeView) -> NodePatch:
    """Return the patch that taints a node whose disruption may still be rolled back."""
    others = tuple(
        taint
        for taint in node.taints
        if taint.key == DISRUPTED_TAINT and taint.effect != DISRUPTED_NO_SCHEDULE.effect
    )
    return NodePatch(add_taints=(DISRUPTED_NO_SCHEDULE,), remove_taints=others)


def undisrupted_patch(node: NodeView) -> NodePatch | None:
    """Return the patch that removes the marks of a disruption; None without marks or if deleted."""
    if node.is_deleting or not has_taint(node.taints, DISRUPTED_NO_SCHEDULE):
        return None
    is_ours = node.labels.get(EXCLUDE_BALANCERS) == EXCLUDED_BY_KARPENTER
    return NodePatch(
        remove_taints=(DISRUPTED_NO_SCHEDULE,),
        remove_labels=(EXCLUDE_BALANCERS,) if is_ours else (),
    )


def failed_draining_notice(node: NodeView, why: str) -> Notice:
    """Return the Event that a node is not drained yet."""
    return Notice(
        regarding=node_ref(node),
        type="Warning",
        reason="FailedDraining",
        message=f"Failed to drain node, {why}",
        dedupe=(node.name,),
    )


def node_termination(
    snapshot: Snapshot,
    node: NodeView,
    *,
    now: datetime,
    instance: InstanceState,
    out_of_service: bool,
) -> NodeTermination:
    """Return the next action in the termination of a deleted node.

    With `out_of_service`, a dead node gets the out-of-service taint, so that its volumes move.

    Raises:
        BadInputError: the claim's termination deadline cannot be read.
    """
    if not node.is_deleting or TERMINATION_FINALIZER not in node.finalizers:
        return NodeTermination(action=NodeTerminationAction.NONE)
    claims = snapshot.claims_of(node)
    claim = claims[0] if len(claims) == 1 else None
    delete_claim = claim is not None and not claim.is_deleting
    if node.ready != "True" and node.provider_id and instance is InstanceState.UNKNOWN:
        return NodeTermination(
            action=NodeTerminationAction.FETCH_INSTANCE, claim=claim, delete_claim=delete_claim
        )
    steps = _TerminationSteps(
        snapshot=snapshot,
        node=node,
        claim=claim,
        now=now,
        is_dead=out_of_service and node.ready != "True" and instance in _STOPPING_STATES,
    )
    if node.ready != "True" and instance is InstanceState.GONE:
        return _with_claim_deletion(steps.finish_without_instance(), delete_claim=delete_claim)
    return _with_claim_deletion(steps.run(instance), delete_claim=delete_claim)


_STOPPING_STATES: Final = frozenset(
    {InstanceState.ENDING, InstanceState.TERMINATING, InstanceState.GONE}
)
"""States in which a silent node's instance runs nothing, or soon will not."""


def _with_claim_deletion(outcome: NodeTermination, *, delete_claim: bool) -> NodeTermination:
    return replace(outcome, delete_claim=delete_claim) if delete_claim else outcome


@dataclass(slots=True, kw_only=True)
class _TerminationSteps:
    """The steps of one reconcile, in order; the first that has to wait ends it."""

    snapshot: Snapshot
    node: NodeView
    claim: NodeClaim | None
    now: datetime
    is_dead: bool
    """Whether the node gets the out-of-service taint."""
    notices: list[Notice] = field(default_factory=list[Notice])
    metric_updates: list[MetricUpdate] = field(default_factory=list[MetricUpdate])

    def finish_without_instance(self) -> NodeTermination:
        """Finish a node whose instance is gone, once its volumes are detached."""
        pods = self.snapshot.pods_by_node.get(self.node.name, ())
        held = held_volumes(self.snapshot, self.node, pods, self.now) if self.is_dead else ()
        if not held:
            return _finished(self.node, self.claim, self.now)
        self.notices.append(pending_attachments_notice(self.node, held))
        self._set_volumes_detached(UNKNOWN, AWAITING_VOLUME_DETACHMENT)
        return self._wait(INSTANCE_POLL)

    def run(self, instance: InstanceState) -> NodeTermination:
        deadline = deadline_of(self.claim)
        if deadline is not None:
            self.notices.append(expiring_notice(node_ref(self.node), deadline))
        pods = self.snapshot.pods_by_node.get(self.node.name, ())
        waiting = undrained_pods(pods, self.now, self.snapshot.ledger)
        if waiting:
            return self._drain(waiting, deadline)
        if not self._is_drained():
            return self._wait(_POLL)
        if not self._is_detached(pods, deadline):
            return self._wait(_POLL)
        if self.claim is not None and not self._has_other_node():
            if instance not in {InstanceState.TERMINATING, InstanceState.GONE}:
                return self._termination(NodeTerminationAction.TERMINATE_INSTANCE)
            if instance is InstanceState.TERMINATING:
                self.claim = with_condition(self.claim, INSTANCE_TERMINATING, now=self.now)
                return self._wait(INSTANCE_POLL)
        finished = _finished(self.node, self.claim, self.now)
        return NodeTermination(
            action=finished.action,
            claim=self.claim,
            finish=finished.finish,
            notices=tuple(self.notices),
            metric_updates=(*self.metric_updates, *finished.metric_updates),
        )

    def _has_other_node(self) -> bool:
        """Tell whether another Node of the same instance is still to be drained.

        Two Nodes should never have the same provider ID. If they do, the last one ends the instance.
        """
        return self.claim is not None and any(
            other.name != self.node.name and TERMINATION_FINALIZER in other.finalizers
            for other in self.snapshot.nodes_of(self.claim)
        )

    def _drain(self, waiting: tuple[PodView, ...], deadline: datetime | None) -> NodeTermination:
        self._set_draining()
        names = names_text([pod.key for pod in waiting])
        text = f"{len(waiting)} pods are waiting to be evicted: {names}"
        self.notices.append(failed_draining_notice(self.node, text))
        return self._wait(_POLL, drain_wave(waiting, deadline=deadline, now=self.now))

    def _set_draining(self) -> None:
        if self.claim is not None and condition_of(self.claim, DRAINED) is None:
            self.claim = with_condition(
                self.claim,
                DRAINED,
                status=UNKNOWN,
                reason=DRAINING,
                message=DRAINING,
                now=self.now,
            )

    def _is_drained(self) -> bool:
        """Set Drained once the node has been empty for MIN_DRAIN_TIME; without a claim, at once.

        For an empty node that a command had tainted, the time counts from the node's deletion: no
        pod should have come since, and a condition "draining" would be a write without content.
        """
        if self.claim is None:
            return True
        condition = condition_of(self.claim, DRAINED)
        if condition is not None and condition.status == TRUE:
            return True
        since = (
            self._tainted_node_deleted_at() if condition is None else condition.last_transition_time
        )
        if since is None:
            self._set_draining()
            since = self.now
        corrected = with_past_transition_time(self.claim, DRAINED, self.now)
        if corrected is not self.claim:
            self.claim, since = corrected, self.now
        if self.now - since < MIN_DRAIN_TIME:
            return False
        self.claim = with_condition(self.claim, DRAINED, now=self.now)
        self.metric_updates.append(
            MetricUpdate(metric=LifecycleMetric.NODES_DRAINED, labels=_pool_label(self.node))
        )
        return True

    def _tainted_node_deleted_at(self) -> datetime | None:
        """Return when a node that a command had tainted was deleted; None for other nodes.

        The API server's clock dates a deletion; a time ahead of our clock is not used.
        """
        reason = None if self.claim is None else condition_of(self.claim, DISRUPTION_REASON)
        if (
            reason is None
            or reason.status != TRUE
            or not has_taint(self.node.taints, DISRUPTED_NO_SCHEDULE)
        ):
            return None
        deleted = self.node.deletion_timestamp
        return None if deleted is None or deleted > self.now else deleted

    def _is_detached(self, pods: tuple[PodView, ...], deadline: datetime | None) -> bool:
        ledger = self.snapshot.ledger
        staying = (pod for pod in pods if not is_drainable(pod, self.now, ledger))
        attached = pending_attachments(self.snapshot, self.node, staying_pods=staying)
        if not attached:
            self._set_volumes_detached(TRUE, VOLUMES_DETACHED)
            return True
        if deadline is not None and self.now >= deadline:
            self._set_volumes_detached(FALSE, TERMINATION_GRACE_PERIOD_ELAPSED)
            return True
        self.notices.append(pending_attachments_notice(self.node, attached))
        self._set_volumes_detached(UNKNOWN, AWAITING_VOLUME_DETACHMENT)
        return False

    def _set_volumes_detached(
        self, status: Literal["True", "False", "Unknown"], reason: str
    ) -> None:
        if self.claim is not None:
            message = "" if status == TRUE else reason
            self.claim = with_condition(
                self.claim,
                VOLUMES_DETACHED,
                status=status,
                reason=reason,
                message=message,
                now=self.now,
            )

    def _disrupted_patch(self) -> NodePatch:
        marks = disrupted_patch(self.node)
        return marks.merged(out_of_service_patch(self.node, self.now)) if self.is_dead else marks

    def _wait(self, delay: timedelta, evictions: tuple[Eviction, ...] = ()) -> NodeTermination:
        return self._termination(
            NodeTerminationAction.WAIT, evictions=evictions, requeue_after=delay
        )

    def _termination(
        self,
        action: NodeTerminationAction,
        *,
        evictions: tuple[Eviction, ...] = (),
        requeue_after: timedelta | None = None,
    ) -> NodeTermination:
        return NodeTermination(
            action=action,
            node=self._disrupted_patch(),
            claim=self.claim,
            evictions=evictions,
            notices=tuple(self.notices),
            metric_updates=tuple(self.metric_updates),
            requeue_after=requeue_after,
        )


def _finished(node: NodeView, claim: NodeClaim | None, now: datetime) -> NodeTermination:
    pool = _pool_label(node)
    metric_updates = [
        MetricUpdate(
            metric=LifecycleMetric.NODES_TERMINATED,
            labels={**pool, "zone": node.labels.get(ZONE, "")},
        ),
    ]
    if node.deletion_timestamp is not None:
        seconds = max((now - node.deletion_timestamp).total_seconds(), 0.0)
        metric_updates.append(
            MetricUpdate(
                metric=LifecycleMetric.NODES_TERMINATION_DURATION, labels=pool, value=seconds
            )
        )
    if node.created is not None:
        seconds = max((now - node.created).total_seconds(), 0.0)
        metric_updates.append(
            MetricUpdate(metric=LifecycleMetric.NODES_LIFETIME_DURATION, labels=pool, value=seconds)
        )
    return NodeTermination(
        action=NodeTerminationAction.FINISH,
        claim=claim,
        finish=NodePatch(remove_finalizers=(TERMINATION_FINALIZER,)),
        metric_updates=tuple(metric_updates),
    )


def _pool_label(node: NodeView) -> dict[str, str]:
    return {"nodepool": node.labels.get(NODE_POOL, "")}
