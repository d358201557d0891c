"""Gathers waiting items into batches of one plural hook.

A thousand NodeClaims are launched by a thousand reconciles, but should need only ten calls of a
hundred. Items wait until the batch closes (nothing new for `idle`, or `maximum` has passed, or
`size` is reached), are sent together, and each caller gets its own outcome or typed error.
`open_calls` handles items that are equal, late or no longer wanted.

A hook that is written for one item has no batches: each item is its own call, with at most `width`
calls at a time, and the other items wait. The time limit starts with the call, and a call that
exceeds it no longer counts against `width`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from karpenter_core.provider.host.open_calls import OpenCalls, OpenItem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Sequence

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import BatchLimits
    from karpenter_core.provider.host.timed_calls import TimedCalls

__all__ = ["HookBatcher"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_RESOLUTION_SECONDS: Final = 1e-6
"""Waits shorter than this are over, because clocks are floats."""


@dataclass(slots=True, eq=False)
class _BatchWindow(Generic[Item, Result]):
    """Items that will be sent together."""

    opened: float
    last: float
    entries: list[OpenItem[Item, Result]] = field(default_factory=list["OpenItem[Item, Result]"])
    timer: asyncio.Task[None] | None = None


@final
class HookBatcher(Generic[Item, Result]):
    """Gathers items for one plural hook of one provider."""

    def __init__(
        self,
        call: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        *,
        what: str,
        limits: BatchLimits,
        clock: Clock,
        calls: TimedCalls,
        identity: Callable[[Item], Hashable],
        key: Callable[[Item], Hashable],
        on_late: Callable[[Item, Result | BaseException], None] | None = None,
        width: int | None = None,
    ) -> None:
        """`call` sends the items of one batch, as they are, to the plug-in."""
        self._call: Final = call
        self._calls: Final = OpenCalls[Item, Result](
            what=what, limit=limits.timeout, calls=calls, on_late=on_late
        )
        self._limits: Final = limits
        self._clock: Final = clock
        self._identity: Final = identity
        self._key: Final = key
        self._width: Final = width
        self._queue: Final[deque[OpenItem[Item, Result]]] = deque()
        """Single items that wait for a free call."""
        self._running = 0
        self._windows: Final[dict[Hashable, _BatchWindow[Item, Result]]] = {}

    @property
    def open(self) -> int:
        """Number of items that wait for an outcome."""
        return self._calls.count

    async def add(self, item: Item) -> Result:
        """Wait for this item's outcome.

        Raises:
            KarpenterError: the whole batch failed; CallPendingError when it is only late.
        """
        entry, is_new = self._calls.open(item, self._identity(item))
        if is_new:
            self._enqueue(entry)
        try:
            return await self._calls.wait(entry)
        finally:
            if entry.waiters == 0 and not entry.sent:
                self._withdraw(entry)

    def close(self) -> None:
        """Send nothing more; items that were not sent are dropped."""
        waiting = list(self._queue)
        for window in self._windows.values():
            if window.timer is not None:
                window.timer.cancel()
            waiting += window.entries
        self._windows.clear()
        self._queue.clear()
        self._cancel(waiting)

    def _cancel(self, entries: Sequence[OpenItem[Item, Result]]) -> None:
        """Cancel the callers of items that will not be sent."""
        for entry in entries:
            entry.sent = True  # as far as its waiters need to know
            entry.answer.cancel()
            self._calls.forget(entry)

    def _withdraw(self, entry: OpenItem[Item, Result]) -> None:
        """Remove an item that was not sent and that no caller waits for."""
        if entry in self._queue:
            self._queue.remove(entry)
            self._calls.forget(entry)
            return
        window = self._windows.get(self._key(entry.item))
        if window is not None and entry in window.entries:
            window.entries.remove(entry)
            self._calls.forget(entry)

    def _enqueue(self, entry: OpenItem[Item, Result]) -> None:
        if self._width is not None:
            self._queue.append(entry)
            self._send_singles(self._width)
            return
        key = self._key(entry.item)
        now = self._clock.monotonic()
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _BatchWindow[Item, Result](opened=now, last=now)
            window.timer = self._calls.spawn(self._close_in_time(key, window))
            window.timer.add_done_callback(lambda timer: self._end_timer(timer, key, window))
        window.last = now
        window.entries.append(entry)
        if len(window.entries) >= self._limits.size:
            assert window.timer is not None  # noqa: S101 - set two lines above
            window.timer.cancel()
            self._send(key, window)

    async def _close_in_time(self, key: Hashable, window: _BatchWindow[Item, Result]) -> None:
        idle = self._limits.idle.total_seconds()
        maximum = self._limits.maximum.total_seconds()
        while True:
            deadline = min(window.last + idle, window.opened + maximum)
            remaining_seconds = deadline - self._clock.monotonic()
            if remaining_seconds <= _RESOLUTION_SECONDS:
                break
            await self._clock.sleep(remaining_seconds)
        self._send(key, window)

    def _end_timer(
        self, timer: asyncio.Task[None], key: Hashable, window: _BatchWindow[Item, Result]
    ) -> None:
        if timer.cancelled() and self._windows.get(key) is window:  # not by us
            del self._windows[key]
            self._cancel(window.entries)

    def _send(self, key: Hashable, window: _BatchWindow[Item, Result]) -> None:
        del self._windows[key]
        if window.entries:
            self._start(window.entries)

    def _send_singles(self, width: int) -> None:
        while self._queue and self._running < width:
            entry = self._queue.popleft()
            self._running += 1
            self._start([entry]).add_done_callback(lambda _: self._end_single(width))

    def _start(self, entries: Sequence[OpenItem[Item, Result]]) -> asyncio.Task[None]:
        """Send items together, as one call."""
        return self._calls.start(entries, lambda: self._call([entry.item for entry in entries]))

    def _end_single(self, width: int) -> None:
        self._running -= 1
        self._send_singles(width)
