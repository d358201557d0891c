"""Applies the open schedule windows to NodePools, at the time of the state.

A decision reads a NodePool to which its open windows are already applied, and needs no rules about
schedules. The state evaluates them again when a NodePool changes, when time passes the next edge of one
of its windows, and when the clock is set.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import SCHEDULES
from karpenter_core.api.pool_schedules import in_force, read_schedules
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.pool_schedules import PoolWindow

__all__ = [
    "OpenWindow",
    "PoolSchedule",
    "PoolScheduleTable",
    "ScheduleEdge",
    "evaluate_schedule",
    "launch_hold",
    "shutdown_reason",
    "shuts_down_pools",
]

UNKNOWN_TIME: Final = datetime.min.replace(tzinfo=UTC)
"""The time of a state to which no time was reported yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWindow:
    """A window that is open, and the time when it closes; None for one that stays open."""

    window: PoolWindow
    until: datetime | None

    def __str__(self) -> str:
        """Name the window and its end."""
        end = "" if self.until is None else f" until {_instant(self.until)}"
        return f'window "{self.window.name}" of {SCHEDULES}{end}'


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleEdge:
    """The time when a window opens or closes."""

    at: datetime
    window: str
    opens: bool

    def __str__(self) -> str:
        """Say what happens and when."""
        return (
            f'window "{self.window}" {"opens" if self.opens else "closes"} at {_instant(self.at)}'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSchedule:
    """The schedules of one NodePool at one time.

    With an `error` the NodePool launches nothing and none of its nodes is disrupted.
    """

    windows: tuple[str, ...] = ()
    """Names of all windows, in order."""
    open: tuple[OpenWindow, ...] = ()
    next_edge: ScheduleEdge | None = None
    evaluate_at: datetime | None = None
    """Time at which the schedules have to be evaluated again; None if never."""
    error: str = ""

    @property
    def shutdown(self) -> OpenWindow | None:
        """The open window that shuts the NodePool down; the last one of several."""
        return next((one for one in reversed(self.open) if one.window.shutdown), None)


def evaluate_schedule(pool: NodePool, now: datetime) -> tuple[NodePool, PoolSchedule | None]:
    """Return a NodePool as it is in force at a time, with its schedule; None without schedules."""
    if SCHEDULES not in pool.metadata.annotations:
        return pool, None
    if now == UNKNOWN_TIME:
        return pool, PoolSchedule(error="the time is not known yet", evaluate_at=now)
    try:
        windows = read_schedules(pool)
    except BadInputError as error:
        return pool, PoolSchedule(error=str(error))
    schedule = _schedule(windows, now)
    return in_force(pool, (one.window for one in schedule.open)), schedule


def _schedule(windows: Sequence[PoolWindow], now: datetime) -> PoolSchedule:
    opened: list[OpenWindow] = []
    edges: list[ScheduleEdge] = []
    due: list[datetime] = []
    for window in windows:
        is_open = window.opening.is_open(now)
        change = window.opening.next_change(now)
        until = None
        if change is not None:
            due.append(change[0])
            if change[1]:
                until = change[0]
                edges.append(ScheduleEdge(at=until, window=window.name, opens=not is_open))
        if is_open:
            opened.append(OpenWindow(window=window, until=until))
    return PoolSchedule(
        windows=tuple(window.name for window in windows),
        open=tuple(opened),
        next_edge=min(edges, key=lambda edge: edge.at, default=None),
        evaluate_at=min(due, default=None),
    )


def shutdown_reason(pool: str, schedule: PoolSchedule | None) -> str:
    """Return why a NodePool is shut down now; empty if it is not."""
    shutdown = None if schedule is None else schedule.shutdown
    return "" if shutdown is None else f'nodepool "{pool}" is shut down by {shutdown}'


def shuts_down_pools(schedules: Mapping[str, PoolSchedule]) -> bool:
    """Tell whether a window shuts some NodePool down now."""
    return any(schedule.shutdown for schedule in schedules.values())


def launch_hold(pool: str, schedule: PoolSchedule | None) -> str:
    """Return why the schedules of a NodePool forbid launches now; empty if they do not."""
    if schedule is not None and schedule.error:
        return f'nodepool "{pool}" launches nothing: {schedule.error}'
    return shutdown_reason(pool, schedule)


def _instant(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


@final
class PoolScheduleTable:
    """The NodePools with schedules as users wrote them, and their schedules by name."""

    __slots__ = ("_pools", "_schedules", "_view")

    def __init__(self) -> None:
        self._pools: dict[str, NodePool] = {}
        self._schedules: dict[str, PoolSchedule] = {}
        self._view: Mapping[str, PoolSchedule] | None = None

    @property
    def next_evaluation(self) -> datetime | None:
        """The time when some schedule has to be evaluated again; None if never."""
        times = (schedule.evaluate_at for schedule in self._schedules.values())
        return min((at for at in times if at is not None), default=None)

    def freeze(self) -> Mapping[str, PoolSchedule]:
        """Return the schedules; the result never changes."""
        if self._view is None:
            self._view = MappingProxyType(dict(self._schedules))
        return self._view

    def put(self, pool: NodePool, now: datetime) -> NodePool:
        """Store a NodePool; return it as it is in force."""
        effective, schedule = evaluate_schedule(pool, now)
        if schedule is None:
            self.drop(pool.name)
        else:
            self._pools[pool.name], self._schedules[pool.name] = pool, schedule
            self._view = None
        return effective

    def drop(self, name: str) -> None:
        """Forget a NodePool."""
        if self._pools.pop(name, None) is not None:
            del self._schedules[name]
            self._view = None

    def due(self, now: datetime) -> tuple[NodePool, ...]:
        """Return the NodePools, as users wrote them, whose schedules have to be evaluated now."""
        return tuple(
            self._pools[name]
            for name, schedule in sorted(self._schedules.items())
            if schedule.evaluate_at is not None and schedule.evaluate_at <= now
        )

    def every_pool(self) -> tuple[NodePool, ...]:
        """Return all NodePools with schedules, as users wrote them."""
        return tuple(pool for _, pool in sorted(self._pools.items()))
