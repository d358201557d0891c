"""An event loop whose time is a number: a simulated day passes as soon as nothing is left to do.

When no callback is ready, time jumps to the next timer instead of waiting for it. Same program,
same order, on any machine. Threads would break that, so what is sent to an executor runs inline.
There are no sockets in virtual time.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

__all__ = ["DeadlockError", "LoopClock", "VirtualTimeLoop", "run_virtual"]

_TICKS: Final = 1_000_000
"""How many there are in a second. Time and timers are whole ticks: asyncio rings a timer up to a
nanosecond early, and what is set again for the rest of its time would ring for ever."""
_EPOCH: Final = datetime(2030, 1, 1, tzinfo=UTC)
_T = TypeVar("_T")


class DeadlockError(RuntimeError):
    """Every task waits for another and no timer is set: nothing will ever happen again."""


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits: tells the loop to move its time instead."""

    ticks: int = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise DeadlockError("nothing is scheduled: every task waits for something else")
        self.ticks += max(1, round(timeout * _TICKS))
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio loop in virtual time, starting at `epoch`."""

    def __init__(self, epoch: datetime = _EPOCH) -> None:
        self._jumping: Final = _JumpingSelector()
        self.epoch: Final = epoch
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the seconds of virtual time that have passed."""
        return self._jumping.ticks / _TICKS

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Set a timer, to the first tick that is not before its time."""
        ticks = math.ceil(when * _TICKS)
        if ticks / _TICKS < when:  # the product was rounded down
            ticks += 1
        return super().call_at(ticks / _TICKS, callback, *args, context=context)

    def run_in_executor(
        self,
        executor: Any,  # noqa: ARG002 - the signature is asyncio's
        func: Callable[..., _T],
        *args: Any,
    ) -> asyncio.Future[_T]:
        """Run the function at once, in this thread: threads have no virtual time."""
        future: asyncio.Future[_T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class LoopClock:
    """`clock.Clock` over the running loop, virtual or real."""

    def __init__(self, epoch: datetime | None = None) -> None:
        """Take the loop's own epoch unless given one; a real loop's epoch is now."""
        self._loop: Final = asyncio.get_running_loop()
        if epoch is None and isinstance(self._loop, VirtualTimeLoop):
            self._zero, self._epoch = 0.0, self._loop.epoch
        else:
            self._zero, self._epoch = self._loop.time(), epoch or datetime.now(UTC)

    def now(self) -> datetime:
        """Return the epoch plus the loop's time since."""
        return self._epoch + timedelta(seconds=self._loop.time() - self._zero)

    def monotonic(self) -> float:
        """Return the loop's time."""
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds of the loop's time."""
        await asyncio.sleep(seconds)


def run_virtual(coro: Coroutine[Any, Any, _T], *, epoch: datetime = _EPOCH) -> _T:
    """Run a coroutine to its end in virtual time.

    Raises:
        DeadlockError: it waits for something that nothing is going to do.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(epoch)) as runner:
        return runner.run(coro)
