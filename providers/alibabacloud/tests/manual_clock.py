"""A clock that tests move by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class HandClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.passed = timedelta()

    def now(self) -> datetime:
        return NOON + self.passed

    def monotonic(self) -> float:
        return 1000.0 + self.passed.total_seconds()

    async def sleep(self, seconds: float) -> None:
        self.forward(seconds=seconds)

    def forward(self, **amount: float) -> None:
        self.passed += timedelta(**amount)
