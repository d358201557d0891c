"""Sets a NodePool's condition NodeClassReady from its NodeClass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.conditions import FALSE, READY, TRUE, UNKNOWN, find_condition
from karpenter_core.api.nodepool import (
    NODE_CLASS_NOT_FOUND,
    NODE_CLASS_READINESS_UNKNOWN,
    NODE_CLASS_READY,
    NODE_CLASS_TERMINATING,
)
from karpenter_core.lifecycle.nodepool.status import with_condition

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool

__all__ = ["with_readiness"]


def with_readiness(pool: NodePool, node_class: NodeClass | None, *, now: datetime) -> NodePool:
    """Return the pool with NodeClassReady set; the same object when nothing changed.

    `node_class` is None if it does not exist. The reason and message of the class are copied, so that
    users see on the pool what is wrong with the class.
    """
    if node_class is None:
        return _not_ready(pool, NODE_CLASS_NOT_FOUND, "NodeClass not found on cluster", now=now)
    if node_class.is_deleting:
        return _not_ready(pool, NODE_CLASS_TERMINATING, "NodeClass is Terminating", now=now)
    ready = find_condition(node_class.status.conditions, READY)
    if ready is None or ready.status == UNKNOWN:
        return _not_ready(
            pool, NODE_CLASS_READINESS_UNKNOWN, "Node Class Readiness Unknown", now=now
        )
    if ready.status == FALSE:
        # A NodeClass of a foreign kind may have no reason; a pool's condition must have one.
        return _not_ready(pool, ready.reason or NODE_CLASS_READY, ready.message, now=now)
    return with_condition(
        pool, type=NODE_CLASS_READY, status=TRUE, reason=NODE_CLASS_READY, now=now
    )


def _not_ready(pool: NodePool, reason: str, message: str, *, now: datetime) -> NodePool:
    return with_condition(
        pool, type=NODE_CLASS_READY, status=FALSE, reason=reason, message=message, now=now
    )
