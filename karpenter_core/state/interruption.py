"""Tells whether the cloud is about to take a claim's instance away."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import TRUE, find_condition
from karpenter_core.api.interruptions import INTERRUPTING
from karpenter_core.api.nodeclaim import DISRUPTION_REASON
from karpenter_core.state.termination_deadline import readable_deadline

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim

__all__ = ["is_interrupted_soon"]

INTERRUPTION_LEAD_TIME: Final = timedelta(minutes=10)
"""A replacement launched that long before the interruption has time to boot, and idles little."""


def is_interrupted_soon(claim: NodeClaim | None, now: datetime) -> bool:
    """Tell whether a claim is deleted for an interruption whose deadline is near.

    Its pods need another place in any case, even those that may not be evicted: the instance ends
    whatever budgets and annotations say.
    """
    if claim is None or not claim.is_deleting:
        return False
    reason = find_condition(claim.status.conditions, DISRUPTION_REASON)
    if reason is None or reason.status != TRUE or reason.reason not in INTERRUPTING:
        return False
    deadline = readable_deadline(claim)
    return deadline is not None and deadline - now <= INTERRUPTION_LEAD_TIME
