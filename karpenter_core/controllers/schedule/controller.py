"""Wakes the state at window edges, shows windows: controller `schedule`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

from karpenter_core.controllers.reconciling.reconciler import PeriodicLoop
from karpenter_core.state.object_kinds import ObjectKind

if TYPE_CHECKING:
    from karpenter_core.controllers.cluster_state import ClusterState
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["ScheduleController"]

LONGEST_SECONDS: Final = 60.0
"""Time after which edges are compared with the clock again, since it may have been set."""
LATE_SECONDS: Final = 0.001
"""Added to a sleep, so that the clock has passed the edge afterwards."""


@final
class ScheduleController:
    """The controller `schedule`.

    The state opens and closes windows when time passes; this controller makes it do so at once, which
    wakes the controllers that a changed NodePool concerns.
    """

    def __init__(self, *, cluster_state: ClusterState, runtime: ControllerRuntime) -> None:
        self._cluster_state = cluster_state
        self._runtime = runtime
        self._loop = PeriodicLoop(self.name, self._step, runtime=runtime)
        self._shown: dict[str, tuple[str, ...]] = {}
        cluster_state.subscribe(ObjectKind.NODE_POOL, lambda _name: self._loop.wake())

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return "schedule"

    async def run(self) -> None:
        """Work until cancelled."""
        await self._loop.run()

    async def _step(self) -> float:
        await asyncio.sleep(0)
        self._show(self._cluster_state.snapshot())
        edge = self._cluster_state.next_schedule_edge
        if edge is None:
            return LONGEST_SECONDS
        left = (edge - self._runtime.clock.now()).total_seconds()
        return min(max(left, 0.0) + LATE_SECONDS, LONGEST_SECONDS)

    def _show(self, snapshot: Snapshot) -> None:
        """Set the metrics of the windows."""
        metrics = self._runtime.metrics
        for name, schedule in snapshot.pool_schedules.items():
            opened = {one.window.name for one in schedule.open}
            for window in set(self._shown.get(name, ())) - set(schedule.windows):
                metrics.capacity.nodepools_schedule_window_open.remove(name, window)
            for window in schedule.windows:
                metrics.capacity.nodepools_schedule_window_open.labels(name, window).set(
                    window in opened
                )
            edge = schedule.next_edge
            metrics.capacity.nodepools_schedule_next_edge.labels(name).set(
                0.0 if edge is None else edge.at.timestamp()
            )
        for name in self._shown.keys() - snapshot.pool_schedules.keys():
            metrics.capacity.nodepools_schedule_window_open.remove_by_labels({"nodepool": name})
            metrics.capacity.nodepools_schedule_next_edge.remove_by_labels({"nodepool": name})
        self._shown = {name: schedule.windows for name, schedule in snapshot.pool_schedules.items()}
