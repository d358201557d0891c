"""Runs hooks in worker threads, or inline under a clock that tests control.

A hook may block for minutes in some SDK, and one that is stuck must neither stop the event loop,
nor another provider's calls, nor the end of the process. So each provider has its own lane of
threads, and the threads are daemons: the interpreter does not wait for them.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast, final

from karpenter_core.provider.value_text import error_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

__all__ = ["Executor", "InlineExecutor", "ThreadExecutor", "UncommonRaiseError", "raised_text"]

T = TypeVar("T")

DEFAULT_MAX_WORKERS: Final = 32
"""Threads a provider may hold; batches keep the number of calls far below it."""


class UncommonRaiseError(Exception):
    """A call raised what is no `Exception`, or what a future cannot carry; `raised` is it.

    SystemExit would end the process, CancelledError the task that waits for the call, and any other
    BaseException (a panic of an extension module, a time-out of gevent) would leave the waiting tasks without
    an answer.
    """

    def __init__(self, raised: BaseException) -> None:
        """Wrap it."""
        super().__init__(f"the call raised {error_text(raised)}")
        self.raised: Final = raised


def raised_text(error: Exception) -> str:
    """Describe in one line what a call raised."""
    return error_text(error.raised if isinstance(error, UncommonRaiseError) else error)


class Executor(Protocol):
    """Runs plug-in code away from, or on, the event loop.

    Whatever a call raises is an `Exception` for its caller (`UncommonRaiseError`). CancelledError means that
    the caller itself is cancelled.
    """

    @property
    def threads(self) -> int | None:
        """Maximum number of concurrent calls of a lane; None for no limit."""
        ...

    async def run(self, call: Callable[[], T | Awaitable[T]], *, lane: str = "") -> T:
        """Run a call in its lane and wait for what it returns; an awaitable is awaited here."""
        ...

    def close(self) -> None:
        """Take no more calls; those that run are left to themselves."""
        ...


@final
class InlineExecutor:
    """Runs calls on the event loop itself: deterministic, for simulated time and tests."""

    @property
    def threads(self) -> int | None:
        """No thread is needed, so any number of calls."""
        return None

    async def run(self, call: Callable[[], T | Awaitable[T]], *, lane: str = "") -> T:
        """Run the call now."""
        del lane
        with _only_exceptions():
            result = call()
        return await _await_result(result)

    def close(self) -> None:
        """Nothing is held."""


@final
class ThreadExecutor:
    """Runs calls in daemon threads, at most `max_workers` for each lane."""

    def __init__(self, max_workers: int = DEFAULT_MAX_WORKERS) -> None:
        self._max_workers: Final = max_workers
        self._lanes: Final[dict[str, _ThreadLane]] = {}
        self._closed = False

    @property
    def threads(self) -> int | None:
        """The bound of each lane."""
        return self._max_workers

    async def run(self, call: Callable[[], T | Awaitable[T]], *, lane: str = "") -> T:
        """Run the call in a thread of its lane; the caller's context variables are seen there."""
        if self._closed:
            message = "the executor is closed"
            raise RuntimeError(message)
        workers = self._lanes.get(lane)
        if workers is None:
            workers = self._lanes[lane] = _ThreadLane(lane, self._max_workers)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T | Awaitable[T]] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            try:
                result = context.run(call)
            except BaseException as error:  # handed to the caller, whatever it is
                _deliver(loop, future, None, error)
            else:
                _deliver(loop, future, result, None)

        workers.submit(work)
        return await _await_result(await future)

    def close(self) -> None:
        """Let idle threads end."""
        self._closed = True
        for lane in self._lanes.values():
            lane.close()


@final
class _ThreadLane:
    """A queue and the threads that empty it, started as they are needed."""

    def __init__(self, name: str, max_workers: int) -> None:
        self._name: Final = name
        self._max_workers: Final = max_workers
        self._changed: Final = threading.Condition()
        self._waiting: Final[deque[Callable[[], None]]] = deque()
        self._threads = 0
        self._idle = 0
        self._closed = False

    def submit(self, work: Callable[[], None]) -> None:
        with self._changed:
            self._waiting.append(work)
            if self._idle >= len(self._waiting):
                self._changed.notify()
            elif self._threads < self._max_workers:
                self._threads += 1
                threading.Thread(
                    target=self._work, name=f"provider-{self._name}-{self._threads}", daemon=True
                ).start()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                while not self._waiting and not self._closed:
                    self._changed.wait()
                self._idle -= 1
                if not self._waiting:
                    self._threads -= 1
                    return
                work = self._waiting.popleft()
            work()


async def _await_result(result: T | Awaitable[T]) -> T:
    if inspect.isawaitable(result):
        with _only_exceptions():
            return await cast("Awaitable[T]", result)
    return cast("T", result)


@contextmanager
def _only_exceptions() -> Generator[None, None, None]:
    """Make an `Exception` of whatever the block raises; the cancellation of this task passes."""
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise UncommonRaiseError(error) from error
    except BaseException as error:
        if _is_common(error):
            raise
        raise UncommonRaiseError(error) from error


def _is_common(error: BaseException) -> bool:
    return isinstance(error, Exception) and not isinstance(error, StopIteration)


def _deliver(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[T],
    result: T | None,
    error: BaseException | None,
) -> None:
    """Hand a thread's result to the loop; a loop that has ended wants it no more."""

    def settle() -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error if _is_common(error) else UncommonRaiseError(error))
        else:
            future.set_result(cast("T", result))

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        return
