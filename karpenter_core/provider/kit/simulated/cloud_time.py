"""Holds the time of a simulated cloud, which tests advance without waiting."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CloudTime", "utc_now"]


def utc_now() -> datetime:
    """Return the time of the machine."""
    return datetime.now(UTC)


@final
class CloudTime:
    """The time in the cloud: that of a clock, and what was let pass besides."""

    def __init__(self, clock: Callable[[], datetime] = utc_now) -> None:
        self._clock: Final = clock
        self._passed = timedelta()

    def __call__(self) -> datetime:
        """Return the time."""
        return self._clock() + self._passed

    def advance(self, seconds: float) -> None:
        """Let time pass at once."""
        self._passed += timedelta(seconds=seconds)

    def reset(self) -> None:
        """Go by the clock again."""
        self._passed = timedelta()
