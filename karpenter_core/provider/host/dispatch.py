"""One call of one hook of one plug-in: in its lane, in time, fenced, measured, errors typed.

Plug-ins are other people's code. Whatever one does (raise anything, return nonsense, never return)
ends here as a typed error that names the plug-in and the hook, or as an overdue call; it reaches
neither the process nor the calls to other plug-ins.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar, cast, final

from karpenter_core.errors import CallPendingError, CloudProviderError, KarpenterError
from karpenter_core.provider.contract import BatchLimits
from karpenter_core.provider.host.calls import OpenCalls
from karpenter_core.provider.host.executor import InlineExecutor
from karpenter_core.provider.host.metrics import ProviderMetrics
from karpenter_core.provider.kit.one_by_one import CALLED_PLUGIN, ItemCalls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Hashable, Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import Fence
    from karpenter_core.provider.host.executor import Executor
    from karpenter_core.provider.host.manager import Plugins

__all__ = ["Dispatcher", "Measurement", "checked_list"]

T = TypeVar("T")

FENCED_HOOKS: Final = frozenset(
    {
        "karpenter_launch_instances",
        "karpenter_terminate_instances",
        "karpenter_resolve_node_class",
        "karpenter_finalize_node_class",
        "karpenter_sync_instance",
        "karpenter_acknowledge_interruptions",
    }
)
"""Hooks that may change something in a cloud: called only while this process leads."""

_NO_LIMITS: Final = BatchLimits()
_INLINE: Final = InlineExecutor()
_ANY_NUMBER: Final = sys.maxsize


class Measurement:
    """What a measured call came to; an outcome that is an error counts as one."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def note(self, outcome: T) -> T:
        """Remember an outcome, and return it."""
        if isinstance(outcome, BaseException):
            self.error = outcome
        return outcome


