"""Waits for a time to pass or for an event, whichever comes first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from karpenter_core.clock import Clock

__all__ = ["wait_for_event"]


async def wait_for_event(clock: Clock, seconds: float, event: asyncio.Event) -> bool:
    """Sleep until the time has passed or the event is set; tell whether it is set."""
    if event.is_set() or seconds <= 0:
        await asyncio.sleep(0)
        return event.is_set()
    loop = asyncio.get_running_loop()
    sleeping = loop.create_task(_sleep(clock, seconds))
    waking = loop.create_task(event.wait())
    try:
        await asyncio.wait({sleeping, waking}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleeping.cancel()
        waking.cancel()
    return event.is_set()


async def _sleep(clock: Clock, seconds: float) -> None:
    await clock.sleep(seconds)
