"""Time as a dependency.

Nothing below the process's wiring reads the machine's clock: whoever needs time is handed a
`Clock`. Production gives it the system's, tests and the simulator a loop whose time they move.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["Clock", "SteadyClock"]


class Clock(Protocol):
    """Provides the current time, and waits."""

    def now(self) -> datetime:
        """Return the wall clock as an aware UTC instant."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never run backwards; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds of this clock's time."""
        ...


@final
class SteadyClock:
    """Instants that say how long ago something was, whatever happens to the wall clock.

    They begin with the wall clock and go on with the monotonic one. Only those of one steady clock
    are comparable; what others wrote down is compared with the wall clock.
    """

    __slots__ = ("_clock", "_epoch", "_zero")

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._epoch: Final = clock.now()
        self._zero: Final = clock.monotonic()

    def now(self) -> datetime:
        """Return an instant that never goes backwards and never jumps."""
        return self._epoch + timedelta(seconds=self._clock.monotonic() - self._zero)
