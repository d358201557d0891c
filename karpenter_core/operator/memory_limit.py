"""Returns freed memory to the system every minute and near `--memory-limit`.

What the C library has in small free pieces between used ones it keeps for good: after each large plan
or list a process would be larger than before, although it holds no more. So these pages are returned
every minute, which takes about a millisecond.

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
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast, final

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock

__all__ = ["MemoryLimit", "resident_bytes", "return_memory", "return_memory_regularly"]

SOFT_SHARE: Final = 0.9  # upstream's share
PERIOD_SECONDS: Final = 10.0
RETURN_SECONDS: Final = 60.0
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


def return_memory() -> bool:
    """Have the C library return freed memory to the system; False where it cannot be asked to."""
    trim = _trim()
    if trim is None:
        return False
    trim(0)
    return True


@cache
def _trim() -> Callable[[int], int] | None:
    """Return glibc's function; another C library returns memory by itself, or never."""
    try:
        return cast("Callable[[int], int]", ctypes.CDLL(None).malloc_trim)
    except (OSError, AttributeError, TypeError):
        return None


async def return_memory_regularly(
    clock: Clock, *, returns: Callable[[], bool] = return_memory
) -> None:
    """Return freed memory every minute, until cancelled or until it turns out that nothing can be."""
    is_possible = True
    while is_possible:
        await clock.sleep(RETURN_SECONDS)
        is_possible = await asyncio.to_thread(returns)


@final
class MemoryLimit:
    """The task that watches resident memory."""

    def __init__(
        self,
        limit_bytes: int,
        *,
        clock: Clock,
        resident: Callable[[], int] = resident_bytes,
        trim: Callable[[], object] = return_memory,
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
