"""Provides time as a dependency.

Only the wiring of the process reads the system clock; all other code gets a `Clock`. Production
passes the system clock, tests and the simulator a clock that they control.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    from asyncio import TimerHandle
    from collections.abc import Callable
    from datetime import datetime

__all__ = ["Clock", "SteadyClock"]


class Clock(Protocol):
    """Provides the current time, and waits."""

    def now(self) -> datetime:
        """Return the time as an aware UTC datetime; it jumps when the clock is set."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never decrease; only differences are meaningful."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for this many seconds of this clock's time."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> TimerHandle:
        """Call a function on the running loop after this many seconds of this clock's time."""
        ...


@final
class SteadyClock:
    """Times for measuring ages that do not change when a clock's `now` is set.

    They start at `now` and advance with the monotonic clock. Only times of one steady clock can be
    compared with each other; times that others wrote are compared with `now`.
    """

    __slots__ = ("_clock", "_epoch", "_zero")

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._epoch: Final = clock.now()
        self._zero: Final = clock.monotonic()

    def now(self) -> datetime:
        """Return a time that never decreases and never jumps."""
        return self._epoch + timedelta(seconds=self._clock.monotonic() - self._zero)