@final
class Dispatcher:
    """Calls hooks of the loaded plug-ins."""

    def __init__(
        self,
        plugins: Plugins,
        *,
        executor: Executor,
        clock: Clock,
        fence: Fence,
        registry: CollectorRegistry,
    ) -> None:
        self.clock: Final = clock
        self._plugins: Final = plugins
        self._executor: Final = executor
        self._fence: Final = fence
        self._metrics: Final = ProviderMetrics(registry)
        self._calls: Final[dict[str, OpenCalls]] = {}
        self._shared: Final[dict[Hashable, asyncio.Future[object]]] = {}

    def calls_of(self, name: str) -> OpenCalls:
        """Return the open calls of a plug-in."""
        if name not in self._calls:
            self._calls[name] = OpenCalls(
                self.clock, on_change=lambda count: self._metrics.set_overdue(name, count)
            )
        return self._calls[name]

    def overdue(self) -> int:
        """How many calls have passed their limit and are still open, over all plug-ins."""
        return sum(calls.overdue for calls in self._calls.values())

    def limits(self, hook: str, name: str) -> BatchLimits:
        """Return the limits a provider declares for a hook."""
        provider = self._plugins.providers.get(name)
        return provider.info.batch_limits.get(hook, _NO_LIMITS) if provider else _NO_LIMITS

    def item_width(self, hook: str, name: str) -> int | None:
        """Return how many items of a hook are called for side by side, each in a call of its own.

        None: the hook takes many items at once. A quarter of the lane's threads is left to other
        calls, so that a listing does not wait for a wave of launches.
        """
        calls = self._plugins.item_calls(hook, name)
        if calls is None:
            return None
        threads = self._executor.threads
        if calls is ItemCalls.COROUTINES or threads is None:
            return _ANY_NUMBER
        return max(threads * 3 // 4, 1)

    def implements(self, hook: str, name: str) -> bool:
        """Whether a plug-in implements a hook."""
        return self._plugins.caller(hook, name) is not None

    @contextmanager
    def measure(self, method: str, provider: str) -> Generator[Measurement, None, None]:
        """Measure a call of the façade, waiting for its batch included."""
        start = self.clock.monotonic()
        measurement = Measurement()
        try:
            yield measurement
        except (Exception, asyncio.CancelledError) as error:
            measurement.error = error
            raise
        finally:
            seconds = self.clock.monotonic() - start
            self._metrics.observe(method, provider, seconds, measurement.error)

    async def ask(
        self,
        hook: str,
        name: str,
        arguments: Mapping[str, object] = MappingProxyType({}),
        *,
        inline: bool = False,
    ) -> object:
        """Call a hook of one plug-in that implements it, without a time limit.

        Raises:
            FencedError: the hook changes the cloud, and this process does not lead.
            KarpenterError: the plug-in's own error; CloudProviderError for anything unexpected.
        """
        caller = self._plugins.caller(hook, name)
        if caller is None:
            raise CloudProviderError(f'plug-in "{name}" does not implement {hook}')

        def call() -> object:
            if hook in FENCED_HOOKS:
                self._fence.check()  # as late as can be: a call may have waited for its thread
            return caller(**arguments)

        called = CALLED_PLUGIN.set(name)
        try:
            executor = _INLINE if inline else self._executor
            return await executor.run(call, lane=name)
        except KarpenterError:
            raise
        except (Exception, SystemExit) as error:
            raise CloudProviderError(f'plug-in "{name}" failed in {hook}: {error!r}') from error
        finally:
            CALLED_PLUGIN.reset(called)

    async def call(
        self,
        hook: str,
        name: str,
        arguments: Mapping[str, object] = MappingProxyType({}),
        *,
        key: Hashable = (),
    ) -> object:
        """Call a hook of one plug-in within its time limit; equal calls meanwhile share one.

        Raises:
            CallPendingError: the limit passed, now or before, and the call is still open.
        """
        identity = (hook, name, key)
        calls = self.calls_of(name)
        if calls.is_overdue(identity):
            raise CallPendingError(f'{hook} of plug-in "{name}" is still open from an earlier call')
        running = self._shared.get(identity)
        if running is None:
            running = asyncio.ensure_future(
                calls.run(
                    identity,
                    self.ask(hook, name, arguments),
                    limit=self.limits(hook, name).timeout,
                    what=f'{hook} of plug-in "{name}"',
                )
            )
            self._shared[identity] = running
            running.add_done_callback(lambda _: self._shared.pop(identity, None))
            running.add_done_callback(_look_at)
        return await asyncio.shield(running)

    async def run_task(
        self, run: Callable[[], T | Awaitable[T]], *, lane: str, leader_only: bool
    ) -> T:
        """Run work of a plug-in in its lane; what the leader alone does may change a cloud.

        Raises:
            FencedError: it is for the leader, and this process does not lead.
        """

        def work() -> T | Awaitable[T]:
            if leader_only:
                self._fence.check()  # as late as can be: it may have waited for its thread
            return run()

        return await self._executor.run(work, lane=lane)

    def close(self) -> None:
        """Take no more calls."""
        self._executor.close()


def checked_list(
    answer: object, *, count: int | None, types: tuple[type, ...], hook: str, name: str
) -> Sequence[object]:
    """Return a plural hook's answer if it is one: as many items as asked for, of these types.

    Raises:
        CloudProviderError: it is not, naming plug-in and hook.
    """
    if not isinstance(answer, list | tuple):
        raise CloudProviderError(f'plug-in "{name}": {hook} must return a list, not {answer!r}')
    items = cast("Sequence[object]", answer)
    if count is not None and len(items) != count:
        raise CloudProviderError(
            f'plug-in "{name}": {hook} returned {len(items)} outcomes for {count} items'
        )
    for item in items:
        if not isinstance(item, types):
            wanted = " or ".join(t.__name__ for t in types)
            raise CloudProviderError(
                f'plug-in "{name}": {hook} must return {wanted} for each item, not {item!r}'
            )
    return items


def _look_at(finished: asyncio.Future[object]) -> None:
    """Take note of an error whose callers are all gone, so that asyncio does not complain."""
    if not finished.cancelled():
        finished.exception()
