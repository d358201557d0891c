"""Wakes a task that waits for a time or for an event, whichever is first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from karpenter_core.clock import Clock

__all__ = ["WakeSignal"]


@final
class WakeSignal:
    """An event that one task at a time waits for, with or without a time limit.

    Idle controllers hardly do anything but wait: a wait is one future and one timer, where an
    `asyncio.Event` and a sleep would be two tasks.
    """

    __slots__ = ("_is_set", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the task that waits; until `clear`, no task waits."""
        self._is_set = True
        self._release()

    def clear(self) -> None:
        """Let tasks wait again."""
        self._is_set = False

    async def wait(self) -> None:
        """Wait until the signal is set."""
        if not self._is_set:
            await self._wait()

    async def wait_for(self, clock: Clock, seconds: float) -> bool:
        """Wait until the time has passed or the signal is set; tell whether it is set."""
        if self._is_set or seconds <= 0:
            await asyncio.sleep(0)
            return self._is_set
        timer = clock.call_later(seconds, self._release)
        try:
            await self._wait()
        finally:
            timer.cancel()
        return self._is_set

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _release(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
