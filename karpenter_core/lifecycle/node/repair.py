"""Repair: a Node that says for too long that it is broken is replaced, by force.

What counts as broken, and for how long it is borne, are policies of the provider, and of the users
(`lifecycle.node.health_rules`). A breaker keeps the medicine from being worse than the illness: when
more Nodes of a pool are broken than a share of them, the cause is taken to be elsewhere (a
network, a control plane, an image), and nothing is replaced. In a pool of a few Nodes that share
is one, so a second broken Node would hold both for ever; there the Nodes are replaced one after
the other instead, the next one when the pool has settled. Where several Nodes are all broken,
nothing is replaced, however few they are: a stand-in would break as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from karpenter_core.api.conditions import is_true
from karpenter_core.api.labels import NODE_POOL
from karpenter_core.api.nodeclaim import INITIALIZED
from karpenter_core.api.notices import Notice
from karpenter_core.errors import BadInputError
from karpenter_core.lifecycle.changes import Fact
from karpenter_core.lifecycle.claim_status import metric_labels
from karpenter_core.lifecycle.node.termination import node_ref
from karpenter_core.lifecycle.nodeclaim.disrupted import disrupted_facts
from karpenter_core.lifecycle.nodeclaim.termination import deadline_of, with_deadline
from karpenter_core.state.machines import is_only_held

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
    "Ailment",
    "Census",
    "HealthPolicy",
    "Repair",
    "RepairAction",
    "UnhealthyLimit",
    "ailment_of",
    "repair",
    "take_census",
]

UNHEALTHY: Final = "unhealthy"
BLOCKED_RETRY: Final = timedelta(minutes=5)  # upstream default
TURN_RETRY: Final = timedelta(seconds=30)
SMALL_POOL: Final = 5
"""Of fewer Nodes than this, the default share is never more than one."""
_BLOCKED_WINDOW: Final = timedelta(minutes=15)  # upstream default
_HUNDRED: Final = 100


class HealthPolicy(Protocol):
    """A state of a Node that is borne for a while and then repaired."""

    @property
    def condition_type(self) -> str: ...  # noqa: D102 - as in the provider contract
    @property
    def condition_status(self) -> str: ...  # noqa: D102
    @property
    def toleration(self) -> timedelta: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class UnhealthyLimit:
    """How many Nodes may be broken while repair goes on: a number, or a share in percent."""

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

    def of(self, nodes: int) -> int:
        """Return how many of so many Nodes that is; a share is rounded up."""
        return -(-self.amount * nodes // _HUNDRED) if self.is_percent else self.amount

    @property
    def is_everything(self) -> bool:
        """Whether all Nodes may be broken, however many there are."""
        return self.is_percent and self.amount == _HUNDRED

    def __str__(self) -> str:
        return f"{self.amount}%" if self.is_percent else str(self.amount)


DEFAULT_LIMIT: Final = UnhealthyLimit(20, is_percent=True)  # upstream's breaker


@dataclass(frozen=True, slots=True, kw_only=True)
class Ailment:
    """The condition of a Node that is to be repaired first, and when."""

    condition_type: str
    due: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """How many Nodes there are in a pool, or in the cluster, and which of them are broken."""

    nodes: int
    broken: Mapping[str, Ailment] = field(default_factory=dict[str, Ailment])
    """By name of the Node."""

    @property
    def is_hopeless(self) -> bool:
        """Whether there are several Nodes and none of them is healthy."""
        return 1 < self.nodes <= len(self.broken)


class RepairAction(Enum):
    """What comes of a look at a Node."""

    NONE = "the node is well, or not ours, or on its way out"
    WAIT = "it is broken, and still borne; or others come first"
    BLOCKED = "too many others are broken too"
    REPAIR = "its claim goes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What to do about a Node now: write `claim`, then delete it if the action says so."""

    action: RepairAction
    claim: NodeClaim | None = None
    ailment: Ailment | None = None
    notices: tuple[Notice, ...] = ()
    facts: tuple[Fact, ...] = ()
    requeue_after: timedelta | None = None


def ailment_of(node: NodeView, policies: Iterable[HealthPolicy]) -> Ailment | None:
    """Return what a Node suffers from; of several things the one that is due first."""
    status = {condition.type: condition for condition in node.conditions}
    found: list[Ailment] = []
    for policy in policies:
        condition = status.get(policy.condition_type)
        if condition is None or condition.status != policy.condition_status:
            continue
        since = condition.last_transition_time or node.created or datetime.min.replace(tzinfo=UTC)
        due = since + policy.toleration
        found.append(Ailment(condition_type=condition.type, due=due))
    return min(found, key=lambda each: (each.due, each.condition_type), default=None)


