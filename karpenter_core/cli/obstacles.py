"""Phrases obstacles to a node's disruption, for explanations and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.disruption.blocked_nodes import DisruptionObstacle

if TYPE_CHECKING:
    from karpenter_core.disruption.blocked_nodes import BlockedNode

__all__ = ["OBSTACLES", "blocked_text"]

OBSTACLES: Final = {
    DisruptionObstacle.COMMAND: "a disruption command is in progress for it",
    DisruptionObstacle.UNMANAGED: "it is not managed by Karpenter: it has no NodeClaim",
    DisruptionObstacle.NO_NODE: "its NodeClaim has no Node yet",
    DisruptionObstacle.UNINITIALIZED: "it is not initialised (condition Initialized of its NodeClaim)",
    DisruptionObstacle.DELETION: "it is being deleted",
    DisruptionObstacle.NOMINATION: "pods are expected on it",
}
"""Obstacles whose text has no names."""


def blocked_text(blocked: BlockedNode) -> str:
    """Return the sentence that says what blocks the disruption of a node."""
    match blocked.obstacle, blocked.subjects:
        case DisruptionObstacle.ANNOTATION, (annotation, *_):
            return f'it has the annotation "{annotation}"'
        case DisruptionObstacle.POD, (pod, annotation, *_):
            return f'pod "{pod}" has the annotation "{annotation}"'
        case DisruptionObstacle.POD_DISRUPTION_BUDGET, (budget, pod):
            return f'PodDisruptionBudget "{budget}" allows no eviction of pod "{pod}" now'
        case DisruptionObstacle.POD_DISRUPTION_BUDGET, (*budgets, pod):
            names = ", ".join(budgets)
            return f'pod "{pod}" has several PodDisruptionBudgets and cannot be evicted: {names}'
        case DisruptionObstacle.NO_POOL, (pool, *_):
            return f'NodePool "{pool}" does not exist, or has no instance types'
        case DisruptionObstacle.NO_POOL, _:
            return "it has no label that names its NodePool"
        case obstacle, _:
            return OBSTACLES.get(obstacle, blocked.message)
