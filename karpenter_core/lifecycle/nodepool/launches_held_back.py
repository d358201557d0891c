"""Sets the condition LaunchesHeldBack: True while launches are paused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import TRUE
from karpenter_core.api.nodepool import REGISTRATION_FAILED
from karpenter_core.lifecycle.nodepool.status import with_condition, without_condition

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.state.launch_pauses import LaunchPause

__all__ = ["LAUNCHES_HELD_BACK", "with_launches_held_back"]

LAUNCHES_HELD_BACK: Final = "LaunchesHeldBack"
"""Condition beside Ready: True while a pool is launched from one node at a time; else absent."""


def with_launches_held_back(
    pool: NodePool, pause: LaunchPause | None, *, now: datetime
) -> NodePool:
    """Return the pool with the condition, and the time of the next launch, during a pause."""
    if pause is not None and pause.is_on_trial:
        return with_condition(
            pool,
            type=LAUNCHES_HELD_BACK,
            status=TRUE,
            reason=REGISTRATION_FAILED,
            message="The last nodes of the NodePool did not register: it launches no node before "
            f"{pause.until:%Y-%m-%dT%H:%M:%SZ}, then one node as a test",
            now=now,
        )
    return without_condition(pool, LAUNCHES_HELD_BACK)
