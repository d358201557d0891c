"""Waits for a time to pass or for an event, whichever comes first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from karpenter_core.clock import Clock

__all__ = ["wait_or_woken"]


async def wait_or_woken(clock: Clock, seconds: float, woken: asyncio.Event) -> bool:
    """Sleep, or less long when the event is set; say whether it was."""
    if woken.is_set() or seconds <= 0:
        await asyncio.sleep(0)
        return woken.is_set()
    loop = asyncio.get_running_loop()
    sleeping = loop.create_task(_sleep(clock, seconds))
    waking = loop.create_task(woken.wait())
    try:
        await asyncio.wait({sleeping, waking}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleeping.cancel()
        waking.cancel()
    return woken.is_set()


async def _sleep(clock: Clock, seconds: float) -> None:
    await clock.sleep(seconds)
