"""Frees unused memory before the process reaches `--memory-limit`.

Karpenter passes the limit to Go's collector, which works harder above 90 % of it. Python has no such
setting, so this task returns freed memory to the system above 90 %, and runs a full collection if that
is not enough. A process that really needs more memory is still killed by the kernel at the limit; a
warning is logged before.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock

__all__ = ["MemoryLimit", "resident_bytes", "return_memory"]

SOFT_SHARE: Final = 0.9  # upstream's share
PERIOD_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 600.0
"""Pause after a collection: it stops the whole process, for a second or more in a large cluster."""
_STATM: Final = Path("/proc/self/statm")


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 where the system does not tell."""
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def return_memory() -> None:
    """Have the C library return freed memory to the system, where it can."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return  # another C library returns memory by itself


@final
class MemoryLimit:
    """The task that watches resident memory."""

    def __init__(
        self,
        limit_bytes: int,
        *,
        clock: Clock,
        resident: Callable[[], int] = resident_bytes,
        trim: Callable[[], None] = return_memory,
        collect: Callable[[], int] = gc.collect,
    ) -> None:
        self._soft_bytes = int(limit_bytes * SOFT_SHARE)
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._resident = resident
        self._trim = trim
        self._collect = collect
        self._log: FilteringBoundLogger = structlog.get_logger("memory")

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._clock.sleep(await self.check())

    async def check(self) -> float:
        """Free memory if too much is in use; return the seconds until the next check."""
        if self._resident() <= self._soft_bytes:
            return PERIOD_SECONDS
        await asyncio.to_thread(self._trim)
        if self._resident() <= self._soft_bytes:
            return PERIOD_SECONDS
        self._collect()
        await asyncio.to_thread(self._trim)
        resident = self._resident()
        if resident > self._soft_bytes:
            self._log.warning(
                "memory is close to --memory-limit, and none of it can be freed: raise the limit",
                resident_bytes=resident,
                limit_bytes=self._limit_bytes,
            )
        return PAUSE_SECONDS
