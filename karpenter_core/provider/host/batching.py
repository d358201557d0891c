"""Many callers, few calls: gather waiting items into one plural hook call.

A thousand NodeClaims are launched by a thousand reconciles; the cloud wants ten calls of a hundred.
Items wait until the window closes (nothing new for `idle`, or `maximum` passed, or `size` reached),
go out together, and each caller gets its own outcome or typed error.

An item is open from the moment it is added until its outcome is known, however long that takes. The
same item added meanwhile joins it; once the time limit has passed it is told so (CallPendingError)
and not sent again. An outcome that nobody waits for any more goes to `on_late`.

Where the hook is written for one item there is nothing to gather: each item is a call of its own, as
many of them at a time as `width` says, and the others wait for their turn. The time limit begins
with the call, and a call that has passed it gives its turn away.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

import structlog

from karpenter_core.errors import CallPendingError, CloudProviderError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import BatchLimits
    from karpenter_core.provider.host.calls import OpenCalls

__all__ = ["Batcher"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_RESOLUTION_SECONDS: Final = 1e-6
"""Waits shorter than this are over: clocks count in floats."""


@dataclass(slots=True, eq=False)
class _Entry(Generic[Item, Result]):
    """An item that is waiting or open, and who waits for it."""

    item: Item
    identity: Hashable
    answer: asyncio.Future[Result]
    waiters: int = 0
    sent: bool = False
    overdue: bool = False


@dataclass(slots=True, eq=False)
class _Window(Generic[Item, Result]):
    """Items that will go out together."""

    opened: float
    last: float
    entries: list[_Entry[Item, Result]] = field(default_factory=list["_Entry[Item, Result]"])
    timer: asyncio.Task[None] | None = None


@final
class Batcher(Generic[Item, Result]):
    """Gathers items for one plural hook of one provider."""

    def __init__(
        self,
        call: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        *,
        what: str,
        limits: BatchLimits,
        clock: Clock,
        calls: OpenCalls,
        identity: Callable[[Item], Hashable],
        key: Callable[[Item], Hashable],
        on_late: Callable[[Item, Result | BaseException], None] | None = None,
        width: int | None = None,
    ) -> None:
        self._call: Final = call
        self._what: Final = what
        self._limits: Final = limits
        self._clock: Final = clock
        self._calls: Final = calls
        self._identity: Final = identity
        self._key: Final = key
        self._on_late: Final = on_late
        self._width: Final = width
        self._queue: Final[deque[_Entry[Item, Result]]] = deque()
        """Single items that wait for their turn."""
        self._running = 0
        self._windows: Final[dict[Hashable, _Window[Item, Result]]] = {}
        self._open: Final[dict[Hashable, _Entry[Item, Result]]] = {}
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    @property
    def open(self) -> int:
        """How many items wait for an outcome."""
        return len(self._open)

    async def add(self, item: Item) -> Result:
        """Wait for this item's outcome.

        Raises:
            KarpenterError: the whole batch failed; CallPendingError when it is only late.
        """
        identity = self._identity(item)
        entry = self._open.get(identity)
        if entry is None:
            entry = _Entry[Item, Result](item, identity, asyncio.get_running_loop().create_future())
            self._open[identity] = entry
            self._enqueue(entry)
        elif entry.overdue:
            raise CallPendingError(f"{self._what} is still open from an earlier call")
        entry.waiters += 1
        try:
            return await asyncio.shield(entry.answer)
        finally:
            entry.waiters -= 1
            if entry.waiters == 0 and not entry.sent:
                self._withdraw(entry)

    def close(self) -> None:
        """Send nothing more; items that were not sent are as if never added."""
        waiting = list(self._queue)
        for window in self._windows.values():
            if window.timer is not None:
                window.timer.cancel()
            waiting += window.entries
        for entry in waiting:
            entry.sent = True  # as far as its waiters need to know
            entry.answer.cancel()
            del self._open[entry.identity]
        self._windows.clear()
        self._queue.clear()

    def _withdraw(self, entry: _Entry[Item, Result]) -> None:
        """Take back an item that was not sent and that nobody wants any more."""
        if entry in self._queue:
            self._queue.remove(entry)
            del self._open[entry.identity]
            return
        window = self._windows.get(self._key(entry.item))
        if window is not None and entry in window.entries:
            window.entries.remove(entry)
            del self._open[entry.identity]

    def _enqueue(self, entry: _Entry[Item, Result]) -> None:
        if self._width is not None:
            self._queue.append(entry)
            self._send_singles(self._width)
            return
        key = self._key(entry.item)
        now = self._clock.monotonic()
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window[Item, Result](opened=now, last=now)
            window.timer = self._spawn(self._close_in_time(key, window))
        window.last = now
        window.entries.append(entry)
        if len(window.entries) >= self._limits.size:
            assert window.timer is not None  # noqa: S101 - set two lines above
            window.timer.cancel()
            self._send(key, window)

    async def _close_in_time(self, key: Hashable, window: _Window[Item, Result]) -> None:
        idle = self._limits.idle.total_seconds()
        maximum = self._limits.maximum.total_seconds()
        while True:
            deadline = min(window.last + idle, window.opened + maximum)
            left = deadline - self._clock.monotonic()
            if left <= _RESOLUTION_SECONDS:
                break
            await self._clock.sleep(left)
        self._send(key, window)

    def _send(self, key: Hashable, window: _Window[Item, Result]) -> None:
        del self._windows[key]
        for entry in window.entries:
            entry.sent = True
        if window.entries:
            self._spawn(self._run(window.entries))

    def _send_singles(self, width: int) -> None:
        while self._queue and self._running < width:
            entry = self._queue.popleft()
            entry.sent = True
            self._running += 1
            self._spawn(self._run_single(entry, width))

    async def _run_single(self, entry: _Entry[Item, Result], width: int) -> None:
        try:
            await self._run([entry])
        finally:
            self._running -= 1
            self._send_singles(width)

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(self, entries: list[_Entry[Item, Result]]) -> None:
        def late(task: asyncio.Future[Sequence[Result]]) -> None:
            if task.cancelled():
                self._fail(entries, CloudProviderError(f"{self._what} was cancelled"))
            elif (error := task.exception()) is not None:
                self._fail(entries, error)
            else:
                self._finish(entries, task.result())

        try:
            outcomes = await self._calls.run(
                tuple(entry.identity for entry in entries),
                self._call([entry.item for entry in entries]),
                limit=self._limits.timeout,
                what=self._what,
                on_late=late,
            )
        except CallPendingError as error:
            for entry in entries:
                entry.overdue = True
                _refuse(entry, error)
        except Exception as error:  # whatever it was, nobody may wait for ever
            self._fail(entries, error)
        else:
            self._finish(entries, outcomes)

    def _finish(self, entries: Sequence[_Entry[Item, Result]], outcomes: Sequence[Result]) -> None:
        for entry, outcome in zip(entries, outcomes, strict=True):
            wanted = entry.waiters > 0 and not entry.answer.done()
            del self._open[entry.identity]
            if not entry.answer.done():
                entry.answer.set_result(outcome)
            if not wanted:
                self._hand_on(entry.item, outcome)

    def _fail(self, entries: Sequence[_Entry[Item, Result]], error: BaseException) -> None:
        """Give every item the same error."""
        for entry in entries:
            wanted = entry.waiters > 0 and not entry.answer.done()
            del self._open[entry.identity]
            _refuse(entry, error)
            if not wanted:
                self._hand_on(entry.item, error)

    def _hand_on(self, item: Item, outcome: Result | BaseException) -> None:
        """Give an outcome to who keeps account; what goes wrong there concerns this item alone."""
        if self._on_late is None:
            return
        try:
            self._on_late(item, outcome)
        except Exception:
            structlog.get_logger("provider").exception("a late outcome got lost", call=self._what)


def _refuse(entry: _Entry[Item, Result], error: BaseException) -> None:
    if entry.answer.done():
        return
    entry.answer.set_exception(error)
    entry.answer.exception()  # nobody may be waiting, which is fine
