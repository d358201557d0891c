"""Decides whether an unhealthy Node is replaced by force.

The policies of the provider, and of the users (`lifecycle.node.health_rules`), say which conditions
are unhealthy and how long they are tolerated. A circuit breaker limits the damage: when more than a
share of a pool's Nodes is unhealthy, the cause is probably elsewhere (a network, a control plane, an
image), and nothing is replaced. In a pool of a few Nodes that share is one Node, so two unhealthy
Nodes would block each other for ever; there they are replaced one after the other, the next one when
the pool has no claim that is starting or ending. If all of several Nodes are unhealthy, nothing is
replaced: a replacement would become unhealthy as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from karpenter_core.api.conditions import is_true
from karpenter_core.api.labels import NODE_POOL
from karpenter_core.api.nodeclaim import INITIALIZED
from karpenter_core.api.notices import Notice, node_ref
from karpenter_core.errors import BadInputError
from karpenter_core.lifecycle.changes import LifecycleMetric, MetricUpdate
from karpenter_core.lifecycle.claim_status import metric_labels
from karpenter_core.lifecycle.nodeclaim.disruption_metrics import disrupted_metrics
from karpenter_core.lifecycle.nodeclaim.termination import with_deadline
from karpenter_core.state.state_nodes import is_kept_by_others
from karpenter_core.state.termination_deadline import readable_deadline

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.notices import ObjectRef
    from karpenter_core.api.records import NodeView
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "BLOCKED_RETRY",
    "DEFAULT_LIMIT",
    "SMALL_POOL",
    "UNHEALTHY",
    "HealthPolicy",
    "NodeHealthSummary",
    "RepairAction",
    "RepairAdvice",
    "UnhealthyCondition",
    "UnhealthyLimit",
    "find_unhealthy_condition",
    "repair",
    "summarise_node_health",
]

UNHEALTHY: Final = "unhealthy"
BLOCKED_RETRY: Final = timedelta(minutes=5)  # upstream default
TURN_RETRY: Final = timedelta(seconds=30)
SMALL_POOL: Final = 5
"""In pools with fewer Nodes than this, the default share is at most one Node."""
_BLOCKED_WINDOW: Final = timedelta(minutes=15)  # upstream default
_HUNDRED: Final = 100


class HealthPolicy(Protocol):
    """A condition status of a Node that is tolerated for a while and then repaired."""

    @property
    def condition_type(self) -> str: ...  # noqa: D102 - as in the provider contract
    @property
    def condition_status(self) -> str: ...  # noqa: D102
    @property
    def toleration(self) -> timedelta: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class UnhealthyLimit:
    """The limit of unhealthy Nodes up to which repair goes on: a number, or a share in percent."""

    amount: int
    is_percent: bool

    @classmethod
    def parse(cls, text: str) -> UnhealthyLimit:
        """Read `20%` or `3`.

        Raises:
            BadInputError: it is neither a number nor a share of at most 100 %.
        """
        match = re.fullmatch(r"([0-9]{1,9})(%?)", text.strip(), re.ASCII)
        if match is None or (match[2] and int(match[1]) > _HUNDRED):
            raise BadInputError(f'"{text}" is neither a number of nodes nor a share such as 20%')
        return cls(int(match[1]), bool(match[2]))

    def allowed_of(self, nodes: int) -> int:
        """Return the limit for a pool of `nodes` Nodes; a share is rounded up."""
        return -(-self.amount * nodes // _HUNDRED) if self.is_percent else self.amount

    @property
    def is_everything(self) -> bool:
        """Whether repair goes on even if all Nodes are unhealthy."""
        return self.is_percent and self.amount == _HUNDRED

    def __str__(self) -> str:
        return f"{self.amount}%" if self.is_percent else str(self.amount)


DEFAULT_LIMIT: Final = UnhealthyLimit(20, is_percent=True)  # upstream's breaker


@dataclass(frozen=True, slots=True, kw_only=True)
class UnhealthyCondition:
    """The unhealthy condition of a Node that is due for repair first, and when it is due."""

    condition_type: str
    repair_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHealthSummary:
    """The number of Nodes in a pool, or in the cluster, and the unhealthy ones among them."""

    nodes: int
    unhealthy: Mapping[str, UnhealthyCondition]
    """By name of the Node."""

    @property
    def is_all_unhealthy(self) -> bool:
        """Whether there are several Nodes and none of them is healthy."""
        return 1 < self.nodes <= len(self.unhealthy)


class RepairAction(Enum):
    """The action for a Node."""

    NONE = "nothing: the node is healthy, unmanaged or already deleted"
    WAIT = "wait: the condition is still tolerated, or other nodes come first"
    BLOCKED = "do nothing: too many other nodes are unhealthy"
    REPAIR = "delete its claim"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairAdvice:
    """The action for a Node now: write `claim`, then delete it if the action is REPAIR."""

    action: RepairAction
    claim: NodeClaim | None = None
    unhealthy_condition: UnhealthyCondition | None = None
    notices: tuple[Notice, ...] = ()
    metric_updates: tuple[MetricUpdate, ...] = ()
    requeue_after: timedelta | None = None


def find_unhealthy_condition(
    node: NodeView, policies: Iterable[HealthPolicy]
) -> UnhealthyCondition | None:
    """Return the unhealthy condition of a Node; of several, the one that is due first."""
    status = {condition.type: condition for condition in node.conditions}
    unhealthy: list[UnhealthyCondition] = []
    for policy in policies:
        condition = status.get(policy.condition_type)
        if condition is None or condition.status != policy.condition_status:
            continue
        since = condition.last_transition_time or node.created or datetime.min.replace(tzinfo=UTC)
        due = since + policy.toleration
        unhealthy.append(UnhealthyCondition(condition_type=condition.type, repair_at=due))
    return min(unhealthy, key=lambda each: (each.repair_at, each.condition_type), default=None)


def summarise_node_health(
    snapshot: Snapshot, pool: str, policies: Sequence[HealthPolicy]
) -> NodeHealthSummary:
    """Count the Nodes of a pool, or of the whole cluster if `pool` is empty."""
    nodes = [
        node for node in snapshot.nodes.values() if not pool or node.labels.get(NODE_POOL) == pool
    ]
    return NodeHealthSummary(
        nodes=len(nodes),
        unhealthy={
            node.name: unhealthy_condition
            for node in nodes
            if (unhealthy_condition := find_unhealthy_condition(node, policies)) is not None
        },
    )


def repair(
    snapshot: Snapshot,
    node: NodeView,
    policies: Sequence[HealthPolicy],
    *,
    now: datetime,
    health_summary: NodeHealthSummary | None = None,
    limit: UnhealthyLimit = DEFAULT_LIMIT,
) -> RepairAdvice:
    """Decide whether a Node's claim is deleted, so that the Node is replaced.

    Budgets, do-not-disrupt and grace periods do not count: the Node is unhealthy. `health_summary` is
    that of the claim's pool, or of the cluster for a claim without a pool; None computes it here.
    """
    claims = snapshot.claims_of(node)
    if len(claims) != 1:
        return RepairAdvice(action=RepairAction.NONE)
    (claim,) = claims
    unhealthy_condition = find_unhealthy_condition(node, policies)
    if unhealthy_condition is None or claim.is_deleting:
        return RepairAdvice(action=RepairAction.NONE)
    if now < unhealthy_condition.repair_at:
        return RepairAdvice(
            action=RepairAction.WAIT,
            unhealthy_condition=unhealthy_condition,
            requeue_after=unhealthy_condition.repair_at - now,
        )
    pool = claim.metadata.labels.get(NODE_POOL, "")
    health_summary = health_summary or summarise_node_health(snapshot, pool, policies)
    allowed = limit.allowed_of(health_summary.nodes)
    if health_summary.is_all_unhealthy and allowed and not limit.is_everything:
        return _blocked(snapshot, node, claim, unhealthy_condition)
    if len(health_summary.unhealthy) > allowed:
        if not allowed or health_summary.nodes >= SMALL_POOL:
            return _blocked(snapshot, node, claim, unhealthy_condition, limit)
        if not _is_next_in_small_pool(snapshot, node, pool, health_summary):
            return RepairAdvice(
                action=RepairAction.WAIT,
                unhealthy_condition=unhealthy_condition,
                requeue_after=TURN_RETRY,
            )
    return RepairAdvice(
        action=RepairAction.REPAIR,
        claim=_due_now(claim, now),
        unhealthy_condition=unhealthy_condition,
        metric_updates=_repair_metrics(snapshot, claim, unhealthy_condition),
    )


def _blocked(
    snapshot: Snapshot,
    node: NodeView,
    claim: NodeClaim,
    unhealthy_condition: UnhealthyCondition,
    limit: UnhealthyLimit | None = None,
) -> RepairAdvice:
    """Leave a Node as it is, with Events on it, its claim and its pool.

    `limit` is the limit that is exceeded; None if no Node is healthy.
    """
    name = claim.metadata.labels.get(NODE_POOL, "")
    refs = [node_ref(node), claim.ref]
    message = f"no node of the {'nodepool' if name else 'cluster'} is healthy"
    if limit is not None and not name:
        # The spelling is upstream's: Events are read by programs too.
        message = f"more then {limit} nodes are unhealthy in the cluster"
    elif limit is not None:
        message = f"more than {limit} nodes are unhealthy in the nodepool"
    if name:
        pool = snapshot.node_pools.get(name)
        refs.extend([] if pool is None else [pool.ref])
    return RepairAdvice(
        action=RepairAction.BLOCKED,
        unhealthy_condition=unhealthy_condition,
        notices=tuple(_notice(ref, message) for ref in refs),
        requeue_after=BLOCKED_RETRY,
    )


def _notice(ref: ObjectRef, message: str) -> Notice:
    return Notice(
        regarding=ref,
        type="Warning",
        reason="NodeRepairBlocked",
        message=message,
        dedupe=(ref.uid,),
        window=_BLOCKED_WINDOW,
    )


def _is_next_in_small_pool(
    snapshot: Snapshot, node: NodeView, pool: str, health_summary: NodeHealthSummary
) -> bool:
    """Tell whether no claim of the pool starts or ends, and this Node is the next to repair."""
    waiting: list[tuple[datetime, str]] = []
    for claim in snapshot.node_claims.values():
        if pool and claim.metadata.labels.get(NODE_POOL) != pool:
            continue
        nodes = snapshot.nodes_of(claim)
        if is_kept_by_others(claim, nodes):
            continue
        if claim.is_deleting:
            return False
        names = [each.name for each in nodes]
        due = [
            (health_summary.unhealthy[name].repair_at, name)
            for name in names
            if name in health_summary.unhealthy
        ]
        if not due and not is_true(claim.status.conditions, INITIALIZED):
            return False  # it may be the replacement of the Node before
        waiting.extend(due)
    return bool(waiting) and min(waiting)[1] == node.name


def _due_now(claim: NodeClaim, now: datetime) -> NodeClaim:
    """Return the claim with a deadline that has passed; a later one is replaced."""
    deadline = readable_deadline(claim)
    return claim if deadline is not None and deadline < now else with_deadline(claim, now)


def _repair_metrics(
    snapshot: Snapshot, claim: NodeClaim, unhealthy_condition: UnhealthyCondition
) -> tuple[MetricUpdate, ...]:
    labels = {
        "condition": _snake_case(unhealthy_condition.condition_type),
        **metric_labels(claim, "nodepool", "capacity_type"),
        "image_id": claim.status.image_id,
    }
    return (
        *disrupted_metrics(snapshot, claim, UNHEALTHY),
        MetricUpdate(metric=LifecycleMetric.NODECLAIMS_UNHEALTHY_DISRUPTED, labels=labels),
    )


def _snake_case(text: str) -> str:
    """Write `BadNode` as `bad_node`; runs of capitals stay together."""
    parted = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text)
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", parted).lower()
