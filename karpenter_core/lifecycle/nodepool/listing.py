"""The condition that says why a NodePool's instance types could not be listed or used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import FALSE
from karpenter_core.lifecycle.claim_status import cut
from karpenter_core.lifecycle.nodepool.status import with_condition, without_condition

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.nodepool import NodePool

__all__ = ["INSTANCE_TYPES_LISTED", "with_listing"]

INSTANCE_TYPES_LISTED: Final = "InstanceTypesListed"
"""Condition beside Ready: False while the catalogue cannot be refreshed; absent otherwise."""
LISTING_FAILED: Final = "ListingFailed"


def with_listing(pool: NodePool, problem: str, *, now: datetime) -> NodePool:
    """Say why a pool's catalogue could not be refreshed; an empty problem says that it could."""
    if problem:
        return with_condition(
            pool,
            type=INSTANCE_TYPES_LISTED,
            status=FALSE,
            reason=LISTING_FAILED,
            message=cut(problem),
            now=now,
        )
    return without_condition(pool, INSTANCE_TYPES_LISTED)
