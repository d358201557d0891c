"""Finds nodes that disruption launched as replacements and no pod uses yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CREATED_FOR

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.state.snapshot import StateNode

__all__ = ["is_replacement", "is_unused_replacement"]

_REASONS: Final = frozenset({"drifted", "underutilized"})


def is_replacement(claim: NodeClaim) -> bool:
    """Tell whether a claim was created as the replacement of another one."""
    return claim.metadata.annotations.get(CREATED_FOR) in _REASONS


def is_unused_replacement(state_node: StateNode) -> bool:
    """Tell whether a node is a replacement without pods that would have to move."""
    claim = state_node.claim
    return (
        claim is not None
        and is_replacement(claim)
        and not any(pod.is_reschedulable for pod in state_node.pods)
    )
