"""Holds the time of a simulated cloud, which tests advance without waiting."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CloudTime", "utc_now"]


def utc_now() -> datetime:
    """Return the time of the computer."""
    return datetime.now(UTC)


@final
class CloudTime:
    """The time in the cloud: a clock, plus the time that tests have added."""

    def __init__(self, clock: Callable[[], datetime] = utc_now) -> None:
        self._clock: Final = clock
        self._passed = timedelta()

    def __call__(self) -> datetime:
        """Return the time."""
        return self._clock() + self._passed

    def advance(self, seconds: float) -> None:
        """Advance the time."""
        self._passed += timedelta(seconds=seconds)

    def reset(self) -> None:
        """Remove the added time."""
        self._passed = timedelta()
