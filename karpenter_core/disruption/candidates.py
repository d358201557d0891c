"""Evaluates every node: disruption candidate, or blocked and why."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import READY, is_true
from karpenter_core.api.judgements import FailedJudgements
from karpenter_core.api.labels import CAPACITY_TYPE, DO_NOT_DISRUPT, INSTANCE_TYPE, NODE_POOL, ZONE
from karpenter_core.api.notices import Notice
from karpenter_core.disruption.blocked_nodes import BlockedNode, DisruptionObstacle
from karpenter_core.disruption.candidate_memory import CandidateMemory, NodeProfileReader
from karpenter_core.disruption.pricing import current_price
from karpenter_core.state.bookings import booked_nodes
from karpenter_core.state.disruption_pause import pause_reason
from karpenter_core.state.leaving_pods import pods_on_leaving_nodes
from karpenter_core.state.placements import NOMINATION_WINDOW, expected_state_nodes
from karpenter_core.state.pod_budgets import PodBudgets, budget_key
from karpenter_core.state.pod_rules import do_not_disrupt, pod_ref, protection_notice
from karpenter_core.state.state_nodes import state_node_ref
from karpenter_core.state.untried_pods import list_foreseen_pods
from karpenter_core.state.virtual_pods import hosts_virtual_pods

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.prices import Price
    from karpenter_core.api.records import NodeView, PodView
    from karpenter_core.disruption.candidate_memory import NodeProfile
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["Candidate", "DisruptionClass", "NodeEvaluation", "evaluate_nodes", "is_recent"]

EVALUATION_STEP: Final = "disruption"
"""The step that reports of objects that were set aside name."""
BOOT_TIME: Final = timedelta(minutes=2)
"""Time for which a starting node is normal and needs no Event; an Event's usual window."""


