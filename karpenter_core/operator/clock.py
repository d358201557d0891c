"""The system's clock, and unique ids."""

from __future__ import annotations

import asyncio
import time
import uuid
from datetime import UTC, datetime
from typing import final

__all__ = ["SystemClock", "random_id"]


@final
class SystemClock:
    """The system's wall clock and monotonic clock."""

    __slots__ = ()

    def now(self) -> datetime:
        """Return the wall clock as an aware UTC instant."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never run backwards."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds."""
        await asyncio.sleep(seconds)


def random_id() -> str:
    """Return a random id, as commands and decisions carry it."""
    return str(uuid.uuid4())