def take_census(snapshot: Snapshot, pool: str, policies: Sequence[HealthPolicy]) -> Census:
    """Count the Nodes of a pool, or all of the cluster when the pool has no name."""
    nodes = [
        node for node in snapshot.nodes.values() if not pool or node.labels.get(NODE_POOL) == pool
    ]
    return Census(
        nodes=len(nodes),
        broken={
            node.name: ailment
            for node in nodes
            if (ailment := ailment_of(node, policies)) is not None
        },
    )


def repair(
    snapshot: Snapshot,
    node: NodeView,
    policies: Sequence[HealthPolicy],
    *,
    now: datetime,
    census: Census | None = None,
    limit: UnhealthyLimit = DEFAULT_LIMIT,
) -> Repair:
    """Say whether a Node's machine is to be replaced.

    Budgets, do-not-disrupt and grace periods do not count: the Node is broken. `census` is that
    of the claim's pool, or of the cluster for a claim without one; None has it taken here.
    """
    claims = snapshot.claims_of(node)
    if len(claims) != 1:
        return Repair(action=RepairAction.NONE)
    (claim,) = claims
    ailment = ailment_of(node, policies)
    if ailment is None or claim.is_deleting:
        return Repair(action=RepairAction.NONE)
    if now < ailment.due:
        return Repair(action=RepairAction.WAIT, ailment=ailment, requeue_after=ailment.due - now)
    pool = claim.metadata.labels.get(NODE_POOL, "")
    census = census or take_census(snapshot, pool, policies)
    allowed = limit.of(census.nodes)
    if census.is_hopeless and allowed and not limit.is_everything:
        return _blocked(snapshot, node, claim, ailment)
    if len(census.broken) > allowed:
        if not allowed or census.nodes >= SMALL_POOL:
            return _blocked(snapshot, node, claim, ailment, limit)
        if not _has_turn(snapshot, node, pool, census):
            return Repair(action=RepairAction.WAIT, ailment=ailment, requeue_after=TURN_RETRY)
    return Repair(
        action=RepairAction.REPAIR,
        claim=_due_now(claim, now),
        ailment=ailment,
        facts=_facts(snapshot, claim, ailment),
    )


def _blocked(
    snapshot: Snapshot,
    node: NodeView,
    claim: NodeClaim,
    ailment: Ailment,
    limit: UnhealthyLimit | None = None,
) -> Repair:
    """Leave a Node as it is, and tell it, its claim and its pool why.

    It is the limit that is exceeded; None: no Node is healthy.
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
    return Repair(
        action=RepairAction.BLOCKED,
        ailment=ailment,
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


def _has_turn(snapshot: Snapshot, node: NodeView, pool: str, census: Census) -> bool:
    """Tell whether a small pool has settled, and this Node is the next of its broken ones."""
    waiting: list[tuple[datetime, str]] = []
    for claim in snapshot.node_claims.values():
        if pool and claim.metadata.labels.get(NODE_POOL) != pool:
            continue
        if is_only_held(claim):
            continue
        if claim.is_deleting:
            return False
        names = [each.name for each in snapshot.nodes_of(claim)]
        ailing = [(census.broken[name].due, name) for name in names if name in census.broken]
        if not ailing and not is_true(claim.status.conditions, INITIALIZED):
            return False  # it may be the stand-in of the one before
        waiting.extend(ailing)
    return bool(waiting) and min(waiting)[1] == node.name


def _due_now(claim: NodeClaim, now: datetime) -> NodeClaim:
    """Return the claim with its deadline passed; one that lies in the future gives way."""
    try:
        deadline = deadline_of(claim)
    except BadInputError:
        deadline = None
    return claim if deadline is not None and deadline < now else with_deadline(claim, now)


def _facts(snapshot: Snapshot, claim: NodeClaim, ailment: Ailment) -> tuple[Fact, ...]:
    labels = {
        "condition": _snake_case(ailment.condition_type),
        **metric_labels(claim, "nodepool", "capacity_type"),
        "image_id": claim.status.image_id,
    }
    return (
        *disrupted_facts(snapshot, claim, UNHEALTHY),
        Fact(metric="nodeclaims_unhealthy_disrupted", labels=labels),
    )


def _snake_case(text: str) -> str:
    """Write `BadNode` as `bad_node`; runs of capitals stay together."""
    parted = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text)
    return re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", parted).lower()
