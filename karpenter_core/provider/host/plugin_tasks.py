"""Turns periodic tasks of plug-ins into coroutines of the core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from karpenter_core.errors import CloudProviderError, FencedError
from karpenter_core.provider.host.executor import raised_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import timedelta

    from karpenter_core.provider.contract import PeriodicTask
    from karpenter_core.provider.host.dispatch import Dispatcher

__all__ = ["PluginTask", "plugin_task"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginTask:
    """Periodic work of one plug-in, in the form in which the core runs it."""

    plugin: str
    name: str
    period: timedelta
    leader_only: bool
    run: Callable[[], Awaitable[None]]
    """Run it once, wherever plug-in code runs; raises CloudProviderError for what it raised.

    FencedError: it is for the leader, and this process does not lead; nothing was called."""


def plugin_task(plugin: str, task: PeriodicTask, dispatcher: Dispatcher) -> PluginTask:
    """Return a declared task as the core runs it."""

    async def run() -> None:
        try:
            await dispatcher.run_task(task.run, lane=plugin, leader_only=task.leader_only)
        except (CloudProviderError, FencedError):
            raise
        except Exception as error:
            raise CloudProviderError(
                f'plug-in "{plugin}" failed in its task {task.name}: {raised_text(error)}'
            ) from error

    return PluginTask(
        plugin=plugin,
        name=task.name,
        period=task.period,
        leader_only=task.leader_only,
        run=run,
    )
