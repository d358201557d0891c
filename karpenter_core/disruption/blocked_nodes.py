"""Names obstacles to disrupting nodes; reports blocked nodes in Events."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from karpenter_core.api.notices import DEFAULT_DEDUPE, Notice, ObjectRef, node_ref

if TYPE_CHECKING:
    from datetime import timedelta

    from karpenter_core.state.snapshot import StateNode

__all__ = ["BlockedNode", "DisruptionObstacle", "blocked_notices", "state_node_notices"]


class DisruptionObstacle(StrEnum):
    """The closed list of obstacles to disrupting a node; the first that holds is reported."""

    COMMAND = "command"
    """An earlier command is disrupting it."""
    UNMANAGED = "unmanaged"
    """A Node without a NodeClaim."""
    NO_NODE = "noNode"
    UNINITIALIZED = "uninitialized"
    DELETION = "deletion"
    NOMINATION = "nomination"
    """Pods are expected on it."""
    ANNOTATION = "annotation"
    """The node's own annotation `karpenter.sh/do-not-disrupt`."""
    NO_POOL = "noPool"
    """It has no NodePool label, or the NodePool is missing or has no instance types."""
    BOOKING = "booking"
    """A ProvisioningRequest has booked capacity on it, or waits for it."""
    PAUSE = "pause"
    POD = "pod"
    """The annotation of a pod."""
    POD_DISRUPTION_BUDGET = "podDisruptionBudget"
    FAILURE = "failure"
    """Evaluating it failed: a bug, or an unexpected value."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockedNode:
    """A node that may not be disrupted, with the first obstacle."""

    state_node: StateNode
    obstacle: DisruptionObstacle
    message: str
    subjects: tuple[str, ...] = ()
    """Names of the obstacle: the pod, the budgets, the annotation, the pool."""
    is_starting: bool = False
    """Whether the node is only blocked because it is new, or so is this process."""

    @property
    def is_published(self) -> bool:
        """Whether Events report it to users."""
        return self.obstacle not in _UNPUBLISHED_OBSTACLES and not self.is_starting

    @property
    def is_expected(self) -> bool:
        """Whether it is blocked because pods are expected on the node."""
        return self.obstacle is DisruptionObstacle.NOMINATION


def blocked_notices(
    blocked: BlockedNode, *, reason: str = "DisruptionBlocked"
) -> tuple[Notice, ...]:
    """Return Events on a node and its claim that say why they are not disrupted."""
    if not blocked.is_published:
        return ()
    return state_node_notices(blocked.state_node, reason=reason, message=blocked.message)


def state_node_notices(
    state_node: StateNode,
    *,
    reason: str,
    message: str,
    dedupe: tuple[str, ...] = (),
    window: timedelta = DEFAULT_DEDUPE,
) -> tuple[Notice, ...]:
    """Return the same Event on a node and on its claim."""
    refs: list[ObjectRef] = []
    if state_node.node is not None:
        node = state_node.node
        refs.append(node_ref(node))
    if state_node.claim is not None:
        refs.append(state_node.claim.ref)
    return tuple(
        Notice(
            regarding=ref,
            type="Normal",
            reason=reason,
            message=message,
            dedupe=(ref.uid, *dedupe),
            window=window,
        )
        for ref in refs
    )


_UNPUBLISHED_OBSTACLES: Final = frozenset(
    {DisruptionObstacle.COMMAND, DisruptionObstacle.UNMANAGED, DisruptionObstacle.FAILURE}
)
"""Obstacles without an Event of this kind: users need none, or get another one."""
