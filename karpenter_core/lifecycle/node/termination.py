"""The end of a Node: taint, drain, detach, terminate, let go.

One function looks at a deleting Node and says how far it is. Where it needs to know something of
the cloud (is the instance of this silent node still there? has its termination begun?) it says so
and is asked again with the answer.
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
from karpenter_core.api.notices import Notice, ObjectRef
from karpenter_core.api.records import Taint
from karpenter_core.lifecycle.changes import Fact, NodePatch
from karpenter_core.lifecycle.claim_status import (
    CLOCKS_DIFFER,
    condition_of,
    redated,
    with_condition,
)
from karpenter_core.lifecycle.node.detachment import (
    awaited_attachments,
    awaiting_notice,
    enumerated,
)
from karpenter_core.lifecycle.node.drain import drain_wave
from karpenter_core.lifecycle.node.out_of_service import held_volumes, out_of_service_patch
from karpenter_core.lifecycle.nodeclaim.termination import (
    INSTANCE_POLL,
    deadline_of,
    expiring_notice,
)
from karpenter_core.state.pod_rules import is_drainable, waiting_pods
from karpenter_core.state.taints import has_taint

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView, PodView
    from karpenter_core.lifecycle.node.drain import Eviction
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "DISRUPTED",
    "MINIMUM_DRAIN",
    "InstanceState",
    "NodeTermination",
    "NodeTerminationAction",
    "disrupted_patch",
    "node_ref",
    "node_termination",
    "tainted_patch",
    "undisrupted_patch",
]

MINIMUM_DRAIN: Final = timedelta(seconds=5)
"""Upstream default: a scheduler that has not seen the taint may still bind a pod."""
_POLL: Final = timedelta(seconds=1)

DISRUPTED: Final = Taint(key=DISRUPTED_TAINT, effect="NoSchedule")
BALANCERS_TOLD: Final = "karpenter"
"""Value of the label that takes a node out of balancing."""


class InstanceState(Enum):
    """What the provider said about a node's instance."""

    UNKNOWN = "not asked yet"
    PRESENT = "there"
    ENDING = "the cloud is taking it away"
    TERMINATING = "its termination has been started"
    GONE = "gone"


class NodeTerminationAction(Enum):
    """What the end of a node waits for."""

    NONE = "the node is not ours to end"
    WAIT = "pods or volumes are still there"
    FETCH_INSTANCE = "is the instance of this silent node there? ask, and come back"
    TERMINATE_INSTANCE = "ask for the termination, and come back"
    FINISH = "the finalizer may go: `finish` is the patch"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTermination:
    """What to do now. The patch of the node comes before everything else."""

    action: NodeTerminationAction
    node: NodePatch | None = None
    claim: NodeClaim | None = None
    """The claim as it should be; None when there is none to speak of."""
    delete_claim: bool = False
    evictions: tuple[Eviction, ...] = ()
    finish: NodePatch | None = None
    notices: tuple[Notice, ...] = ()
    facts: tuple[Fact, ...] = ()
    requeue_after: timedelta | None = None


def disrupted_patch(node: NodeView) -> NodePatch:
    """Return the taint and label of a node that is on its way out.

    A label that somebody else has set says the same, and is not ours to take off again.
    """
    labels = {} if EXCLUDE_BALANCERS in node.labels else {EXCLUDE_BALANCERS: BALANCERS_TOLD}
    return replace(tainted_patch(node), labels=labels)


def tainted_patch(node: NodeView) -> NodePatch:
    """Return the taint of a node that is to go; balancers are told when it really does."""
    others = tuple(
        taint
        for taint in node.taints
        if taint.key == DISRUPTED_TAINT and taint.effect != DISRUPTED.effect
    )
    return NodePatch(add_taints=(DISRUPTED,), remove_taints=others)


def undisrupted_patch(node: NodeView) -> NodePatch | None:
    """Return what takes the marks of a disruption off; None for a node that has none or goes."""
    if node.is_deleting or not has_taint(node.taints, DISRUPTED):
        return None
    is_ours = node.labels.get(EXCLUDE_BALANCERS) == BALANCERS_TOLD
    return NodePatch(
        remove_taints=(DISRUPTED,), remove_labels=(EXCLUDE_BALANCERS,) if is_ours else ()
    )


