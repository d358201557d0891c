"""Starts and stops plug-ins; holds the labels and tasks they declare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, final

import structlog

from karpenter_core.errors import CloudProviderError, KarpenterError, PluginError
from karpenter_core.provider.contract import LabelClasses
from karpenter_core.provider.host import hooks
from karpenter_core.provider.host.declared_values import labels_problem, task_problem
from karpenter_core.provider.host.labels import merge_label_classes
from karpenter_core.provider.host.plugin_tasks import plugin_task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.provider.contract import ProviderContext
    from karpenter_core.provider.host.dispatch import Dispatcher
    from karpenter_core.provider.host.hooks import Hook
    from karpenter_core.provider.host.manager import Plugins
    from karpenter_core.provider.host.plugin_tasks import PluginTask

__all__ = ["RunningPlugins"]

Request = TypeVar("Request", bound="Mapping[str, object]")
Result = TypeVar("Result")


@final
class RunningPlugins:
    """The plug-ins of the process, from their start to their stop."""

    def __init__(self, plugins: Plugins, dispatcher: Dispatcher) -> None:
        self._plugins: Final = plugins
        self._dispatcher: Final = dispatcher
        self._started: Final[list[str]] = []
        self.left_out: Final[dict[str, KarpenterError]] = {}
        """Plug-ins that could not start and were left out, with the reasons."""
        self.tasks: tuple[PluginTask, ...] = ()
        """The periodic tasks of all plug-ins; none before `start`."""
        self.labels = LabelClasses()
        """The labels of all plug-ins together; none before `start`."""

    async def start(
        self, context_for: Callable[[str], ProviderContext], *, all_needed: bool = True
    ) -> None:
        """Start every plug-in; if one cannot start, stop those that did, or leave it out.

        Raises:
            KarpenterError: what a plug-in refused to start for, if all are needed.
        """
        try:
            for name in self._plugins.names:
                try:
                    await self._start_one(name, context_for)
                except KarpenterError as error:
                    if all_needed:
                        raise
                    self._started.remove(name)
                    self.left_out[name] = error
        except BaseException:
            await self.stop()
            raise
        self.labels = merge_label_classes(await self._classify_labels())
        self.tasks = await self._declared_tasks()

    async def stop(self) -> None:
        """Stop every plug-in that has started, the last one first; never raises."""
        while self._started:
            name = self._started.pop()
            if self._dispatcher.implements(hooks.STOP, name):
                try:
                    await self._dispatcher.call(hooks.STOP, name, hooks.NoArguments())
                except KarpenterError as error:
                    _log().warning("plug-in did not stop cleanly", plugin=name, error=str(error))

    async def _start_one(self, name: str, context_for: Callable[[str], ProviderContext]) -> None:
        self._started.append(name)
        if not self._dispatcher.implements(hooks.START, name):
            return
        try:
            await self._dispatcher.call(
                hooks.START, name, hooks.StartArguments(context=context_for(name))
            )
        except CloudProviderError as error:
            origin = self._plugins.origin(name)
            raise PluginError(f'plug-in "{name}" ({origin}) could not start: {error}') from error

    async def _classify_labels(self) -> Mapping[str, LabelClasses]:
        hook, found = hooks.CLASSIFY_LABELS, dict[str, LabelClasses]()
        for name in self.implementers(hook):
            found[name] = await self._dispatcher.call(hook, name, hooks.NoArguments())
            if problem := labels_problem(found[name]):
                raise PluginError(f"{hook.at(name)}: {problem}")
        return found

    def implementers(self, hook: Hook[Request, Result]) -> tuple[str, ...]:
        """Return the plug-ins that implement a hook, except those left out."""
        names = self._dispatcher.implementers(hook)
        return tuple(name for name in names if name not in self.left_out)

    async def _declared_tasks(self) -> tuple[PluginTask, ...]:
        tasks: list[PluginTask] = []
        for name in self.implementers(hooks.DECLARE_TASKS):
            declared = await self._dispatcher.call(hooks.DECLARE_TASKS, name, hooks.NoArguments())
            for problem in filter(None, map(task_problem, declared)):
                raise PluginError(f"{hooks.DECLARE_TASKS.at(name)}: {problem}")
            tasks.extend(plugin_task(name, task, self._dispatcher) for task in declared)
        return tuple(tasks)


def _log() -> structlog.typing.FilteringBoundLogger:
    return structlog.get_logger("provider")
