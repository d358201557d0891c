"""An event loop in virtual time: idle time is skipped, not waited for.

When no callback is ready, time jumps to the next timer instead of waiting for it. The same program
runs in the same order everywhere. Threads would break that, so executors run functions inline.
There are no sockets in virtual time.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Executor
    from contextvars import Context

__all__ = ["DeadlockError", "LoopClock", "VirtualTimeLoop", "run_virtual", "until"]

_TICKS: Final = 1_000_000
"""The ticks in a second. Time and timers are whole ticks: asyncio rings a timer up to a
nanosecond early, and a timer that is set again for its remaining time would ring for ever."""
_STILL_TICKS: Final = _TICKS
"""The longest time between two checks of a waiting task while nothing happens."""
_EPOCH: Final = datetime(2030, 1, 1, tzinfo=UTC)
_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class DeadlockError(RuntimeError):
    """Every task waits for another and no timer is set, so the loop would hang."""


class _PolledWait:
    """A wait for a condition: the check, its interval and its time limit."""

    __slots__ = ("answer", "error", "every", "holds", "last", "next")

    def __init__(
        self,
        holds: Callable[[], bool],
        answer: asyncio.Future[bool],
        *,
        ticks: tuple[int, int, int],
    ) -> None:
        """`ticks` are those of now, between two checks, and of the last check."""
        self.holds: Final = holds
        self.answer: Final = answer
        self.error: BaseException | None = None
        now, self.every, self.last = ticks
        self.next = now + self.every

    def poll(self, ticks: int) -> None:
        """Check the condition; resume the waiter if it holds or if this was the last check."""
        self.next = ticks + self.every
        try:
            held = self.holds()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.error = error
            self.answer.set_result(False)
        else:
            if held or ticks >= self.last:
                self.answer.set_result(held)

    def skip_until(self, ticks: int) -> None:
        """Skip the checks before a time."""
        missed = -(-(ticks - self.next) // self.every)
        self.next += self.every * max(0, missed)


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits, but makes the loop advance its time.

    Signals from outside are checked before time advances, not at every turn.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ticks: int = 0
        self.waits: Final[list[_PolledWait]] = []
        self._is_still = False
        """Whether nothing has run since all waiters checked."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0:
            self._is_still = False
            return []
        ready = super().select(0)
        if ready:
            self._is_still = False
            return ready
        if timeout is None and not self.waits:
            raise DeadlockError("nothing is scheduled: every task waits for something else")
        timer = math.inf if timeout is None else self.ticks + max(1, round(timeout * _TICKS))
        if not self._poll_next(timer):
            self.ticks = int(timer)
            self._is_still = False
        return ready

    def _poll_next(self, timer: float) -> bool:
        """Make the next check, if it comes before the next timer.

        While nothing runs, only answers that depend on the clock can change, and these may be
        checked late: time advances to the next timer, or by `_STILL_TICKS`.
        """
        if self._is_still:
            for wait in self.waits:
                wait.skip_until(min(int(min(timer, wait.next + _STILL_TICKS)), wait.last))
        wait = min(self.waits, key=_next_poll, default=None)
        if wait is None or wait.next >= timer:
            return False
        self.ticks = wait.next
        wait.poll(self.ticks)
        self._is_still = len(self.waits) == 1
        return True


def _next_poll(wait: _PolledWait) -> int:
    return wait.next


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio loop in virtual time, starting at `epoch`."""

    def __init__(self, epoch: datetime = _EPOCH) -> None:
        self._jumping: Final = _JumpingSelector()
        self.epoch: Final = epoch
        super().__init__(self._jumping)

    async def until(
        self, holds: Callable[[], bool], *, every_seconds: float, within_seconds: float
    ) -> bool:
        """Wait until a condition holds, checked at regular intervals; tell whether it does.

        Equivalent to a loop of checks and sleeps, without a task and a timer for each check.
        `holds` is called after everything else at its time. While nothing happens, so that only
        the clock could change its answer, it is called once a second.
        """
        if holds():
            return True
        now = self._jumping.ticks
        ticks = (now, max(1, round(every_seconds * _TICKS)), now + round(within_seconds * _TICKS))
        polled_wait = _PolledWait(holds, self.create_future(), ticks=ticks)
        self._jumping.waits.append(polled_wait)
        try:
            held = await polled_wait.answer
        finally:
            self._jumping.waits.remove(polled_wait)
        if polled_wait.error is not None:
            raise polled_wait.error
        return held

    def time(self) -> float:
        """Return the seconds of virtual time that have passed."""
        return self._jumping.ticks / _TICKS

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Set a timer, to the first tick that is not before its time."""
        ticks = math.ceil(when * _TICKS)
        if ticks / _TICKS < when:  # the product was rounded down
            ticks += 1
        return super().call_at(ticks / _TICKS, callback, *args, context=context)

    def run_in_executor(
        self,
        executor: Executor | None,  # noqa: ARG002 - the signature is asyncio's
        func: Callable[[*_Ts], _T],
        *args: *_Ts,
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
        self._last = (self._zero, self._epoch)
        """The loop's time when it was last asked for, and the instant: virtual time stands still."""

    def now(self) -> datetime:
        """Return the epoch plus the loop's time since."""
        time = self._loop.time()
        if self._last[0] != time:
            self._last = (time, self._epoch + timedelta(seconds=time - self._zero))
        return self._last[1]

    def monotonic(self) -> float:
        """Return the loop's time."""
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        """Wait for this many seconds of the loop's time."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Call a function after this many seconds of the loop's time."""
        return self._loop.call_later(seconds, callback)


async def until(holds: Callable[[], bool], *, every_seconds: float, within_seconds: float) -> bool:
    """Wait on the running loop, virtual or real, until a condition holds; tell whether it does."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, VirtualTimeLoop):
        return await loop.until(holds, every_seconds=every_seconds, within_seconds=within_seconds)
    deadline = loop.time() + within_seconds
    while not (held := holds()) and loop.time() < deadline:  # noqa: ASYNC110 - has no event
        await asyncio.sleep(every_seconds)
    return held


def run_virtual(coro: Coroutine[object, None, _T], *, epoch: datetime = _EPOCH) -> _T:
    """Run a coroutine to its end in virtual time.

    Raises:
        DeadlockError: it waits for something that nothing is going to do.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(epoch)) as runner:
        return runner.run(coro)
