"""Logs what blocks the event loop of the process.

A coroutine of a plug-in that makes a blocking call stops watches, probes and the renewal of the lease, for all
providers. The liveness probe restarts the process in the end, but it cannot say why. A thread sees that
the loop does not run, and what it does instead.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Final, final

import structlog

if TYPE_CHECKING:
    from types import TracebackType

    from structlog.typing import FilteringBoundLogger

__all__ = ["LoopWatch"]

BLOCKED_SECONDS: Final = 5.0
"""Far above what a busy loop takes for one callback, and far below the time limit of the lease."""
PERIOD_SECONDS: Final = 1.0
_FRAMES: Final = 6
"""Number of innermost calls that are logged."""


@final
class LoopWatch:
    """Watches the loop that `async with` runs on."""

    def __init__(
        self, *, blocked_seconds: float = BLOCKED_SECONDS, period_seconds: float = PERIOD_SECONDS
    ) -> None:
        self._blocked_seconds: Final = blocked_seconds
        self._period_seconds: Final = period_seconds
        self._ended: Final = threading.Event()
        self._ran_at = 0.0
        self._loop_thread = 0
        self._beat: asyncio.Task[None] | None = None
        self._log: Final[FilteringBoundLogger] = structlog.get_logger("operator")

    async def __aenter__(self) -> None:
        """Start to watch."""
        self._loop_thread, self._ran_at = threading.get_ident(), time.monotonic()
        self._beat = asyncio.create_task(self._run_beat(), name="beat of the event loop")
        threading.Thread(target=self._watch, name="watch of the event loop", daemon=True).start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""
        self._ended.set()
        if self._beat is not None:
            self._beat.cancel()

    async def _run_beat(self) -> None:
        while True:
            self._ran_at = time.monotonic()
            await asyncio.sleep(self._period_seconds)

    def _watch(self) -> None:
        reported_at = 0.0
        while not self._ended.wait(self._period_seconds):
            ran_at = self._ran_at
            seconds = time.monotonic() - ran_at
            if seconds < self._blocked_seconds:
                reported_at = 0.0
            elif reported_at != ran_at:
                reported_at = ran_at
                self._log.error(
                    "the event loop is blocked, nothing else runs until this call returns",
                    seconds=round(seconds, 1),
                    calls=self._calls(),
                )

    def _calls(self) -> list[str]:
        """Return the innermost calls of the loop, the last one first."""
        frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - documented
        frame = frames.get(self._loop_thread)
        stack = traceback.extract_stack(frame, limit=_FRAMES)
        return [f"{each.name} ({each.filename}:{each.lineno})" for each in reversed(stack)]