def node_ref(node: NodeView) -> ObjectRef:
    """Refer to a node in Events (Kubernetes files them under the node's name)."""
    return ObjectRef(api_version="v1", kind="Node", name=node.name, uid=node.uid)


def node_termination(
    snapshot: Snapshot,
    node: NodeView,
    *,
    now: datetime,
    instance: InstanceState = InstanceState.UNKNOWN,
    out_of_service: bool = False,
) -> NodeTermination:
    """Say how far a deleting node is and what comes next.

    With `out_of_service`, a node that is dead for good is marked as such, so that its volumes move.

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
    walk = _Walk(
        snapshot=snapshot,
        node=node,
        claim=claim,
        now=now,
        is_dead=out_of_service and node.ready != "True" and instance in _DOWN,
    )
    if node.ready != "True" and instance is InstanceState.GONE:
        return _with(walk.let_go(), delete_claim=delete_claim)
    return _with(walk.run(instance), delete_claim=delete_claim)


_DOWN: Final = frozenset({InstanceState.ENDING, InstanceState.TERMINATING, InstanceState.GONE})
"""Nothing runs on such an instance, or soon will not, once its node has fallen silent."""


def _with(outcome: NodeTermination, *, delete_claim: bool) -> NodeTermination:
    return replace(outcome, delete_claim=delete_claim) if delete_claim else outcome


@dataclass(slots=True, kw_only=True)
class _Walk:
    """The steps of one look, in order; the first that has to wait ends it."""

    snapshot: Snapshot
    node: NodeView
    claim: NodeClaim | None
    now: datetime
    is_dead: bool = False
    """The node is to be marked as dead for good."""
    notices: list[Notice] = field(default_factory=list[Notice])
    facts: list[Fact] = field(default_factory=list[Fact])

    def let_go(self) -> NodeTermination:
        """End a node whose machine is gone, once its volumes have been let go of."""
        pods = self.snapshot.pods_by_node.get(self.node.name, ())
        held = held_volumes(self.snapshot, self.node, pods, self.now) if self.is_dead else ()
        if not held:
            return _finished(self.node, self.claim, self.now)
        self.notices.append(awaiting_notice(self.node, held))
        self._note_volumes(UNKNOWN, AWAITING_VOLUME_DETACHMENT)
        return self._wait(INSTANCE_POLL)

    def run(self, instance: InstanceState) -> NodeTermination:
        deadline = deadline_of(self.claim)
        if deadline is not None:
            self.notices.append(expiring_notice(node_ref(self.node), deadline))
        pods = self.snapshot.pods_by_node.get(self.node.name, ())
        waiting = waiting_pods(pods, self.now)
        if waiting:
            return self._drain(waiting, deadline)
        if not self._is_drained():
            return self._wait(_POLL)
        if not self._is_detached(pods, deadline):
            return self._wait(_POLL)
        if self.claim is not None and not self._has_twin():
            if instance not in {InstanceState.TERMINATING, InstanceState.GONE}:
                return self._outcome(NodeTerminationAction.TERMINATE_INSTANCE)
            if instance is InstanceState.TERMINATING:
                self.claim = with_condition(self.claim, INSTANCE_TERMINATING, now=self.now)
                return self._wait(INSTANCE_POLL)
        finished = _finished(self.node, self.claim, self.now)
        return NodeTermination(
            action=finished.action,
            claim=self.claim,
            finish=finished.finish,
            notices=tuple(self.notices),
            facts=(*self.facts, *finished.facts),
        )

    def _has_twin(self) -> bool:
        """Tell whether another Node of the same machine is still to be drained.

        Two Nodes should never show one provider id. Where they do, the last one ends the machine.
        """
        return self.claim is not None and any(
            other.name != self.node.name and TERMINATION_FINALIZER in other.finalizers
            for other in self.snapshot.nodes_of(self.claim)
        )

    def _drain(self, waiting: tuple[PodView, ...], deadline: datetime | None) -> NodeTermination:
        self._note_draining()
        names = enumerated([pod.key for pod in waiting])
        text = f"{len(waiting)} pods are waiting to be evicted: {names}"
        self.notices.append(
            Notice(
                regarding=node_ref(self.node),
                type="Warning",
                reason="FailedDraining",
                message=f"Failed to drain node, {text}",
                dedupe=(self.node.name,),
            )
        )
        return self._wait(_POLL, drain_wave(waiting, deadline=deadline, now=self.now))

    def _note_draining(self) -> None:
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
        """Call the node drained once it has stayed empty long enough; without claim, at once.

        Of a node that a command had tainted before it was deleted, empty, it is known since when no
        pod should have come: that it is "draining" would be one more write that says nothing.
        """
        if self.claim is None:
            return True
        condition = condition_of(self.claim, DRAINED)
        if condition is not None and condition.status == TRUE:
            return True
        since = self._closed_at() if condition is None else condition.last_transition_time
        if since is None:
            self._note_draining()
            since = self.now
        elif since - self.now > CLOCKS_DIFFER:  # the clock was ahead, and has been put right
            self.claim = redated(self.claim, DRAINED, self.now)
            since = self.now
        if self.now - since < MINIMUM_DRAIN:
            return False
        self.claim = with_condition(self.claim, DRAINED, now=self.now)
        self.facts.append(Fact(metric="nodes_drained", labels=_pool_label(self.node)))
        return True

    def _closed_at(self) -> datetime | None:
        """Return when a node that a command had tainted was deleted; None for any other.

        The API server dates a deletion. Where its clock is ahead of ours the time tells nothing.
        """
        reason = None if self.claim is None else condition_of(self.claim, DISRUPTION_REASON)
        if reason is None or reason.status != TRUE or not has_taint(self.node.taints, DISRUPTED):
            return None
        deleted = self.node.deletion_timestamp
        return None if deleted is None or deleted > self.now else deleted

    def _is_detached(self, pods: tuple[PodView, ...], deadline: datetime | None) -> bool:
        staying = (pod for pod in pods if not is_drainable(pod, self.now))
        attached = awaited_attachments(self.snapshot, self.node, staying=staying)
        if not attached:
            self._note_volumes(TRUE, VOLUMES_DETACHED)
            return True
        if deadline is not None and self.now >= deadline:
            self._note_volumes(FALSE, TERMINATION_GRACE_PERIOD_ELAPSED)
            return True
        self.notices.append(awaiting_notice(self.node, attached))
        self._note_volumes(UNKNOWN, AWAITING_VOLUME_DETACHMENT)
        return False

    def _note_volumes(self, status: Literal["True", "False", "Unknown"], reason: str) -> None:
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

    def _marks(self) -> NodePatch:
        marks = disrupted_patch(self.node)
        return marks.merged(out_of_service_patch(self.node, self.now)) if self.is_dead else marks

    def _wait(self, delay: timedelta, evictions: tuple[Eviction, ...] = ()) -> NodeTermination:
        return self._outcome(NodeTerminationAction.WAIT, evictions=evictions, requeue_after=delay)

    def _outcome(
        self,
        action: NodeTerminationAction,
        *,
        evictions: tuple[Eviction, ...] = (),
        requeue_after: timedelta | None = None,
    ) -> NodeTermination:
        return NodeTermination(
            action=action,
            node=self._marks(),
            claim=self.claim,
            evictions=evictions,
            notices=tuple(self.notices),
            facts=tuple(self.facts),
            requeue_after=requeue_after,
        )


def _finished(node: NodeView, claim: NodeClaim | None, now: datetime) -> NodeTermination:
    pool = _pool_label(node)
    facts = [
        Fact(metric="nodes_terminated", labels={**pool, "zone": node.labels.get(ZONE, "")}),
    ]
    if node.deletion_timestamp is not None:
        seconds = max((now - node.deletion_timestamp).total_seconds(), 0.0)
        facts.append(Fact(metric="nodes_termination_duration", labels=pool, value=seconds))
    if node.created is not None:
        seconds = max((now - node.created).total_seconds(), 0.0)
        facts.append(Fact(metric="nodes_lifetime_duration", labels=pool, value=seconds))
    return NodeTermination(
        action=NodeTerminationAction.FINISH,
        claim=claim,
        finish=NodePatch(remove_finalizers=(TERMINATION_FINALIZER,)),
        facts=tuple(facts),
    )


def _pool_label(node: NodeView) -> dict[str, str]:
    return {"nodepool": node.labels.get(NODE_POOL, "")}
