"""Sets the condition ReplicasIgnored on static NodePools (unsupported).

Such a pool is neither provisioned nor shrunk: its user wants a fixed number of nodes, and a node that
would not be replaced must not be removed (`state.disruption_pause`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import TRUE
from karpenter_core.api.notices import Notice
from karpenter_core.lifecycle.nodepool.status import with_condition, without_condition

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.nodepool import NodePool

__all__ = [
    "REPLICAS_IGNORED",
    "static_notices",
    "with_replicas_ignored",
]

REPLICAS_IGNORED: Final = "ReplicasIgnored"
"""Condition beside Ready: True for a static pool; absent otherwise."""
MESSAGE: Final = (
    "spec.replicas is ignored: static NodePools are not implemented yet, regardless of the feature gate "
    "StaticCapacity. No node is launched for the pool, and its NodeClaims are not expired, "
    "repaired, replaced for drift or consolidated"
)
_WINDOW: Final = timedelta(hours=1)


def with_replicas_ignored(pool: NodePool, *, now: datetime) -> NodePool:
    """Return the pool with the condition if it is static, and without it otherwise."""
    if pool.spec.replicas is not None:
        return with_condition(
            pool,
            type=REPLICAS_IGNORED,
            status=TRUE,
            reason="StaticCapacityNotBuilt",
            message=MESSAGE,
            now=now,
        )
    return without_condition(pool, REPLICAS_IGNORED)


def static_notices(pool: NodePool) -> tuple[Notice, ...]:
    """Return the Event for a static pool; none for any other pool."""
    if pool.spec.replicas is None:
        return ()
    return (
        Notice(
            regarding=pool.ref,
            type="Warning",
            reason="StaticCapacityNotBuilt",
            message=MESSAGE,
            dedupe=(pool.uid,),
            window=_WINDOW,
        ),
    )
