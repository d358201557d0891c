"""Calls that may take longer than anybody wants to wait.

A time limit ends the waiting, never the call: a thread inside an SDK cannot be stopped, and what it
was asked to do may still happen. So a call that is overdue stays on the books under its key, the
same thing is not asked again while it is open, and what it returns in the end is handed to whoever
keeps account of late results.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar, final

from karpenter_core.errors import CallPendingError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable
    from datetime import timedelta

    from karpenter_core.clock import Clock

__all__ = ["OpenCalls"]

T = TypeVar("T")


@final
class OpenCalls:
    """The calls to one provider that run now, and how many of them are overdue."""

    def __init__(self, clock: Clock, *, on_change: Callable[[int], None]) -> None:
        self._clock: Final = clock
        self._on_change: Final = on_change
        self._running: Final[set[object]] = set()
        self._overdue: Final[dict[object, Hashable]] = {}

    @property
    def overdue(self) -> int:
        """How many calls have passed their limit and are still open."""
        return len(self._overdue)

    def is_overdue(self, key: Hashable) -> bool:
        """Whether a call under this key has passed its limit and is still open."""
        return key in self._overdue.values()

    async def run(
        self,
        key: Hashable,
        call: Awaitable[T],
        *,
        limit: timedelta,
        what: str,
        on_late: Callable[[asyncio.Future[T]], None] | None = None,
    ) -> T:
        """Wait for a call, at most as long as the limit.

        `on_late` gets the finished call when nobody waits for it any more: because the limit passed
        or because the waiting was cancelled.

        Raises:
            CallPendingError: the limit passed; the call goes on.
        """
        task: asyncio.Future[T] = asyncio.ensure_future(call)
        self._running.add(task)

        def close(finished: asyncio.Future[T]) -> None:
            self._running.discard(finished)
            if self._overdue.pop(finished, None) is not None:
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
        if task.done():
            return task.result()
        self._overdue[task] = key
        self._on_change(len(self._overdue))
        task.add_done_callback(finish_late)
        raise CallPendingError(f"{what} has not answered within {limit.total_seconds():g}s")
