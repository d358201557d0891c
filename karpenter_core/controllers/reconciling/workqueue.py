"""Queues keys to reconcile: never one twice at a time, failures with back-off.

It queues keys instead of events because a hundred events about one object need one reconcile. A key
that is added while it is reconciled is reconciled once more afterwards, so that no change is missed.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Hashable

    from karpenter_core.clock import Clock

__all__ = ["EARLY_SECONDS", "ExponentialBackoff", "WorkQueue"]

K = TypeVar("K", bound="Hashable")

EARLY_SECONDS: Final = 1e-6
"""Timers may fire this much too early: a key that is due so soon counts as due."""
_NO_EXPONENT_BEYOND: Final = 32
_STALE_SHARE: Final = 2
_LEAST_TIMERS: Final = 64
"""Number of timers below which stale ones are not removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialBackoff:
    """The wait after the n-th failure in a row: it doubles up to a maximum."""

    base_seconds: float = 0.2
    maximum_seconds: float = 60.0

    def seconds(self, failures: int) -> float:
        """Return the wait after so many failures in a row (one or more)."""
        exponent = min(failures - 1, _NO_EXPONENT_BEYOND)
        return min(self.base_seconds * 2.0**exponent, self.maximum_seconds)


@final
class WorkQueue(Generic[K]):
    """Keys in the order they became due; deterministic, and bounded by the number of keys."""

    __slots__ = (
        "_added_meanwhile",
        "_available",
        "_backoff",
        "_clock",
        "_due",
        "_failures",
        "_heap",
        "_ready",
        "_ready_keys",
        "_sequence",
        "_timer",
        "_timer_due",
        "_working",
    )

    def __init__(self, clock: Clock, *, backoff: ExponentialBackoff | None) -> None:
        self._clock = clock
        self._backoff = backoff if backoff is not None else ExponentialBackoff()
        self._ready: deque[K] = deque()
        self._ready_keys: set[K] = set()
        self._working: set[K] = set()
        self._added_meanwhile: set[K] = set()
        self._failures: dict[K, int] = {}
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0
        self._timer: asyncio.Task[None] | None = None
        self._timer_due = 0.0
        self._available = asyncio.Event()

    def __len__(self) -> int:
        """Count the keys that are due now."""
        return len(self._ready)

    @property
    def waiting(self) -> int:
        """Count the keys that are due later."""
        return len(self._due)

    def add(self, key: K) -> None:
        """Make a key due now, unless it is already."""
        self._due.pop(key, None)
        if key in self._working:
            self._added_meanwhile.add(key)
        elif key not in self._ready_keys:
            self._ready_keys.add(key)
            self._ready.append(key)
            self._available.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Make a key due after some seconds; of several calls the earliest time counts."""
        if seconds <= 0:
            self.add(key)
            return
        due = self._clock.monotonic() + seconds
        earlier = self._due.get(key)
        if key in self._ready_keys or (earlier is not None and earlier <= due):
            return
        self._due[key] = due
        self._sequence += 1
        heapq.heappush(self._heap, (due, self._sequence, key))
        self._remove_stale_timers()
        if self._timer is None or due < self._timer_due:
            self._set_timer()

    def add_failed(self, key: K, *, at_least_seconds: float = 0.0) -> float:
        """Make a key due after its back-off and return how long that is."""
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        seconds = max(self._backoff.seconds(failures), at_least_seconds)
        self.add_after(key, seconds)
        return seconds

    def forget(self, key: K) -> None:
        """Reset the back-off of a key that succeeded."""
        self._failures.pop(key, None)

    async def take(self) -> K:
        """Wait for a due key and mark it as in work; call `done` afterwards."""
        while not self._ready:
            self._available.clear()
            await self._available.wait()
        key = self._ready.popleft()
        self._ready_keys.discard(key)
        self._due.pop(key, None)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """End the work on a key; it becomes due again if it was added meanwhile."""
        self._working.discard(key)
        if key in self._added_meanwhile:
            self._added_meanwhile.discard(key)
            self.add(key)

    def close(self) -> None:
        """Stop the timer; keys that are due later stay where they are."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _remove_stale_timers(self) -> None:
        """Remove the timers of keys that became due earlier, once they are the larger part.

        They would stay until their time comes: that of an expiring claim is a month away, and each of
        its reconciles sets one.
        """
        if len(self._heap) <= max(_STALE_SHARE * len(self._due), _LEAST_TIMERS):
            return
        latest_first = sorted(self._heap, key=lambda entry: entry[1], reverse=True)
        fresh = {entry[2]: entry for entry in latest_first if self._due.get(entry[2]) == entry[0]}
        self._heap = list(fresh.values())
        heapq.heapify(self._heap)

    def _set_timer(self) -> None:
        self.close()
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if self._heap:
            self._timer_due = self._heap[0][0]
            self._timer = asyncio.get_running_loop().create_task(self._release_due(self._timer_due))

    async def _release_due(self, due: float) -> None:
        await self._clock.sleep(max(due - self._clock.monotonic(), 0.0))
        now = self._clock.monotonic() + EARLY_SECONDS
        while self._heap and self._heap[0][0] <= now:
            at, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == at:
                self.add(key)
        self._timer = None
        self._set_timer()
