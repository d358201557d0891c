"""Calls one hook of one plug-in in its threads; makes failures typed errors.

A call has a time limit, a fence and metrics. Plug-ins are foreign code. Whatever a plug-in does
(raise anything, return an invalid value, never return) becomes a typed error that names plug-in and
hook, or an overdue call; it affects neither the process nor the calls to other plug-ins.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar, final

from karpenter_core.errors import CloudProviderError, KarpenterError
from karpenter_core.provider.contract import BatchLimits
from karpenter_core.provider.host.executor import InlineExecutor, raised_text
from karpenter_core.provider.host.metrics import PluginCallMetrics
from karpenter_core.provider.host.open_calls import OpenCalls
from karpenter_core.provider.host.throttle_pauses import ThrottlePauses
from karpenter_core.provider.host.timed_calls import TimedCalls
from karpenter_core.provider.kit.one_by_one import CALLED_PLUGIN, ItemCallMode
from karpenter_core.tracing import NO_TRACER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Hashable, Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import LeaderFence
    from karpenter_core.provider.host.executor import Executor
    from karpenter_core.provider.host.hooks import Hook
    from karpenter_core.provider.host.manager import Plugins
    from karpenter_core.tracing import Tracer

__all__ = ["CallMeasurement", "Dispatcher"]

T = TypeVar("T")
Item = TypeVar("Item")
Request = TypeVar("Request", bound="Mapping[str, object]")
Result = TypeVar("Result")

_NO_LIMITS: Final = BatchLimits()
_INLINE: Final = InlineExecutor()
_ANY_NUMBER: Final = sys.maxsize


class CallMeasurement:
    """Result of a measured call; an error outcome counts as an error."""

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
        fence: LeaderFence,
        observing: bool = False,
        registry: CollectorRegistry,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self.clock: Final = clock
        self._plugins: Final = plugins
        self._executor: Final = executor
        self._fence: Final = fence
        self._observing: Final = observing
        self._metrics: Final = PluginCallMetrics(registry)
        self._tracer: Final = tracer
        self._calls: Final[dict[str, TimedCalls]] = {}
        self._pauses: Final = ThrottlePauses(clock)
        self._open: Final[dict[tuple[str, str], OpenCalls[Mapping[str, object], object]]] = {}
        """By hook and plug-in."""

    def timed_calls(self, name: str) -> TimedCalls:
        """Return the running calls of a plug-in, with their time limits."""
        if name not in self._calls:
            self._metrics.set_overdue(name, 0)
            self._calls[name] = TimedCalls(
                self.clock, on_change=lambda count: self._metrics.set_overdue(name, count)
            )
        return self._calls[name]

    def overdue(self) -> int:
        """Return the number of open calls past their time limit, of all plug-ins."""
        return sum(calls.overdue for calls in self._calls.values())

    def limits(self, hook: Hook[Request, Result], name: str) -> BatchLimits:
        """Return the limits that a provider declares for a hook."""
        provider = self._plugins.providers.get(name)
        return provider.info.batch_limits.get(hook.name, _NO_LIMITS) if provider else _NO_LIMITS

    def item_width(self, hook: Hook[Request, Result], name: str) -> int | None:
        """Return how many items of a hook are called for side by side, each in a call of its own.

        None: the hook takes many items at once. A quarter of the lane's threads is left to other
        calls, so that a listing does not wait for a wave of launches.
        """
        calls = self._plugins.item_call_mode(hook.name, name)
        if calls is None:
            return None
        threads = self._executor.threads
        if calls is ItemCallMode.COROUTINES or threads is None:
            return _ANY_NUMBER
        return max(threads * 3 // 4, 1)

    def implementers(self, hook: Hook[Request, Result]) -> tuple[str, ...]:
        """Return the plug-ins that implement a hook, in the order they are asked."""
        return self._plugins.implementers(hook.name)

    def implements(self, hook: Hook[Request, Result], name: str) -> bool:
        """Whether a plug-in implements a hook."""
        return self._plugins.caller(hook.name, name) is not None

    @contextmanager
    def measure(
        self, hook: Hook[Request, Result], provider: str
    ) -> Generator[CallMeasurement, None, None]:
        """Measure a call of the façade under the hook's method, waiting for its batch included."""
        start = self.clock.monotonic()
        measurement = CallMeasurement()
        try:
            with self._tracer.span(f"provider.{hook.measured_as}", provider=provider):
                yield measurement
        except (Exception, asyncio.CancelledError) as error:
            measurement.error = error
            raise
        finally:
            seconds = self.clock.monotonic() - start
            self._metrics.observe(hook.measured_as, provider, seconds, measurement.error)

    async def ask(
        self, hook: Hook[Request, Result], name: str, request: Request, *, inline: bool = False
    ) -> Result:
        """Call a hook of one plug-in that implements it, without a time limit.

        Raises:
            FencedError: the hook changes the cloud, and this process does not lead.
            KarpenterError: the plug-in's own error; CloudProviderError for anything unexpected.
        """
        answer = await self._ask(hook, name, request, inline=inline)
        return hook.read(answer, request=request, where=f'plug-in "{name}"')

    def batch_call(
        self,
        hook: Hook[Request, tuple[T, ...]],
        name: str,
        request_of: Callable[[tuple[Item, ...]], Request],
    ) -> Callable[[Sequence[Item]], Awaitable[Sequence[T]]]:
        """Return a function that calls a plural hook with the items of one batch, as `ask` does."""

        async def call(items: Sequence[Item]) -> Sequence[T]:
            return await self.ask(hook, name, request_of(tuple(items)))

        return call

    async def call(
        self, hook: Hook[Request, Result], name: str, request: Request, *, key: Hashable = ()
    ) -> Result:
        """Call a hook of one plug-in within its time limit; equal calls meanwhile share one.

        Raises:
            CallPendingError: the limit passed, now or before, and the call is still open.
        """
        calls = self._open_calls(hook, name)
        entry, is_new = calls.open(request, key)
        if is_new:

            async def ask() -> Sequence[object]:
                return [await self._ask(hook, name, request)]

            calls.start([entry], ask)
        answer = await calls.wait(entry)
        return hook.read(answer, request=request, where=f'plug-in "{name}"')

    def _open_calls(
        self, hook: Hook[Request, Result], name: str
    ) -> OpenCalls[Mapping[str, object], object]:
        """Return the open calls of one hook of one plug-in."""
        identity = (hook.name, name)
        if identity not in self._open:
            self._open[identity] = OpenCalls(
                what=f'{hook.name} of plug-in "{name}"',
                limit=self.limits(hook, name).timeout,
                calls=self.timed_calls(name),
            )
        return self._open[identity]

    async def _ask(
        self,
        hook: Hook[Request, Result],
        name: str,
        arguments: Mapping[str, object],
        *,
        inline: bool = False,
    ) -> object:
        """Return what a plug-in answers, unchecked."""
        caller = self._plugins.caller(hook.name, name)
        if caller is None:
            raise CloudProviderError(f'plug-in "{name}" does not implement {hook.name}')

        def call() -> object:
            if hook.fenced and not self._is_observed(hook, name):
                self._fence.check()  # as late as can be: a call may have waited for its thread
            return hook.single(caller(**arguments))

        self._pauses.check(name, hook.name)
        called = CALLED_PLUGIN.set(name)
        try:
            executor = _INLINE if inline else self._executor
            answer = await executor.run(call, lane=name)
            if hook.items is not None:
                self._pauses.note_outcomes(name, answer)
        except Exception as error:
            if isinstance(error, KarpenterError) and isinstance(error, hook.may_raise):
                self._pauses.note_error(name, error)
                raise
            raise CloudProviderError(
                f'plug-in "{name}" failed in {hook.name}: {raised_text(error)}'
            ) from error
        else:
            return answer
        finally:
            CALLED_PLUGIN.reset(called)

    def _is_observed(self, hook: Hook[Request, Result], name: str) -> bool:
        """Tell whether an observer may call a fenced hook: its plug-in asks the fence itself."""
        if not self._observing or not hook.observed:
            return False
        provider = self._plugins.providers.get(name)
        return provider is not None and provider.info.observes

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
