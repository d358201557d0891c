"""Gathers triggers that arrive together, so that one pass sees all of them.

A window opens with its first trigger and closes after `idle` without a new element, or after
`maximum` in any case (upstream: 1 s and 10 s). An element that triggers again does not keep the
window open. Triggers that arrive while a pass runs belong to the next window, and the time they
have waited already counts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

from karpenter_core.controllers.reconciling.timed_wait import wait_for_event
from karpenter_core.controllers.reconciling.workqueue import EARLY_SECONDS

if TYPE_CHECKING:
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
        self._elements: dict[str, None] = {}
        self._opened = 0.0
        self._latest = 0.0
        self._triggered = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether triggers wait for the next pass."""
        return bool(self._elements)

    def trigger(self, element: str) -> None:
        """Request a pass; `element` identifies the pod or object that needs it."""
        if element in self._elements:
            return
        now = self._clock.monotonic()
        if not self._elements:
            self._opened = now
        self._latest = now
        self._elements[element] = None
        self._triggered.set()

    async def next_batch(self) -> tuple[str, ...]:
        """Wait for a window to open and to close; return its elements in order of arrival."""
        while not self._elements:
            self._triggered.clear()
            await self._triggered.wait()
        while (wait := self._closes_in()) > EARLY_SECONDS:
            self._triggered.clear()
            await wait_for_event(self._clock, wait, self._triggered)
        elements = tuple(self._elements)
        self._elements.clear()
        return elements

    def _closes_in(self) -> float:
        closes = min(self._latest + self._idle_seconds, self._opened + self._maximum_seconds)
        return closes - self._clock.monotonic()
