"""Limits launches: cluster size, launches a minute, failing NodePools.

Limits are checked twice. A plan leaves out pools that may launch nothing now, so that their pods go
elsewhere if they can. And right before claims are created each one is granted or refused, counting
those in flight to the API server: provisioning and disruption together, in any number of batches,
never exceed a limit.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, final

from karpenter_core.api.conditions import is_true
from karpenter_core.api.labels import ALIASES, NODE_POOL, PRICE_PER_HOUR, WELL_KNOWN
from karpenter_core.api.nodeclaim import REGISTERED
from karpenter_core.api.prices import DEFAULT_CURRENCY
from karpenter_core.state.node_pool_usage import unpriced_node
from karpenter_core.state.paused_pods import is_trial_of_paused
from karpenter_core.state.pool_schedules import launch_hold
from karpenter_core.state.state_nodes import is_held_by_foreign_finalizer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "LaunchAllowance",
    "LaunchLimit",
    "LaunchLimits",
    "LaunchRefusal",
    "nodes_total",
    "refused_pools",
    "remaining_node_count",
]


class LaunchLimit(StrEnum):
    """The limit that refuses a launch; the value is a label of metrics."""

    MAX_NODES_TOTAL = "max_nodes_total"
    LAUNCHES_PER_MINUTE = "launches_per_minute"
    REGISTRATION_FAILURES = "registration_failures"
    NODE_POOL_LIMIT = "nodepool_limit"
    CAPACITY_QUOTA = "capacity_quota"
    UNKNOWN_PRICE = "unknown_price"
    SCHEDULE = "schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchLimits:
    """The limits that a user has set; 0 = none."""

    max_nodes_total: int = 0
    launches_per_minute: int = 0
    """For each pool."""
    currency: str = DEFAULT_CURRENCY
    """The currency of limits of the price, with the rates to it, as in `SolveOptions`."""
    exchange_rates: Mapping[str, float] = field(default_factory=dict[str, float])
    well_known: frozenset[str] = WELL_KNOWN
    """Labels that nodes are known to get, for the selectors of quotas."""
    aliases: Mapping[str, str] = field(default_factory=lambda: ALIASES)

    @property
    def rates(self) -> Mapping[str, float]:
        """Units of the reporting currency for one unit of each currency that has a rate."""
        return {self.currency: 1.0, **self.exchange_rates}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRefusal:
    """The limit that refuses a launch, and a message."""

    limit: LaunchLimit
    message: str


def nodes_total(snapshot: Snapshot) -> int:
    """Count all Nodes of the cluster, and the claims that have none yet.

    Deleting ones count until they are gone. A claim that only a foreign finalizer holds does not
    count.
    """
    claims = snapshot.node_claims.values()
    return len(snapshot.nodes) + sum(
        not snapshot.nodes_of(claim) and not is_held_by_foreign_finalizer(claim) for claim in claims
    )


def remaining_node_count(snapshot: Snapshot, launch_limits: LaunchLimits | None) -> int | None:
    """Return how many more nodes the cluster may have; None is any number."""
    most = 0 if launch_limits is None else launch_limits.max_nodes_total
    return max(most - nodes_total(snapshot), 0) if most else None


def refused_pools(
    snapshot: Snapshot, *, now: datetime, launch_limits: LaunchLimits | None
) -> dict[str, LaunchRefusal]:
    """Return the pools that may launch nothing now, with the refusals.

    These are pools that a window of their schedules shuts down, or whose schedules cannot be read,
    pools whose nodes do not register, and those that limit the price where that of a node is unknown;
    all pools when the cluster has reached its size limit. A pool that has used its launches of this
    minute is not among them: its pods wait.
    """
    most = 0 if launch_limits is None else launch_limits.max_nodes_total
    if most and nodes_total(snapshot) >= most:
        return dict.fromkeys(snapshot.node_pools, _full_cluster_refusal(most))
    held: dict[str, LaunchRefusal] = {}
    booting: Counter[str] | None = None
    for name, pool in snapshot.node_pools.items():
        if hold := launch_hold(name, snapshot.pool_schedules.get(name)):
            held[name] = LaunchRefusal(limit=LaunchLimit.SCHEDULE, message=hold)
            continue
        if PRICE_PER_HOUR in pool.spec.limits:
            rates = (launch_limits or LaunchLimits()).rates
            if unpriced := unpriced_node(snapshot, name, rates):
                held[name] = _unpriced_refusal(name, unpriced)
                continue
        if pool.uid not in snapshot.ledger.launch_pauses:
            continue
        if booting is None:
            booting = _unregistered(snapshot)
        refusal = _pause_refusal(snapshot, pool, booting[name], now)
        if refusal is not None:
            held[name] = refusal
    return held


@final
class LaunchAllowance:
    """The claims that may be created at one moment; every grant counts at once."""

    __slots__ = ("_booting", "_in_flight", "_limits", "_nodes", "_now", "_recent", "_snapshot")

    def __init__(
        self,
        snapshot: Snapshot,
        launch_limits: LaunchLimits,
        *,
        now: datetime,
        in_flight: Mapping[str, int] | None,
    ) -> None:
        """`in_flight` counts by pool the granted claims that the snapshot does not show yet."""
        self._snapshot = snapshot
        self._limits = launch_limits
        self._now = now
        self._in_flight = Counter(in_flight or {})
        self._nodes = nodes_total(snapshot) if launch_limits.max_nodes_total else 0
        self._booting = _unregistered(snapshot) if snapshot.ledger.launch_pauses else Counter[str]()
        self._recent = Counter(
            claim.pool
            for claim in snapshot.ledger.recent_claims.values()
            if launch_limits.launches_per_minute
        )

    def grant(self, pool: NodePool) -> LaunchRefusal | None:
        """Grant one more claim of a pool, or return the refusal."""
        refusal = self._refusal(pool)
        if refusal is None:
            self._in_flight[pool.name] += 1
        return refusal

    def _refusal(self, pool: NodePool) -> LaunchRefusal | None:
        most, rate = self._limits.max_nodes_total, self._limits.launches_per_minute
        if most and self._nodes + self._in_flight.total() >= most:
            return _full_cluster_refusal(most)
        here = self._in_flight[pool.name]
        booting = self._booting[pool.name] + here
        refusal = _pause_refusal(self._snapshot, pool, booting, self._now)
        if refusal is not None:
            return refusal
        if rate and self._recent[pool.name] + here >= rate:
            return LaunchRefusal(
                limit=LaunchLimit.LAUNCHES_PER_MINUTE,
                message=f'nodepool "{pool.name}" has reached its limit of {rate} launch(es) per minute '
                "(--launches-per-minute)",
            )
        return None


def _full_cluster_refusal(most: int) -> LaunchRefusal:
    return LaunchRefusal(
        limit=LaunchLimit.MAX_NODES_TOTAL,
        message=f"the cluster has the maximum of {most} nodes (--max-nodes-total)",
    )


def _unpriced_refusal(pool: str, node: str) -> LaunchRefusal:
    return LaunchRefusal(
        limit=LaunchLimit.UNKNOWN_PRICE,
        message=f'nodepool "{pool}" has a limit of {PRICE_PER_HOUR}, and the price of node "{node}" is '
        "not known",
    )


def _pause_refusal(
    snapshot: Snapshot, pool: NodePool, booting: int, now: datetime
) -> LaunchRefusal | None:
    """Refuse while a pause lasts, and after it while the trial claim boots."""
    pause = snapshot.ledger.launch_pauses.get(pool.uid)
    if pause is None or not pause.is_on_trial:
        return None
    _, cause = snapshot.ledger.registration_failures.get(pool.uid, ("", ""))
    failed = (
        f'{pause.failures} nodes of nodepool "{pool.name}" in a row did not register in time, or did '
        "not fit their pods" + (f" (the last one: {cause})" if cause else "")
    )
    if now < pause.until:
        why = f"{failed}, one node is launched as a test at {pause.until:%Y-%m-%dT%H:%M:%SZ}"
    elif booting:
        why = f"{failed}, one node is being launched as a test"
    else:
        return None
    return LaunchRefusal(limit=LaunchLimit.REGISTRATION_FAILURES, message=why)


def _unregistered(snapshot: Snapshot) -> Counter[str]:
    """Count the claims of each pool that may still register, without trials for paused pods."""
    return Counter(
        claim.metadata.labels.get(NODE_POOL, "")
        for claim in snapshot.node_claims.values()
        if not claim.is_deleting
        and not is_true(claim.status.conditions, REGISTERED)
        and not is_trial_of_paused(snapshot, claim)
    )
