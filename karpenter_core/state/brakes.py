"""What holds launches back: the size of the cluster, launches a minute, pools that bring nothing.

Two moments ask. A plan leaves out pools that nothing may be launched for now, so that their pods go
elsewhere if they can. And right before claims are created each one is granted or refused, counting
those that are on their way to the API server: whoever orders, for pods or for disruption, and how
many at once, no limit is ever exceeded.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, final

from karpenter_core.api.conditions import is_true
from karpenter_core.api.labels import NODE_POOL
from karpenter_core.api.nodeclaim import REGISTERED
from karpenter_core.state.machines import is_only_held

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.state.launch_pauses import LaunchPause
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["Allowance", "Brake", "Brakes", "Refusal", "held_pools", "nodes_to_spare", "nodes_total"]


class Brake(StrEnum):
    """What refuses a launch; the value is a label of metrics."""

    MAX_NODES_TOTAL = "max_nodes_total"
    LAUNCHES_PER_MINUTE = "launches_per_minute"
    REGISTRATION_FAILURES = "registration_failures"


@dataclass(frozen=True, slots=True, kw_only=True)
class Brakes:
    """The brakes that a user has set; 0 = none."""

    max_nodes_total: int = 0
    launches_per_minute: int = 0
    """For each pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Which brake holds a launch back, and in words."""

    brake: Brake
    why: str


def nodes_total(snapshot: Snapshot) -> int:
    """Count the Nodes of the cluster, whoever made them, and the claims that have none yet.

    Those on their way out count until they are gone; then the claim may be there still, if somebody
    else's finalizer holds it.
    """
    claims = snapshot.node_claims.values()
    return len(snapshot.nodes) + sum(
        not snapshot.nodes_of(claim) and not is_only_held(claim) for claim in claims
    )


def nodes_to_spare(snapshot: Snapshot, brakes: Brakes | None) -> int | None:
    """Return how many nodes more the cluster may have; None is any number."""
    most = 0 if brakes is None else brakes.max_nodes_total
    return max(most - nodes_total(snapshot), 0) if most else None


def held_pools(
    snapshot: Snapshot, *, now: datetime, brakes: Brakes | None = None
) -> dict[str, Refusal]:
    """Return the pools that nothing can be launched for now, and why.

    Those whose machines do not register; all of them when the cluster is as large as it may be. A
    pool that has had its launches of this minute is not among them: its pods wait for their turn.
    """
    most = 0 if brakes is None else brakes.max_nodes_total
    if most and nodes_total(snapshot) >= most:
        return dict.fromkeys(snapshot.node_pools, _cluster_is_full(most))
    held: dict[str, Refusal] = {}
    booting: Counter[str] | None = None
    for name, pool in snapshot.node_pools.items():
        pause = snapshot.ledger.launch_pauses.get(pool.uid)
        if pause is None or not pause.is_on_trial:
            continue
        if booting is None:
            booting = _unregistered(snapshot)
        refusal = _on_trial(name, pause, booting[name], now)
        if refusal is not None:
            held[name] = refusal
    return held


@final
class Allowance:
    """What may be created at one moment; every grant counts at once."""

    __slots__ = ("_booting", "_brakes", "_in_flight", "_nodes", "_now", "_recent", "_snapshot")

    def __init__(
        self,
        snapshot: Snapshot,
        brakes: Brakes,
        *,
        now: datetime,
        in_flight: Mapping[str, int] | None = None,
    ) -> None:
        """`in_flight` are claims by pool that were granted and that the snapshot does not show."""
        self._snapshot = snapshot
        self._brakes = brakes
        self._now = now
        self._in_flight = Counter(in_flight or {})
        self._nodes = nodes_total(snapshot) if brakes.max_nodes_total else 0
        self._booting = _unregistered(snapshot) if snapshot.ledger.launch_pauses else Counter[str]()
        self._recent = Counter(
            claim.pool
            for claim in snapshot.ledger.recent_claims.values()
            if brakes.launches_per_minute
        )

    def take(self, pool: NodePool) -> Refusal | None:
        """Grant one more claim of a pool, or say what refuses it."""
        refusal = self._refusal(pool)
        if refusal is None:
            self._in_flight[pool.name] += 1
        return refusal

    def _refusal(self, pool: NodePool) -> Refusal | None:
        most, rate = self._brakes.max_nodes_total, self._brakes.launches_per_minute
        if most and self._nodes + self._in_flight.total() >= most:
            return _cluster_is_full(most)
        here = self._in_flight[pool.name]
        pause = self._snapshot.ledger.launch_pauses.get(pool.uid)
        if pause is not None and pause.is_on_trial:
            refusal = _on_trial(pool.name, pause, self._booting[pool.name] + here, self._now)
            if refusal is not None:
                return refusal
        if rate and self._recent[pool.name] + here >= rate:
            return Refusal(
                brake=Brake.LAUNCHES_PER_MINUTE,
                why=f'nodepool "{pool.name}" waits for its turn: {rate} launch(es) a minute '
                "(--launches-per-minute)",
            )
        return None


def _cluster_is_full(most: int) -> Refusal:
    return Refusal(
        brake=Brake.MAX_NODES_TOTAL,
        why=f"the cluster may have {most} nodes (--max-nodes-total), and has them",
    )


def _on_trial(pool: str, pause: LaunchPause, booting: int, now: datetime) -> Refusal | None:
    """Refuse while a pause lasts, and after it while the one machine that is tried boots."""
    failed = f'{pause.failures} nodes of nodepool "{pool}" in a row did not register'
    if now < pause.until:
        why = f"{failed}, one is tried at {pause.until:%Y-%m-%dT%H:%M:%SZ}"
    elif booting:
        why = f"{failed}, one is being tried"
    else:
        return None
    return Refusal(brake=Brake.REGISTRATION_FAILURES, why=why)


def _unregistered(snapshot: Snapshot) -> Counter[str]:
    """Count the claims of each pool that may still register."""
    return Counter(
        claim.metadata.labels.get(NODE_POOL, "")
        for claim in snapshot.node_claims.values()
        if not claim.is_deleting and not is_true(claim.status.conditions, REGISTERED)
    )
