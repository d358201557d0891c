"""Sets ScheduleWindowOpen: True while a schedule window changes the pool."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import TRUE, find_condition
from karpenter_core.api.notices import Notice
from karpenter_core.lifecycle.nodepool.status import with_condition, without_condition

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.state.pool_schedules import PoolSchedule

__all__ = ["SCHEDULE_WINDOW_OPEN", "schedule_notices", "with_open_windows"]

SCHEDULE_WINDOW_OPEN: Final = "ScheduleWindowOpen"
"""Condition beside Ready: True while a window of `karpenter.sh/schedules` is open; else absent."""
SHUT_DOWN: Final = "ShutDown"
WINDOW_OPEN: Final = "WindowOpen"

_EVENT_PERIOD: Final = timedelta(hours=1)


def with_open_windows(pool: NodePool, schedule: PoolSchedule | None, *, now: datetime) -> NodePool:
    """Return the pool with the condition, which names the open windows and their ends."""
    if schedule is None or not schedule.open:
        return without_condition(pool, SCHEDULE_WINDOW_OPEN)
    return with_condition(
        pool,
        type=SCHEDULE_WINDOW_OPEN,
        status=TRUE,
        reason=WINDOW_OPEN if schedule.shutdown is None else SHUT_DOWN,
        message="; ".join(f"{one}" for one in schedule.open),
        now=now,
    )


def schedule_notices(pool: NodePool) -> tuple[Notice, ...]:
    """Return the Event about a pool's open windows, at most once an hour; none without any."""
    condition = find_condition(pool.status.conditions, SCHEDULE_WINDOW_OPEN)
    if condition is None:
        return ()
    return (
        Notice(
            regarding=pool.ref,
            type="Normal",
            reason="ScheduleWindowOpen",
            message=condition.message,
            dedupe=(pool.uid, condition.message),
            window=_EVENT_PERIOD,
        ),
    )
