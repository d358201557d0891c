"""What the policy `Balanced` tells users."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.notices import Notice
from karpenter_core.disruption.balanced import BALANCED
from karpenter_core.disruption.candidates import machine_notices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.disruption.balanced import Score
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["approval_notices", "approved_candidate"]

_REASON = "ConsolidationApproved"


def approval_notices(snapshot: Snapshot, judged: Sequence[Score]) -> tuple[Notice, ...]:
    """Say on the balanced pools of a move of several machines why it is worth it."""
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


def approved_candidate(candidate: Candidate, judged: Sequence[Score]) -> tuple[Notice, ...]:
    """Say on the one machine of a move why it is worth it."""
    return tuple(
        notice
        for score in judged
        if score.approved and score.policy == BALANCED
        for notice in machine_notices(candidate.machine, reason=_REASON, message=score.message)
    )
