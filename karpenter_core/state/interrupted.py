"""Machines that their cloud takes away soon."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import TRUE, find
from karpenter_core.api.interruptions import INTERRUPTING
from karpenter_core.api.labels import TERMINATION_TIMESTAMP
from karpenter_core.api.nodeclaim import DISRUPTION_REASON

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import NodeClaim

__all__ = ["is_taken_soon"]

SOON: Final = timedelta(minutes=10)
"""A stand-in that is ordered so long before it is needed has time to boot, and idles little."""


def is_taken_soon(claim: NodeClaim | None, now: datetime) -> bool:
    """Tell whether a claim goes because its cloud takes the machine, and will be gone soon.

    Its pods leave in any case, those too that nobody may evict: budgets and annotations end with the
    machine.
    """
    if claim is None or not claim.is_deleting:
        return False
    reason = find(claim.status.conditions, DISRUPTION_REASON)
    if reason is None or reason.status != TRUE or reason.reason not in INTERRUPTING:
        return False
    try:
        deadline = datetime.fromisoformat(claim.metadata.annotations.get(TERMINATION_TIMESTAMP, ""))
    except ValueError:
        return False
    return (deadline if deadline.tzinfo is not None else deadline.replace(tzinfo=UTC)) - now <= SOON
