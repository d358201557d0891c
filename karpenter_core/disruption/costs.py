"""Computes what disrupting pods and nodes costs, to rank candidates."""

from __future__ import annotations

from datetime import timedelta
from math import fsum, isfinite
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import POD_DELETION_COST

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import PodShape

__all__ = ["disruption_cost", "eviction_cost", "lifetime_remaining", "reschedule_cost"]

_DELETION_COST_UNIT: Final = 2.0**27  # upstream's scales
_PRIORITY_UNIT: Final = 2.0**25
_LIMIT: Final = 10.0


def eviction_cost(shape: PodShape) -> float:
    """Return what evicting one pod of a shape costs: 1, moved by deletion cost and priority."""
    cost = 1.0 + shape.priority / _PRIORITY_UNIT
    cost += _deletion_cost(shape.annotations.get(POD_DELETION_COST)) / _DELETION_COST_UNIT
    return min(max(cost, -_LIMIT), _LIMIT)


def _deletion_cost(text: str | None) -> float:
    """Read the annotation; 0 for an unreadable value (upstream)."""
    try:
        cost = float(text or 0)
    except ValueError:
        return 0.0
    return cost if isfinite(cost) else 0.0


def lifetime_remaining(claim: NodeClaim, now: datetime) -> float:
    """Return the share of its lifetime that a node has left; 1 when it never expires."""
    expire_after = claim.spec.expire_after.timedelta
    created = claim.metadata.creation_timestamp
    if expire_after is None or created is None or expire_after <= timedelta():
        return 1.0
    return min(max((expire_after - (now - created)) / expire_after, 0.0), 1.0)


def disruption_cost(eviction_costs: Iterable[float], claim: NodeClaim, now: datetime) -> float:
    """Return the cost of removing a node; it falls as its expiration comes nearer."""
    return fsum(eviction_costs) * lifetime_remaining(claim, now)


def reschedule_cost(eviction_costs: Iterable[float]) -> float:
    """Return 1 plus the cost of moving these pods; negative costs count as 0.

    A node for which this is 1 is empty, whatever runs on it.
    """
    return 1.0 + fsum(max(0.0, cost) for cost in eviction_costs)
