"""Sets and removes NodePools' conditions; computes their status patch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from karpenter_core.api.nodepool import NODE_POOL_CONDITIONS
from karpenter_core.lifecycle.changes import MergePatch, changed_fields

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.conditions import Condition
    from karpenter_core.api.nodepool import NodePool

__all__ = ["node_pool_status_patch", "with_condition", "without_condition"]


def with_condition(
    pool: NodePool,
    *,
    type: str,  # noqa: A002 - the field's name in the API
    status: Literal["True", "False", "Unknown"],
    reason: str,
    message: str = "",
    now: datetime,
) -> NodePool:
    """Return the pool with one condition set; the same object when nothing changes."""
    metadata = pool.metadata
    conditions = NODE_POOL_CONDITIONS.initialise(
        pool.status.conditions,
        since=metadata.creation_timestamp,
        generation=metadata.generation,
        deleting=pool.is_deleting,
    )
    conditions = NODE_POOL_CONDITIONS.set(
        conditions,
        type=type,
        status=status,
        reason=reason,
        message=message,
        now=now,
        generation=metadata.generation,
        deleting=pool.is_deleting,
    )
    return _with_conditions(pool, conditions)


def without_condition(pool: NodePool, type: str) -> NodePool:  # noqa: A002 - the field's name in the API
    """Return the pool without one condition; the same object when it has none of that type."""
    kept = tuple(each for each in pool.status.conditions if each.type != type)
    return pool if len(kept) == len(pool.status.conditions) else _with_conditions(pool, kept)


def _with_conditions(pool: NodePool, conditions: tuple[Condition, ...]) -> NodePool:
    if conditions is pool.status.conditions:
        return pool
    status = pool.status.model_copy(update={"conditions": conditions})
    return pool.model_copy(update={"status": status})


def node_pool_status_patch(old: NodePool, new: NodePool) -> MergePatch | None:
    """Return the patch of a pool's status; None when nothing changed.

    Conditions replace a list that has other writers, so the patch carries the resource version.
    """
    status = changed_fields(old.status, new.status)
    if "resources" in status:
        gone = old.status.resources.keys() - new.status.resources.keys()
        kept = {name: str(amount) for name, amount in new.status.resources.items()}
        status["resources"] = {**kept, **dict.fromkeys(gone)}
    if not status:
        return None
    version = old.metadata.resource_version if "conditions" in status else None
    return MergePatch(body={"status": status}, resource_version=version)
