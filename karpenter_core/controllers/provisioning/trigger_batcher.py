"""Gathers triggers that arrive together, so that one pass sees all of them.

A window opens with its first trigger and closes after `idle` without a new element, or after
`maximum` in any case (upstream: 1 s and 10 s). An element that triggers again does not keep the
window open. Triggers that arrive while a pass runs belong to the next window, and the time they
have waited already counts. Those that the pass has answered are discarded: they would open the next
window too early, and so close it before the pods of one wave have all arrived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from karpenter_core.controllers.reconciling.wake_signal import WakeSignal
from karpenter_core.controllers.reconciling.workqueue import EARLY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from karpenter_core.clock import Clock

__all__ = ["TriggerBatcher"]


@final
class TriggerBatcher:
    """Collects triggers and returns them in batches; it has one reader."""

    def __init__(self, clock: Clock, *, idle: timedelta, maximum: timedelta) -> None:
        self._clock = clock
        self._idle_seconds = idle.total_seconds()
        self._maximum_seconds = maximum.total_seconds()
        self._arrivals: dict[str, float] = {}
        """By element, in order."""
        self._triggered = WakeSignal()

    def trigger(self, element: str) -> None:
        """Request a pass; `element` identifies the pod or object that needs it."""
        if element in self._arrivals:
            return
        self._arrivals[element] = self._clock.monotonic()
        self._triggered.set()

    def discard(self, is_answered: Callable[[str], bool]) -> None:
        """Forget elements that need no pass any more, and that they have come."""
        self._arrivals = {
            element: at for element, at in self._arrivals.items() if not is_answered(element)
        }

    async def next_batch(self) -> tuple[str, ...]:
        """Wait for a window to open and to close; return its elements in order of arrival."""
        while not self._arrivals:
            self._triggered.clear()
            await self._triggered.wait()
        while (wait := self._closes_in()) > EARLY_SECONDS:
            self._triggered.clear()
            await self._triggered.wait_for(self._clock, wait)
        elements = tuple(self._arrivals)
        self._arrivals.clear()
        return elements

    def _closes_in(self) -> float:
        opened = next(iter(self._arrivals.values()))
        latest = next(reversed(self._arrivals.values()))
        closes = min(latest + self._idle_seconds, opened + self._maximum_seconds)
        return closes - self._clock.monotonic()
