"""The policy `Balanced`: a move must save enough of its pool for what it disturbs of it.

The share of the pool's cost that a move saves is set against the share of its pods that have to
move. Upstream's numbers: `k` = 2, so a move is approved from a ratio of 1/2 on.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from karpenter_core.disruption.costs import eviction_cost, reschedule_cost

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.pricing import Prices
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = [
    "BALANCED",
    "THRESHOLD",
    "K",
    "PoolTotals",
    "Score",
    "is_approved",
    "pool_totals",
    "scores",
]

BALANCED: Final = "Balanced"
K: Final = 2
THRESHOLD: Final = 1 / K


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTotals:
    """What a pool costs per hour, and what it would cost to disturb all of it."""

    cost: float
    disruption: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How one pool of a move is judged; shares are of the pool's totals, between 0 and 1."""

    pool: str
    policy: str
    approved: bool
    score: float = 0.0
    savings_share: float = 0.0
    disruption_share: float = 0.0

    @property
    def message(self) -> str:
        """Say it the way Events do."""
        return (
            f"score {self.score:.2f} >= threshold {THRESHOLD:.2f} (k: {K},"
            f" savings {100 * self.savings_share:.1f}%,"
            f" disruption {100 * self.disruption_share:.1f}%)"
        )


def pool_totals(
    snapshot: Snapshot, candidates: Sequence[Candidate], prices: Prices
) -> Mapping[str, PoolTotals]:
    """Add every pool up: all its machines, be they candidates or not, before any method looks."""
    judged = {candidate.machine.name: candidate for candidate in candidates}
    costs: dict[str, float] = {}
    disturbances: dict[str, float] = {}
    for machine in snapshot.state_nodes:
        if not machine.pool:
            continue
        candidate = judged.get(machine.name)
        disturbance = _disturbance(machine) if candidate is None else candidate.reschedule_cost
        disturbances[machine.pool] = disturbances.get(machine.pool, 0.0) + disturbance
        price = candidate.price if candidate is not None else prices.known(machine)
        costs[machine.pool] = costs.get(machine.pool, 0.0) + prices.of_price(price)
    return {
        pool: PoolTotals(cost=costs.get(pool, 0.0), disruption=disturbance)
        for pool, disturbance in sorted(disturbances.items())
    }


def scores(
    candidates: Sequence[Candidate],
    savings_per_hour: float,
    totals: Mapping[str, PoolTotals],
    prices: Prices,
) -> tuple[Score, ...]:
    """Judge a move for every pool it takes from; pools with other policies always approve.

    What a move saves is credited to its pools by what their machines cost.
    """
    by_pool: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_pool.setdefault(candidate.pool.name, []).append(candidate)
    total = prices.of(candidates)
    found: list[Score] = []
    for pool, members in sorted(by_pool.items()):
        policy = members[0].pool.spec.disruption.consolidation_policy
        if policy != BALANCED:
            found.append(Score(pool=pool, policy=policy, approved=True))
            continue
        share = prices.of(members) / total if total > 0 and len(by_pool) > 1 else 1.0
        found.append(_score(pool, members, savings_per_hour * share, totals.get(pool)))
    return tuple(found)


def is_approved(found: Sequence[Score]) -> bool:
    """Tell whether every pool agrees; a move of nothing is not approved."""
    return bool(found) and all(score.approved for score in found)


def _score(
    pool: str, members: Sequence[Candidate], savings: float, totals: PoolTotals | None
) -> Score:
    if totals is None or totals.cost <= 0 or totals.disruption <= 0:
        return Score(pool=pool, policy=BALANCED, approved=False)
    savings_share = savings / totals.cost
    disruption_share = sum(member.reschedule_cost for member in members) / totals.disruption
    score = 0.0
    if savings > 0:
        score = inf if disruption_share == 0 else savings_share / disruption_share
    return Score(
        pool=pool,
        policy=BALANCED,
        # Shares are quotients: a ratio of exactly one half may come out a hair below.
        approved=score >= THRESHOLD - 1e-9,
        score=score,
        savings_share=savings_share,
        disruption_share=disruption_share,
    )


def _disturbance(machine: StateNode) -> float:
    return reschedule_cost(
        eviction_cost(pod.shape) for pod in machine.pods if pod.shape.owner_kind != "DaemonSet"
    )