class DisruptionClass(Enum):
    """Whether pods can block a method."""

    GRACEFUL = "graceful"
    """Pods always block."""
    EVENTUAL = "eventual"
    """Pods block unless the claim has a terminationGracePeriod, which bounds the wait."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """A node that may be disrupted, with its price and disruption cost."""

    state_node: StateNode
    node: NodeView
    claim: NodeClaim
    pool: NodePool
    instance_type: InstanceType | None
    zone: str
    capacity_type: str
    price: Price
    """Per hour, whether its offering is available or not; zero when unknown."""
    reschedule_cost: float
    hosts_virtual_pods: bool
    """Whether the last provisioning pass put virtual pods on the node."""

    @property
    def name(self) -> str:
        """Name of the claim."""
        return self.claim.name

    @property
    def provider_id(self) -> str:
        """ID of the instance."""
        return self.state_node.provider_id

    @property
    def reschedulable_pods(self) -> tuple[PodView, ...]:
        """The pods that would have to move."""
        return tuple(pod for pod in self.state_node.pods if pod.is_reschedulable)

    @property
    def is_empty(self) -> bool:
        """Whether no pod on the node makes its removal cost anything."""
        return self.reschedule_cost <= 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeEvaluation:
    """The result of evaluating every node."""

    candidates: tuple[Candidate, ...]
    blocked: tuple[BlockedNode, ...]
    notices: tuple[Notice, ...]
    """Events about annotations of pods."""

    @property
    def by_state_node(self) -> dict[StateNode, Candidate | BlockedNode]:
        """Every verdict, by its state node."""
        return {verdict.state_node: verdict for verdict in (*self.candidates, *self.blocked)}


def evaluate_nodes(
    snapshot: Snapshot,
    *,
    now: datetime,
    disruption_class: DisruptionClass = DisruptionClass.GRACEFUL,
    queued: frozenset[str] = frozenset(),
    nomination_window: timedelta = NOMINATION_WINDOW,
    paused: bool = False,
    graceful: NodeEvaluation | None = None,
    failed: FailedJudgements | None = None,
    memory: CandidateMemory[Candidate] | None = None,
) -> NodeEvaluation:
    """Evaluate every node; `queued` are the provider IDs that earlier commands disrupt.

    `paused`: disruption is paused in the whole cluster. `graceful` is the evaluation for that
    class at the same time: only nodes that pods block are then evaluated again. Nodes that cannot
    be evaluated are blocked and added to `failed`. With the `memory` of earlier passes, nodes that
    are as they were are not read again; the result is the same.
    """
    failed, memory = failed or FailedJudgements(), memory or CandidateMemory[Candidate]()
    if graceful is not None and not any(
        blocked.obstacle in _POD_OBSTACLES for blocked in graceful.blocked
    ):
        return replace(graceful, notices=())  # no verdict depends on the class
    budgets = PodBudgets(snapshot.disruption_budgets.values())
    judge = _NodeEvaluator(
        snapshot=snapshot,
        now=now,
        disruption_class=disruption_class,
        queued=queued,
        budgets=budgets,
        profiles=NodeProfileReader(budgets),
        memory=memory,
        expected=_expected_state_nodes(snapshot, now, nomination_window, failed),
        paused=paused,
        booked=booked_nodes(snapshot),
    )
    candidates: list[Candidate] = []
    blocked: list[BlockedNode] = []
    verdicts = {} if graceful is None else graceful.by_state_node
    profiles = memory.profiles(snapshot, budgets)
    repeated = judge.repeated_candidates()
    for state_node, profile in zip(snapshot.state_nodes, profiles, strict=True):
        kept = repeated.get(state_node)
        if kept is not None and profile is not None and profile.is_plain:
            candidates.append(kept)
            continue
        verdict = verdicts.get(state_node)
        if verdict is None or (
            isinstance(verdict, BlockedNode) and verdict.obstacle in _POD_OBSTACLES
        ):
            try:
                verdict = judge.evaluate(state_node, profile)
            except Exception as error:
                noted = failed.note(state_node_ref(state_node), EVALUATION_STEP, error)
                verdict = BlockedNode(
                    state_node=state_node,
                    obstacle=DisruptionObstacle.FAILURE,
                    message=noted.message,
                )
        if isinstance(verdict, Candidate):
            candidates.append(verdict)
        elif verdict.obstacle in _STARTUP_OBSTACLES and is_recent(state_node, now):
            blocked.append(replace(verdict, is_starting=True))
        else:
            blocked.append(verdict)
    if disruption_class is DisruptionClass.GRACEFUL:
        memory.keep(snapshot, candidates)
    return NodeEvaluation(
        candidates=tuple(candidates), blocked=tuple(blocked), notices=tuple(judge.notices)
    )


def _expected_state_nodes(
    snapshot: Snapshot, now: datetime, window: timedelta, failed: FailedJudgements
) -> frozenset[StateNode]:
    waiting = (snapshot.pending_pods, snapshot.nominated_pods, list_foreseen_pods(snapshot))
    pods = tuple(pod for group in waiting for pod in group.values())
    leaving = pods_on_leaving_nodes(snapshot, now, failed=failed)
    try:
        return expected_state_nodes(snapshot, pods, now=now, window=window, leaving=leaving)
    except Exception:
        expected: set[StateNode] = set()
        for pod in (*pods, *leaving):
            with failed.judging(pod_ref(pod), EVALUATION_STEP):
                own, its = ((), (pod,)) if pod.node_name else ((pod,), ())
                expected |= expected_state_nodes(snapshot, own, now=now, window=window, leaving=its)
        return frozenset(expected)


def is_recent(state_node: StateNode, now: datetime) -> bool:
    """Tell whether a node is so new that it may still boot or wait for its first pods."""
    created = None if state_node.claim is None else state_node.claim.metadata.creation_timestamp
    return created is not None and now - created < BOOT_TIME


@dataclass(slots=True, kw_only=True)
class _NodeEvaluator:
    """The checks, in order; the first that fails is the reason."""

    snapshot: Snapshot
    now: datetime
    disruption_class: DisruptionClass
    queued: frozenset[str]
    budgets: PodBudgets
    profiles: NodeProfileReader
    memory: CandidateMemory[Candidate]
    expected: frozenset[StateNode]
    paused: bool
    booked: Mapping[StateNode, str]
    notices: list[Notice] = field(default_factory=list[Notice])
    _kept: Mapping[StateNode, Candidate] = field(init=False)

    def __post_init__(self) -> None:
        self._kept = self.memory.candidates(self.snapshot)

    def repeated_candidates(self) -> Mapping[StateNode, Candidate]:
        """Return the last pass's candidates that are candidates again if their pods are no obstacle.

        There are none if pools have changed since, or if there are virtual pods.
        """
        if self.paused or self.snapshot.has_virtual_pods or self.snapshot.virtual_pod_counts:
            return {}
        queued = [node for node in self._kept if node.provider_id in self.queued]
        if not (queued or self.expected or self.booked):
            return self._kept
        held = {*queued, *self.expected, *self.booked}
        return {node: kept for node, kept in self._kept.items() if node not in held}

    def evaluate(
        self, state_node: StateNode, profile: NodeProfile | None
    ) -> Candidate | BlockedNode:
        """Evaluate one node, whose profile may be known."""
        if state_node.provider_id and state_node.provider_id in self.queued:
            return BlockedNode(
                state_node=state_node,
                obstacle=DisruptionObstacle.COMMAND,
                message="candidate is already being disrupted",
            )
        if state_node.claim is None:
            return BlockedNode(
                state_node=state_node,
                obstacle=DisruptionObstacle.UNMANAGED,
                message="node isn't managed by karpenter",
            )
        if state_node.node is None:
            return BlockedNode(
                state_node=state_node,
                obstacle=DisruptionObstacle.NO_NODE,
                message="Nodeclaim does not have an associated node",
            )
        blocked = self._node_obstacle(state_node)
        if blocked is not None:
            return blocked
        pool_name = state_node.labels.get(NODE_POOL, "")
        pool = self.snapshot.node_pools.get(pool_name)
        types = self.memory.instance_types(self.snapshot, pool_name)
        if pool is None or not types:
            is_listing = pool is not None and (
                is_true(pool.status.conditions, READY) and pool_name not in self.snapshot.catalogues
            )
            problem = "not found" if pool is None else "has no instance types, or is not ready"
            return BlockedNode(
                state_node=state_node,
                obstacle=DisruptionObstacle.NO_POOL,
                message=f"NodePool {problem} (NodePool={pool_name})",
                subjects=(pool_name,),
                is_starting=is_listing,
            )
        pause = pause_reason(pool, is_paused_globally=self.paused)
        if pause:
            return BlockedNode(
                state_node=state_node,
                obstacle=DisruptionObstacle.PAUSE,
                message=pause[:1].upper() + pause[1:],
            )
        profile = profile or self.profiles.read(state_node)
        blocked = self._pod_obstacle(state_node, state_node.claim, profile)
        if blocked is not None:
            return blocked
        return self._candidate(
            state_node, state_node.node, state_node.claim, pool, types, profile.reschedule_cost
        )

    def _node_obstacle(self, state_node: StateNode) -> BlockedNode | None:
        obstacle, message, subjects = None, "", ()
        if not state_node.initialized:
            obstacle, message = DisruptionObstacle.UNINITIALIZED, "Node isn't initialized"
        elif state_node.marked_for_deletion:
            obstacle, message = (
                DisruptionObstacle.DELETION,
                "Node is deleting or marked for deletion",
            )
        elif state_node.is_nominated(self.now) or state_node in self.expected:
            obstacle, message = DisruptionObstacle.NOMINATION, "Node is nominated for a pending pod"
        elif state_node in self.booked:
            obstacle, subjects = DisruptionObstacle.BOOKING, (self.booked[state_node],)
            message = (
                f"ProvisioningRequest {self.booked[state_node]} has booked capacity on the node"
            )
        elif state_node.annotations.get(DO_NOT_DISRUPT) == "true":
            obstacle, subjects = DisruptionObstacle.ANNOTATION, (DO_NOT_DISRUPT,)
            message = f'Disruption is blocked through the "{DO_NOT_DISRUPT}" annotation'
        elif NODE_POOL not in state_node.labels:
            obstacle = DisruptionObstacle.NO_POOL
            message = f"Node doesn't have required label (label={NODE_POOL})"
        if obstacle is None:
            return None
        return BlockedNode(
            state_node=state_node, obstacle=obstacle, message=message, subjects=subjects
        )

    def _pod_obstacle(
        self, state_node: StateNode, claim: NodeClaim, profile: NodeProfile
    ) -> BlockedNode | None:
        """Return the pod that blocks; a claim's grace period overrides it for eventual methods."""
        if (
            self.disruption_class is DisruptionClass.EVENTUAL
            and claim.spec.termination_grace_period is not None
        ):
            return None
        for pod in profile.noted:
            if protecting := self._protecting_annotation(pod):
                return BlockedNode(
                    state_node=state_node,
                    obstacle=DisruptionObstacle.POD,
                    message=f'Pod has "{protecting}" annotation (Pod={pod.key})',
                    subjects=(pod.key, protecting),
                )
        held = [pod for pod in profile.budgeted if self.budgets.blocking(pod, self.now)]
        if not held:
            return None
        pod = min(held, key=_pod_order)
        budgets = self.budgets.blocking(pod, self.now)
        names = tuple(budget_key(budget) for budget in budgets)
        keys = " ".join(names)
        message = f"Pdb prevents pod evictions (PodDisruptionBudget=[{keys}])"
        if len(budgets) > 1:
            message = f"Eviction does not support multiple PDBs (PodDisruptionBudget(s)=[{keys}])"
        return BlockedNode(
            state_node=state_node,
            obstacle=DisruptionObstacle.POD_DISRUPTION_BUDGET,
            message=message,
            subjects=(*names, pod.key),
        )

    def _protecting_annotation(self, pod: PodView) -> str:
        """Return the annotation that protects a pod now; empty when none does."""
        if not pod.is_active:
            return ""
        verdict = do_not_disrupt(pod, self.now)
        notice = protection_notice(pod, verdict)
        if notice is not None:
            self.notices.append(notice)
        return verdict.annotation if verdict.is_active else ""

    def _candidate(
        self,
        state_node: StateNode,
        node: NodeView,
        claim: NodeClaim,
        pool: NodePool,
        types: Mapping[str, InstanceType],
        reschedule_cost: float,
    ) -> Candidate:
        labels = state_node.labels
        instance_type = types.get(labels.get(INSTANCE_TYPE, ""))
        zone, capacity_type = labels.get(ZONE, ""), labels.get(CAPACITY_TYPE, "")
        hosts = hosts_virtual_pods(self.snapshot, state_node)
        kept = self._kept.get(state_node)
        if kept is not None and kept.hosts_virtual_pods == hosts:
            return kept
        return Candidate(
            state_node=state_node,
            node=node,
            claim=claim,
            pool=pool,
            instance_type=instance_type,
            zone=zone,
            capacity_type=capacity_type,
            price=current_price(instance_type, zone, capacity_type),
            reschedule_cost=reschedule_cost,
            hosts_virtual_pods=hosts,
        )


_POD_OBSTACLES: Final = frozenset(
    {DisruptionObstacle.POD, DisruptionObstacle.POD_DISRUPTION_BUDGET}
)
_STARTUP_OBSTACLES: Final = frozenset(
    {DisruptionObstacle.NO_NODE, DisruptionObstacle.UNINITIALIZED, DisruptionObstacle.NOMINATION}
)


def _pod_order(pod: PodView) -> tuple[str, str]:
    return pod.key, pod.uid
