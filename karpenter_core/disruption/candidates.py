"""Which machines may be disrupted at all, and what forbids it for the others."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final

from karpenter_core.api.judgements import FailedJudgements
from karpenter_core.api.labels import CAPACITY_TYPE, DO_NOT_DISRUPT, INSTANCE_TYPE, NODE_POOL, ZONE
from karpenter_core.api.notices import DEFAULT_DEDUPE, Notice, ObjectRef
from karpenter_core.disruption.costs import disruption_cost, eviction_cost, reschedule_cost
from karpenter_core.disruption.pricing import current_price
from karpenter_core.state.machines import machine_ref
from karpenter_core.state.pause import why_paused
from karpenter_core.state.placements import NOMINATION_WINDOW, expected_machines
from karpenter_core.state.pod_budgets import PodBudgets, budget_key
from karpenter_core.state.pod_rules import do_not_disrupt, pod_ref, protection_notice

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.prices import Price
    from karpenter_core.api.records import NodeView, PodShape, PodView
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = [
    "Blocked",
    "Candidate",
    "Candidates",
    "DisruptionClass",
    "Obstacle",
    "blocked_notices",
    "find_candidates",
    "is_new",
]

STEP: Final = "disruption"
"""In what is told of what was set aside."""
BOOT_TIME: Final = timedelta(minutes=2)
"""How long it surprises nobody that a machine is on its way up; an Event's usual window."""


class DisruptionClass(Enum):
    """How much a method respects the wishes of pods."""

    GRACEFUL = "graceful"
    """Always."""
    EVENTUAL = "eventual"
    """Unless the claim has a terminationGracePeriod, which ends all waiting."""


