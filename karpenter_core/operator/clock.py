"""The system's clock, and unique ids."""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SystemClock", "random_id"]


@final
class SystemClock:
    """The system's wall clock and monotonic clock."""

    __slots__ = ()

    def now(self) -> datetime:
        """Return the wall clock as an aware UTC instant."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never run backwards, and go on while the machine sleeps.

        Where the host was suspended, `time.monotonic` has stood still: a leader that wakes up would take
        its lease for valid.
        """
        return _elapsed_seconds()

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Call a function on the running loop after so many seconds."""
        return asyncio.get_running_loop().call_later(seconds, callback)


def _elapsed_seconds() -> float:
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def random_id() -> str:
    """Return a random id, as commands and decisions carry it."""
    return str(uuid.uuid4())
