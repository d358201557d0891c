"""Runs the periodic tasks of plug-ins: prices, quotas, clean-up of orphans.

Each task runs in its own loop, so that it never overlaps itself and a slow task delays no other; a
plug-in may request that a task runs at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

from karpenter_core.controllers.reconciling.reconciler import PeriodicLoop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.provider.host.plugin_tasks import PluginTask

__all__ = ["PluginTasks"]


@final
class PluginTasks:
    """Runs tasks until cancelled."""

    def __init__(
        self, tasks: Iterable[PluginTask], *, runtime: ControllerRuntime, name: str
    ) -> None:
        self._name = name
        self._runtime = runtime
        self._loops = {(task.plugin, task.name): self._loop_of(task) for task in tasks}

    @property
    def name(self) -> str:
        """Name in logs and metrics."""
        return self._name

    def wake(self, plugin: str, task: str) -> None:
        """Run a task now; an unknown task is ignored."""
        loop = self._loops.get((plugin, task))
        if loop is not None:
            loop.wake()

    async def run(self) -> None:
        """Run every task at once, then each in its own period."""
        async with asyncio.TaskGroup() as group:
            for loop in self._loops.values():
                group.create_task(loop.run())

    def _loop_of(self, task: PluginTask) -> PeriodicLoop:
        return PeriodicLoop(
            f"{task.plugin}.{task.name}", _step(task), runtime=self._runtime, is_vital=False
        )


def _step(task: PluginTask) -> Callable[[], Awaitable[float]]:
    async def step() -> float:
        await task.run()
        return task.period.total_seconds()

    return step
