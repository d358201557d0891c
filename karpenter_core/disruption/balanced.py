"""Scores moves under the policy `Balanced`: savings against disruption.

The share of the pool's cost that a move saves is compared with the share of its disruption cost
that the move takes. Upstream's numbers: `k` = 2, so a move is approved from a ratio of 1/2 on.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum, inf
from typing import TYPE_CHECKING, Final

from karpenter_core.disruption.costs import eviction_cost, reschedule_cost

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.pricing import NodePrices
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = [
    "APPROVAL_THRESHOLD",
    "BALANCED",
    "COST_RATIO",
    "BalancedScore",
    "PoolTotals",
    "balanced_scores",
    "is_approved",
    "pool_totals",
]

BALANCED: Final = "Balanced"
COST_RATIO: Final = 2
APPROVAL_THRESHOLD: Final = 1 / COST_RATIO


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTotals:
    """Cost per hour and disruption cost of all nodes of a pool."""

    cost: float
    disruption: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancedScore:
    """Score of a move for one of its pools; shares are of the pool's totals, 0 to 1."""

    pool: str
    policy: str
    approved: bool
    score: float = 0.0
    savings_share: float = 0.0
    disruption_share: float = 0.0

    @property
    def message(self) -> str:
        """The score as Events show it."""
        return (
            f"score {self.score:.2f} >= threshold {APPROVAL_THRESHOLD:.2f} (k: {COST_RATIO},"
            f" savings {100 * self.savings_share:.1f}%,"
            f" disruption {100 * self.disruption_share:.1f}%)"
        )


def pool_totals(
    snapshot: Snapshot, candidates: Sequence[Candidate], prices: NodePrices
) -> Mapping[str, PoolTotals]:
    """Sum up all nodes of every pool, candidates or not, before any method runs."""
    judged = {candidate.state_node.name: candidate for candidate in candidates}
    costs: dict[str, float] = {}
    disturbances: dict[str, float] = {}
    for state_node in snapshot.state_nodes:
        if not state_node.pool:
            continue
        candidate = judged.get(state_node.name)
        disturbance = (
            _disruption_cost(state_node) if candidate is None else candidate.reschedule_cost
        )
        disturbances[state_node.pool] = disturbances.get(state_node.pool, 0.0) + disturbance
        price = candidate.price if candidate is not None else prices.price_of(state_node)
        costs[state_node.pool] = costs.get(state_node.pool, 0.0) + prices.convert(price)
    return {
        pool: PoolTotals(cost=costs[pool], disruption=disturbance)
        for pool, disturbance in sorted(disturbances.items())
    }


def balanced_scores(
    candidates: Sequence[Candidate],
    savings_per_hour: float,
    totals: Mapping[str, PoolTotals],
    prices: NodePrices,
) -> tuple[BalancedScore, ...]:
    """Score a move for each of its pools; pools with other policies always approve.

    The savings of a move are divided among its pools by what their candidates cost.
    """
    by_pool: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_pool.setdefault(candidate.pool.name, []).append(candidate)
    total = prices.cost_per_hour(candidates)
    scores: list[BalancedScore] = []
    for pool, members in sorted(by_pool.items()):
        policy = members[0].pool.spec.disruption.consolidation_policy
        if policy != BALANCED:
            scores.append(BalancedScore(pool=pool, policy=policy, approved=True))
            continue
        share = prices.cost_per_hour(members) / total if total > 0 else 1.0
        scores.append(_score(pool, members, savings_per_hour * share, totals.get(pool)))
    return tuple(scores)


def is_approved(pool_scores: Sequence[BalancedScore]) -> bool:
    """Tell whether every pool approves; a move without candidates is not approved."""
    return bool(pool_scores) and all(score.approved for score in pool_scores)


def _score(
    pool: str, members: Sequence[Candidate], savings: float, totals: PoolTotals | None
) -> BalancedScore:
    if totals is None or totals.cost <= 0 or totals.disruption <= 0:
        return BalancedScore(pool=pool, policy=BALANCED, approved=False)
    savings_share = savings / totals.cost
    disruption_share = fsum(member.reschedule_cost for member in members) / totals.disruption
    score = 0.0
    if savings > 0:
        score = inf if disruption_share == 0 else savings_share / disruption_share
    return BalancedScore(
        pool=pool,
        policy=BALANCED,
        # Shares are quotients: a ratio of exactly one half may come out a hair below.
        approved=score >= APPROVAL_THRESHOLD - 1e-9,
        score=score,
        savings_share=savings_share,
        disruption_share=disruption_share,
    )


def _disruption_cost(state_node: StateNode) -> float:
    return reschedule_cost(
        eviction_cost(pod.shape) for pod in state_node.pods if pod.shape.owner_kind != "DaemonSet"
    )
