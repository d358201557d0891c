"""Builds the Events of moves that the policy `Balanced` approved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.notices import Notice
from karpenter_core.disruption.balanced import BALANCED
from karpenter_core.disruption.blocked_nodes import state_node_notices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.disruption.balanced import BalancedScore
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["approval_notices", "approved_candidate_notices"]

_REASON = "ConsolidationApproved"


def approval_notices(snapshot: Snapshot, judged: Sequence[BalancedScore]) -> tuple[Notice, ...]:
    """Return Events on the `Balanced` pools of a move of several nodes, with its score."""
    return tuple(
        Notice(
            regarding=snapshot.node_pools[score.pool].ref,
            type="Normal",
            reason=_REASON,
            message=score.message,
            dedupe=(snapshot.node_pools[score.pool].uid,),
        )
        for score in judged
        if score.approved and score.policy == BALANCED and score.pool in snapshot.node_pools
    )


def approved_candidate_notices(
    candidate: Candidate, judged: Sequence[BalancedScore]
) -> tuple[Notice, ...]:
    """Return Events on the one node of a move, with its score."""
    return tuple(
        notice
        for score in judged
        if score.approved and score.policy == BALANCED
        for notice in state_node_notices(
            candidate.state_node, reason=_REASON, message=score.message
        )
    )
