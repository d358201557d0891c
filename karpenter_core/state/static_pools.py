"""Counts claims of static NodePools against replicas and node limits.

The counts come from the snapshot alone, so that a new leader or a restarted process counts the same.
A claim that a disruption command is about to replace has the condition `DisruptionReason`: until its
replacement exists it holds the place of a replica, and it is no surplus meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.conditions import is_true
from karpenter_core.api.labels import NODE_POOL, NODES
from karpenter_core.api.nodeclaim import DISRUPTION_REASON, INITIALIZED
from karpenter_core.api.quantities import parse_resources
from karpenter_core.state.replacements import is_replacement
from karpenter_core.state.state_nodes import is_instance_terminating, is_kept_by_others

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "StaticNodeAllowance",
    "StaticPoolClaims",
    "free_nodes",
    "is_managed_static",
    "is_static",
    "missing_replicas",
    "node_limit",
    "static_claims_by_pool",
    "static_pool_claims",
    "surplus_replicas",
]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StaticPoolClaims:
    """The NodeClaims of a static pool, by name, in three disjoint groups."""

    active: tuple[NodeClaim, ...] = ()
    pending: tuple[NodeClaim, ...] = ()
    """Tainted by a disruption command that has not created their replacements yet."""
    deleting: tuple[NodeClaim, ...] = ()
    without_instance: int = 0
    """Number of those that are being deleted which only finalizers of other controllers keep."""
    without_replacement: int = 0
    """Number of those that a command replaces and whose replacement is gone: it will be rolled back."""

    @property
    def node_count(self) -> int:
        """Number of claims that count against `limits.nodes`: those that may have an instance."""
        deleting = len(self.deleting) - self.without_instance
        return len(self.active) + len(self.pending) + deleting


NO_CLAIMS: Final = StaticPoolClaims()


def is_static(pool: NodePool) -> bool:
    """Tell whether a pool has a fixed number of nodes (`spec.replicas`)."""
    return pool.spec.replicas is not None


def is_managed_static(pool: NodePool, snapshot: Snapshot) -> bool:
    """Tell whether the nodes of a pool follow its replicas here.

    It is static, is not being deleted, and a loaded provider serves its NodeClass.
    """
    return (
        is_static(pool)
        and not pool.is_deleting
        and snapshot.manages(pool.spec.template.spec.node_class_ref)
    )


def static_pool_claims(snapshot: Snapshot, pool: str) -> StaticPoolClaims:
    """Return the claims of one pool."""
    return static_claims_by_pool(snapshot, frozenset({pool})).get(pool, NO_CLAIMS)


def static_claims_by_pool(
    snapshot: Snapshot, pools: frozenset[str]
) -> Mapping[str, StaticPoolClaims]:
    """Return the claims of some pools, in one pass over all claims; a pool without claims is absent."""
    groups: dict[str, tuple[list[NodeClaim], list[NodeClaim], list[NodeClaim]]] = {}
    for name in sorted(snapshot.node_claims):
        claim = snapshot.node_claims[name]
        pool = claim.metadata.labels.get(NODE_POOL, "")
        if pool in pools:
            active, pending, deleting = groups.setdefault(pool, ([], [], []))
            if _is_leaving(claim, snapshot):
                deleting.append(claim)
            elif is_true(claim.status.conditions, DISRUPTION_REASON):
                pending.append(claim)
            else:
                active.append(claim)
    return {
        pool: StaticPoolClaims(
            active=tuple(active),
            pending=tuple(pending),
            deleting=tuple(deleting),
            without_instance=sum(
                is_kept_by_others(claim, snapshot.nodes_of(claim)) for claim in deleting
            ),
            without_replacement=_count_without_replacement(active, deleting),
        )
        for pool, (active, pending, deleting) in groups.items()
    }


def _is_leaving(claim: NodeClaim, snapshot: Snapshot) -> bool:
    return (
        claim.is_deleting
        or claim.name in snapshot.ledger.deletion_marks
        or is_instance_terminating(claim)
    )


def _count_without_replacement(active: list[NodeClaim], deleting: list[NodeClaim]) -> int:
    """Count the claims that a command has marked, less the replacements that it waits for."""
    marked = sum(not each.is_deleting and not is_instance_terminating(each) for each in deleting)
    awaited = sum(
        is_replacement(each) and not is_true(each.status.conditions, INITIALIZED) for each in active
    )
    return max(marked - awaited, 0)


def node_limit(pool: NodePool) -> int | None:
    """Return `limits.nodes` of a pool; None without one."""
    return parse_resources(pool.spec.limits).get(NODES)


def missing_replicas(pool: NodePool, claims: StaticPoolClaims, *, in_flight: int = 0) -> int:
    """Return how many claims a pool lacks; claims that are being replaced count as present.

    So do claims `in_flight`, whose creation has not been answered. Among them may be the replacement of
    a node that has gone meanwhile, which takes its place then. A node whose replacement is gone stays.
    """
    present = len(claims.active) + len(claims.pending) + claims.without_replacement + in_flight
    return max((pool.spec.replicas or 0) - present, 0)


def surplus_replicas(pool: NodePool, claims: StaticPoolClaims) -> int:
    """Return how many active claims a pool has beyond its replicas; 0 for a dynamic pool."""
    return 0 if pool.spec.replicas is None else max(len(claims.active) - pool.spec.replicas, 0)


def free_nodes(pool: NodePool, claims: StaticPoolClaims, *, in_flight: int = 0) -> int | None:
    """Return how many more claims `limits.nodes` allows, not below 0; None is any number.

    `in_flight` counts claims that were granted and are not in the snapshot yet.
    """
    limit = node_limit(pool)
    return None if limit is None else max(limit - claims.node_count - in_flight, 0)


@final
class StaticNodeAllowance:
    """The claims of static pools that `limits.nodes` allows at one moment; each grant counts at once.

    `in_flight` counts by pool the granted claims that the snapshot does not show yet.
    """

    __slots__ = ("_free", "_in_flight", "_snapshot")

    def __init__(self, snapshot: Snapshot, *, in_flight: Mapping[str, int]) -> None:
        self._snapshot: Final = snapshot
        self._in_flight: Final = in_flight
        self._free: dict[str, int | None] = {}

    def refusal(self, pool: NodePool) -> str:
        """Return why one more claim of a pool is refused; empty if it is allowed.

        Dynamic pools are always allowed: their limits are checked elsewhere.
        """
        if self._free_nodes(pool) == 0:
            return f"node limit of static nodepool reached (limits.nodes={node_limit(pool)})"
        return ""

    def grant(self, pool: NodePool) -> None:
        """Count one more claim of a pool."""
        free = self._free_nodes(pool)
        if free is not None:
            self._free[pool.name] = free - 1

    def _free_nodes(self, pool: NodePool) -> int | None:
        if not is_static(pool):
            return None
        if pool.name not in self._free:
            claims = static_pool_claims(self._snapshot, pool.name)
            in_flight = self._in_flight.get(pool.name, 0)
            self._free[pool.name] = free_nodes(pool, claims, in_flight=in_flight)
        return self._free[pool.name]
