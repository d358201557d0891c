"""Back-off with full jitter, and time limits on a Clock."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from karpenter_core.clock import Clock

__all__ = ["JitteredBackoff", "cancel_when_raised", "time_limit"]


class JitteredBackoff:
    """Waits that double from `base` to `cap` seconds, each drawn between nothing and that."""

    __slots__ = ("_base", "_cap", "_failures", "_jitter")

    def __init__(self, jitter: Callable[[], float], *, base: float, cap: float) -> None:
        self._jitter: Final = jitter
        self._base: Final = base
        self._cap: Final = cap
        self._failures = 0

    def next_delay(self) -> float:
        """Draw the next wait, in seconds."""
        ceiling = min(self._cap, self._base * 2 ** min(self._failures, 30))
        self._failures += 1
        return ceiling * self._jitter()

    def reset(self) -> None:
        """Start over after things went well."""
        self._failures = 0


@asynccontextmanager
async def time_limit(clock: Clock, seconds: float) -> AsyncGenerator[None]:
    """Cancel the block with TimeoutError after so many seconds of this clock's time."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:

        async def expire() -> None:
            await clock.sleep(seconds)
            limit.reschedule(loop.time())

        timer = asyncio.ensure_future(expire())
        try:
            yield
        finally:
            timer.cancel()


@asynccontextmanager
async def cancel_when_raised(check: Callable[[], Awaitable[None]]) -> AsyncGenerator[None]:
    """Run `check` beside the block; an error of `check` cancels the block and is raised."""
    loop = asyncio.get_running_loop()
    raised: list[Exception] = []
    try:
        async with asyncio.timeout(None) as limit:

            async def watch() -> None:
                try:
                    await check()
                except Exception as error:
                    raised.append(error)
                    limit.reschedule(loop.time())

            watching = asyncio.ensure_future(watch())
            try:
                yield
            finally:
                watching.cancel()
    except TimeoutError:
        if raised:
            raise raised[0] from None
        raise
