"""Time as a dependency.

Nothing below the process's wiring reads the machine's clock: whoever needs time is handed a
`Clock`. Production gives it the system's, tests and the simulator a loop whose time they move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["Clock"]


class Clock(Protocol):
    """What time it is, and how to wait."""

    def now(self) -> datetime:
        """Return the wall clock as an aware UTC instant."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never run backwards; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds of this clock's time."""
        ...