class Obstacle(StrEnum):
    """The closed list of what forbids to disrupt a machine; the first that holds is reported."""

    COMMAND = "command"
    """An earlier command is working on it."""
    UNMANAGED = "unmanaged"
    """A Node without a NodeClaim."""
    NO_NODE = "noNode"
    UNINITIALIZED = "uninitialized"
    DELETION = "deletion"
    NOMINATION = "nomination"
    """Pods are expected on it."""
    ANNOTATION = "annotation"
    """Its own, `karpenter.sh/do-not-disrupt`."""
    NO_POOL = "noPool"
    """No label says of which NodePool it is, or the pool is not there or sells nothing."""
    PAUSE = "pause"
    POD = "pod"
    """A pod's annotation."""
    POD_DISRUPTION_BUDGET = "podDisruptionBudget"
    FAILURE = "failure"
    """Judging it failed: a bug, or a value that nobody thought of."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """A machine that may be disrupted, and what that would cost."""

    machine: StateNode
    node: NodeView
    claim: NodeClaim
    pool: NodePool
    instance_type: InstanceType | None
    zone: str
    capacity_type: str
    price: Price
    """Per hour, whether it can be bought now or not; zero when nobody knows."""
    disruption_cost: float
    reschedule_cost: float

    @property
    def name(self) -> str:
        """Name of the claim."""
        return self.claim.name

    @property
    def provider_id(self) -> str:
        """Id of the instance."""
        return self.machine.provider_id

    @property
    def reschedulable_pods(self) -> tuple[PodView, ...]:
        """The pods that would have to move."""
        return tuple(pod for pod in self.machine.pods if pod.is_reschedulable)

    @property
    def is_empty(self) -> bool:
        """Whether nothing on the machine minds its going."""
        return self.reschedule_cost <= 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Blocked:
    """A machine that may not be disrupted, and the first thing that forbids it."""

    machine: StateNode
    obstacle: Obstacle
    message: str
    subjects: tuple[str, ...] = ()
    """What the obstacle is called: the pod, the budgets, the annotation, the pool."""
    is_beginning: bool = False
    """Whether it is only that the machine is new, as each one is for a while."""

    @property
    def is_published(self) -> bool:
        """Whether users are told by Events."""
        return self.obstacle not in _SILENT and not self.is_beginning

    @property
    def is_expected(self) -> bool:
        """Whether it is that pods are expected on the machine."""
        return self.obstacle is Obstacle.NOMINATION


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """Every machine, judged."""

    candidates: tuple[Candidate, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    notices: tuple[Notice, ...] = ()
    """What there is to say about annotations of pods."""

    @property
    def by_machine(self) -> dict[StateNode, Candidate | Blocked]:
        """Every verdict, by what it is about."""
        return {verdict.machine: verdict for verdict in (*self.candidates, *self.blocked)}


def find_candidates(
    snapshot: Snapshot,
    *,
    now: datetime,
    disruption_class: DisruptionClass = DisruptionClass.GRACEFUL,
    queued: frozenset[str] = frozenset(),
    nomination_window: timedelta = NOMINATION_WINDOW,
    paused: bool = False,
    graceful: Candidates | None = None,
    failed: FailedJudgements | None = None,
) -> Candidates:
    """Judge every machine; `queued` are the provider ids that a command is working on.

    `paused`: the whole cluster is to be left alone. `graceful` is what was found for that class,
    at the same time and otherwise alike: only what pods forbid has to be judged again then.
    Machines that cannot be judged are blocked, and told to `failed`.
    """
    failed = failed or FailedJudgements()
    judge = _Judge(
        snapshot=snapshot,
        now=now,
        disruption_class=disruption_class,
        queued=queued,
        budgets=PodBudgets(snapshot.disruption_budgets.values()),
        expected=_expected(snapshot, now, nomination_window, failed),
        paused=paused,
    )
    candidates: list[Candidate] = []
    blocked: list[Blocked] = []
    known = {} if graceful is None else graceful.by_machine
    for machine in snapshot.state_nodes:
        verdict = known.get(machine)
        if verdict is None or (isinstance(verdict, Blocked) and verdict.obstacle in _OF_PODS):
            try:
                verdict = judge.verdict(machine)
            except Exception as error:
                noted = failed.note(machine_ref(machine), STEP, error)
                verdict = Blocked(machine=machine, obstacle=Obstacle.FAILURE, message=noted.message)
        if isinstance(verdict, Candidate):
            candidates.append(verdict)
        elif verdict.obstacle in _OF_BEGINNING and is_new(machine, now):
            blocked.append(replace(verdict, is_beginning=True))
        else:
            blocked.append(verdict)
    return Candidates(
        candidates=tuple(candidates), blocked=tuple(blocked), notices=tuple(judge.notices)
    )


def _expected(
    snapshot: Snapshot, now: datetime, window: timedelta, failed: FailedJudgements
) -> frozenset[StateNode]:
    pods = (*snapshot.pending_pods.values(), *snapshot.nominated_pods.values())
    try:
        return expected_machines(snapshot, pods, now=now, window=window)
    except Exception:
        found: set[StateNode] = set()
        for pod in pods:
            with failed.judging(pod_ref(pod), STEP):
                found |= expected_machines(snapshot, (pod,), now=now, window=window)
        return frozenset(found)


def is_new(machine: StateNode, now: datetime) -> bool:
    """Tell whether a machine may well be booting, or its first pods on their way."""
    created = None if machine.claim is None else machine.claim.metadata.creation_timestamp
    return created is not None and now - created < BOOT_TIME


def blocked_notices(blocked: Blocked, *, reason: str = "DisruptionBlocked") -> tuple[Notice, ...]:
    """Say on a node and its claim why they are left alone."""
    if not blocked.is_published:
        return ()
    return machine_notices(blocked.machine, reason=reason, message=blocked.message)


def machine_notices(
    machine: StateNode,
    *,
    reason: str,
    message: str,
    dedupe: tuple[str, ...] = (),
    window: timedelta = DEFAULT_DEDUPE,
) -> tuple[Notice, ...]:
    """Say something on a node and on its claim."""
    refs: list[ObjectRef] = []
    if machine.node is not None:
        node = machine.node
        refs.append(ObjectRef(api_version="v1", kind="Node", name=node.name, uid=node.uid))
    if machine.claim is not None:
        refs.append(machine.claim.ref)
    return tuple(
        Notice(
            regarding=ref,
            type="Normal",
            reason=reason,
            message=message,
            dedupe=(ref.uid, *dedupe),
            window=window,
        )
        for ref in refs
    )


@dataclass(slots=True, kw_only=True)
class _Judge:
    """The checks, in order; the first that fails is the reason."""

    snapshot: Snapshot
    now: datetime
    disruption_class: DisruptionClass
    queued: frozenset[str]
    budgets: PodBudgets
    expected: frozenset[StateNode]
    paused: bool
    notices: list[Notice] = field(default_factory=list[Notice])
    _types: dict[str, Mapping[str, InstanceType]] = field(
        default_factory=dict[str, "Mapping[str, InstanceType]"]
    )

    _costs: dict[PodShape, float] = field(default_factory=dict["PodShape", float])

    def verdict(self, machine: StateNode) -> Candidate | Blocked:
        """Judge one machine."""
        if machine.provider_id and machine.provider_id in self.queued:
            return Blocked(
                machine=machine,
                obstacle=Obstacle.COMMAND,
                message="candidate is already being disrupted",
            )
        if machine.claim is None:
            return Blocked(
                machine=machine,
                obstacle=Obstacle.UNMANAGED,
                message="node isn't managed by karpenter",
            )
        if machine.node is None:
            return Blocked(
                machine=machine,
                obstacle=Obstacle.NO_NODE,
                message="Nodeclaim does not have an associated node",
            )
        blocked = self._machine_problem(machine)
        if blocked is not None:
            return blocked
        pool_name = machine.labels.get(NODE_POOL, "")
        pool = self.snapshot.node_pools.get(pool_name)
        types = self._instance_types(pool_name)
        if pool is None or not types:
            return Blocked(
                machine=machine,
                obstacle=Obstacle.NO_POOL,
                message=f"NodePool not found (NodePool={pool_name})",
                subjects=(pool_name,),
            )
        pause = why_paused(pool, everywhere=self.paused)
        if pause:
            return Blocked(
                machine=machine, obstacle=Obstacle.PAUSE, message=pause[:1].upper() + pause[1:]
            )
        blocked = self._pods_problem(machine, machine.claim)
        if blocked is not None:
            return blocked
        return self._candidate(machine, machine.node, machine.claim, pool, types)

    def _machine_problem(self, machine: StateNode) -> Blocked | None:
        obstacle, message, subjects = None, "", ()
        if not machine.initialized:
            obstacle, message = Obstacle.UNINITIALIZED, "Node isn't initialized"
        elif machine.marked_for_deletion:
            obstacle, message = Obstacle.DELETION, "Node is deleting or marked for deletion"
        elif machine.is_nominated(self.now) or machine in self.expected:
            obstacle, message = Obstacle.NOMINATION, "Node is nominated for a pending pod"
        elif machine.annotations.get(DO_NOT_DISRUPT) == "true":
            obstacle, subjects = Obstacle.ANNOTATION, (DO_NOT_DISRUPT,)
            message = f'Disruption is blocked through the "{DO_NOT_DISRUPT}" annotation'
        elif NODE_POOL not in machine.labels:
            obstacle = Obstacle.NO_POOL
            message = f"Node doesn't have required label (label={NODE_POOL})"
        if obstacle is None:
            return None
        return Blocked(machine=machine, obstacle=obstacle, message=message, subjects=subjects)

    def _pods_problem(self, machine: StateNode, claim: NodeClaim) -> Blocked | None:
        """Return what the pods forbid; a grace period of the claim outweighs it, eventually."""
        if (
            self.disruption_class is DisruptionClass.EVENTUAL
            and claim.spec.termination_grace_period is not None
        ):
            return None
        noted = sorted((pod for pod in machine.pods if pod.shape.annotations), key=_pod_order)
        for pod in noted:
            if protecting := self._protecting(pod):
                return Blocked(
                    machine=machine,
                    obstacle=Obstacle.POD,
                    message=f'Pod has "{protecting}" annotation (Pod={pod.key})',
                    subjects=(pod.key, protecting),
                )
        held = [pod for pod in machine.pods if self.budgets.blocking(pod, self.now)]
        if not held:
            return None
        pod = min(held, key=_pod_order)
        budgets = self.budgets.blocking(pod, self.now)
        names = tuple(budget_key(budget) for budget in budgets)
        keys = " ".join(names)
        message = f"Pdb prevents pod evictions (PodDisruptionBudget=[{keys}])"
        if len(budgets) > 1:
            message = f"Eviction does not support multiple PDBs (PodDisruptionBudget(s)=[{keys}])"
        return Blocked(
            machine=machine,
            obstacle=Obstacle.POD_DISRUPTION_BUDGET,
            message=message,
            subjects=(*names, pod.key),
        )

    def _protecting(self, pod: PodView) -> str:
        """Return the annotation that protects a pod now; empty when none does."""
        if not pod.is_active:
            return ""
        verdict = do_not_disrupt(pod, self.now)
        notice = protection_notice(pod, verdict)
        if notice is not None:
            self.notices.append(notice)
        return verdict.annotation if verdict.is_active else ""

    def _instance_types(self, pool: str) -> Mapping[str, InstanceType]:
        if pool not in self._types:
            catalogue = self.snapshot.catalogues.get(pool)
            types = () if catalogue is None else catalogue.instance_types
            self._types[pool] = {item.name: item for item in types}
        return self._types[pool]

    def _eviction_cost(self, shape: PodShape) -> float:
        cost = self._costs.get(shape)
        if cost is None:
            cost = self._costs[shape] = eviction_cost(shape)
        return cost

    def _candidate(
        self,
        machine: StateNode,
        node: NodeView,
        claim: NodeClaim,
        pool: NodePool,
        types: Mapping[str, InstanceType],
    ) -> Candidate:
        labels = machine.labels
        instance_type = types.get(labels.get(INSTANCE_TYPE, ""))
        zone, capacity_type = labels.get(ZONE, ""), labels.get(CAPACITY_TYPE, "")
        costs = [self._eviction_cost(pod.shape) for pod in machine.pods]
        return Candidate(
            machine=machine,
            node=node,
            claim=claim,
            pool=pool,
            instance_type=instance_type,
            zone=zone,
            capacity_type=capacity_type,
            price=current_price(instance_type, zone, capacity_type),
            disruption_cost=disruption_cost(costs, claim, self.now),
            reschedule_cost=reschedule_cost(
                cost for pod, cost in zip(machine.pods, costs, strict=True) if pod.is_reschedulable
            ),
        )


_OF_PODS: Final = frozenset({Obstacle.POD, Obstacle.POD_DISRUPTION_BUDGET})
_OF_BEGINNING: Final = frozenset({Obstacle.NO_NODE, Obstacle.UNINITIALIZED, Obstacle.NOMINATION})
_SILENT: Final = frozenset({Obstacle.COMMAND, Obstacle.UNMANAGED, Obstacle.FAILURE})
"""Of these the owners of the machine need not hear, or hear by another Event."""


def _pod_order(pod: PodView) -> tuple[str, str]:
    return pod.key, pod.uid
