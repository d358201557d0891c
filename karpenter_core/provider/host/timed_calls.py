"""Limits the wait for a provider's call, and counts overdue calls.

A time limit ends the waiting, never the call: a thread inside an SDK cannot be stopped, and what it
was asked to do may still happen. So a call that is overdue is counted until it ends, and what it
returns in the end goes to `on_late`. `open_calls` sees to it that the same call is not made again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar, final

from karpenter_core.errors import CallPendingError, CloudProviderError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import timedelta

    from karpenter_core.clock import Clock

__all__ = ["TimedCalls"]

T = TypeVar("T")


@final
class TimedCalls:
    """The calls to one provider that run now, and how many of them are overdue."""

    def __init__(self, clock: Clock, *, on_change: Callable[[int], None]) -> None:
        self._clock: Final = clock
        self._on_change: Final = on_change
        self._running: Final[set[object]] = set()
        self._overdue: Final[set[object]] = set()

    @property
    def overdue(self) -> int:
        """Number of open calls past their time limit."""
        return len(self._overdue)

    async def run(
        self,
        call: Awaitable[T],
        *,
        limit: timedelta,
        what: str,
        on_late: Callable[[asyncio.Future[T]], None] | None = None,
    ) -> T:
        """Wait for a call, at most as long as the limit.

        `on_late` gets the finished call when no caller waits for it any more: because the limit passed
        or because the waiting was cancelled.

        Raises:
            CallPendingError: the limit passed; the call goes on.
            CloudProviderError: the call cancelled itself.
        """
        task: asyncio.Future[T] = asyncio.ensure_future(call)
        self._running.add(task)

        def close(finished: asyncio.Future[T]) -> None:
            self._running.discard(finished)
            if finished in self._overdue:
                self._overdue.discard(finished)
                self._on_change(len(self._overdue))

        def finish_late(finished: asyncio.Future[T]) -> None:
            if not finished.cancelled():
                finished.exception()  # looked at, so that asyncio does not complain
            if on_late is not None:
                on_late(finished)

        task.add_done_callback(close)
        alarm = asyncio.ensure_future(self._clock.sleep(limit.total_seconds()))
        try:
            await asyncio.wait({task, alarm}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.add_done_callback(finish_late)
            raise
        finally:
            alarm.cancel()
        if task.cancelled():  # from within: its caller is not cancelled, and must hear of it
            raise CloudProviderError(f"{what} was cancelled")
        if task.done():
            return task.result()
        self._overdue.add(task)
        self._on_change(len(self._overdue))
        task.add_done_callback(finish_late)
        raise CallPendingError(f"{what} has not answered within {limit.total_seconds():g}s")
