"""Writes disruptions as the JSON that `docs/reference/plan.md` specifies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.cli.document import offering
from karpenter_core.cli.obstacles import blocked_text

if TYPE_CHECKING:
    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.cli.rebalance.simulation import NodeCosts, Rebalance, RebalanceStep

__all__ = ["rebalance_document"]

_DIGITS: Final = 9
_NAMED: Final = 5


def rebalance_document(rebalance: Rebalance) -> JsonObject:
    """Return the steps, the costs before and after, and the nodes that are blocked."""
    before, after = rebalance.before, rebalance.after
    return {
        "before": _costs(before),
        "after": _costs(after),
        "launchedForPendingPods": _costs(rebalance.launched),
        "launchedForEvictedPods": _costs(rebalance.relaunched),
        "savingsPerHour": round(rebalance.savings_per_hour, _DIGITS),
        "nodesRemoved": sum(len(step.command.candidates) for step in rebalance.steps),
        "nodesAdded": sum(len(step.command.replacements) for step in rebalance.steps),
        "podsMoved": sum(_pods(step) for step in rebalance.steps),
        "complete": rebalance.is_complete,
        "steps": [_step(step) for step in rebalance.steps],
        "blocked": _blocked(rebalance),
        "budgetsUsedUp": list(rebalance.exhausted_pools),
    }


def _costs(costs: NodeCosts) -> JsonObject:
    return {
        "nodes": costs.nodes,
        "pricePerHour": round(costs.price_per_hour, _DIGITS),
        "nodesWithoutPrice": costs.unknown_prices,
    }


def _pods(step: RebalanceStep) -> int:
    return sum(len(candidate.reschedulable_pods) for candidate in step.command.candidates)


def _step(step: RebalanceStep) -> JsonObject:
    command = step.command
    return {
        "afterSeconds": round(step.after.total_seconds()),
        "method": command.method,
        "reason": str(command.reason),
        "nodes": [
            {"node": each.node.name, "nodeClaim": each.claim.name, "nodePool": each.pool.name}
            for each in command.candidates
        ],
        "nodeClaims": [
            {
                "nodePool": planned.pool,
                "pods": sorted(pod.key for pod in planned.pods if not pod.is_virtual),
                "cheapest": offering(planned.cheapest),
            }
            for planned in command.replacements
        ],
        "existingNodes": {
            name: sorted(pod.key for pod in pods) for name, pods in sorted(command.moves.items())
        },
        "podsMoved": _pods(step),
        "savingsPerHour": round(command.evidence.savings_per_hour, _DIGITS),
        "pricePerHour": round(step.price_per_hour, _DIGITS),
    }


def _blocked(rebalance: Rebalance) -> list[JsonObject]:
    """Group the blocked nodes by what blocks them, the largest group first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for each in rebalance.blocked:
        key = (each.obstacle.value, blocked_text(each))
        groups.setdefault(key, []).append(each.state_node.name)
    return [
        {
            "obstacle": obstacle,
            "message": message,
            "count": len(names),
            "nodes": sorted(names)[:_NAMED],
        }
        for (obstacle, message), names in sorted(
            groups.items(), key=lambda item: (-len(item[1]), item[0])
        )
    ]
