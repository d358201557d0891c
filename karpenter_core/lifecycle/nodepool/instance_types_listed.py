"""Sets the condition InstanceTypesListed: False while listing fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import FALSE
from karpenter_core.lifecycle.claim_status import truncate_message
from karpenter_core.lifecycle.nodepool.status import with_condition, without_condition

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.nodepool import NodePool

__all__ = ["INSTANCE_TYPES_LISTED", "with_instance_types_listed"]

INSTANCE_TYPES_LISTED: Final = "InstanceTypesListed"
"""Condition beside Ready: False while the catalogue cannot be refreshed; absent otherwise."""
LISTING_FAILED: Final = "ListingFailed"


def with_instance_types_listed(pool: NodePool, problem: str, *, now: datetime) -> NodePool:
    """Return the pool with the condition while there is a problem, and without it otherwise."""
    if problem:
        return with_condition(
            pool,
            type=INSTANCE_TYPES_LISTED,
            status=FALSE,
            reason=LISTING_FAILED,
            message=truncate_message(problem),
            now=now,
        )
    return without_condition(pool, INSTANCE_TYPES_LISTED)
