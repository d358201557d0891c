"""Sets conditions of static NodePools with fewer nodes than replicas."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import TRUE, find_condition
from karpenter_core.api.notices import Notice
from karpenter_core.lifecycle.nodepool.status import with_condition, without_condition
from karpenter_core.state.static_claims import plan_static_claim
from karpenter_core.state.static_pools import (
    free_nodes,
    missing_replicas,
    node_limit,
    static_pool_claims,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from karpenter_core.api.conditions import Condition
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.scheduling.problem import SolveOptions
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "REPLICAS_HELD_BACK",
    "REPLICAS_IGNORED",
    "ReplicasProblem",
    "replicas_notices",
    "replicas_problem",
    "with_replicas_conditions",
]

REPLICAS_IGNORED: Final = "ReplicasIgnored"
"""Condition beside Ready: True for a static pool while the feature gate is off; else absent."""
REPLICAS_HELD_BACK: Final = "ReplicasHeldBack"
"""Condition beside Ready: True while no node is launched for missing replicas; else absent."""

_CONDITIONS: Final = (REPLICAS_IGNORED, REPLICAS_HELD_BACK)
_WINDOW: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasProblem:
    """The condition that a static pool gets, with its reason and message."""

    condition: str
    reason: str
    message: str


_GATE_OFF: Final = ReplicasProblem(
    condition=REPLICAS_IGNORED,
    reason="StaticCapacityDisabled",
    message="spec.replicas is ignored: the feature gate StaticCapacity is off. No node is launched "
    "for the pool, and its NodeClaims are not expired, repaired, replaced for drift or consolidated",
)


def replicas_problem(
    snapshot: Snapshot,
    pool: NodePool,
    *,
    static_capacity: bool,
    aliases: Mapping[str, str],
    well_known: AbstractSet[str],
    solve: SolveOptions,
) -> ReplicasProblem | None:
    """Return why a pool's replicas are ignored or not launched now; None if neither is so.

    Until its instance types have been listed nothing is known. `static_capacity` is the feature gate.
    """
    if pool.spec.replicas is None:
        return None
    if not static_capacity:
        return _GATE_OFF
    claims = static_pool_claims(snapshot, pool.name)
    missing = missing_replicas(pool, claims)
    if not missing or pool.name not in snapshot.catalogues:
        return None
    lack = f"{missing} of {pool.spec.replicas} replica(s) are missing"
    if free_nodes(pool, claims) == 0:
        return ReplicasProblem(
            condition=REPLICAS_HELD_BACK,
            reason="NodeLimitReached",
            message=f"{lack}: limits.nodes is {node_limit(pool)}, and nodes that are being deleted "
            "count until they are gone",
        )
    planned = plan_static_claim(snapshot, pool, aliases=aliases, well_known=well_known, solve=solve)
    if planned is None:
        return ReplicasProblem(
            condition=REPLICAS_HELD_BACK,
            reason="NoInstanceTypeAvailable",
            message=f"{lack}: no instance type that the template allows is available now",
        )
    return None


def with_replicas_conditions(
    pool: NodePool, problem: ReplicasProblem | None, *, now: datetime
) -> NodePool:
    """Return the pool with the condition of the problem, and without the other ones."""
    for name in _CONDITIONS:
        if problem is not None and problem.condition == name:
            pool = with_condition(
                pool,
                type=name,
                status=TRUE,
                reason=problem.reason,
                message=problem.message,
                now=now,
            )
        else:
            pool = without_condition(pool, name)
    return pool


def replicas_notices(pool: NodePool) -> tuple[Notice, ...]:
    """Return the Event about the pool's condition, at most once an hour; none without one."""
    ignored = find_condition(pool.status.conditions, REPLICAS_IGNORED)
    if ignored is not None:
        return (_notice(pool, ignored, reason="ReplicasIgnored"),)
    held_back = find_condition(pool.status.conditions, REPLICAS_HELD_BACK)
    if held_back is not None:
        return (_notice(pool, held_back, reason="ReplicasHeldBack"),)
    return ()


def _notice(pool: NodePool, condition: Condition, *, reason: str) -> Notice:
    return Notice(
        regarding=pool.ref,
        type="Warning",
        reason=reason,
        message=condition.message,
        dedupe=(pool.uid, condition.reason),
        window=_WINDOW,
    )
