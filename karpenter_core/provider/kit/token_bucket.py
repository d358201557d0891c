"""Limits requests to a cloud's rate from any thread; sleeps under no lock."""

from __future__ import annotations

import threading
from math import inf
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TokenBucket"]


@final
class TokenBucket:
    """Holds at most `burst` tokens, refilled at `rate_per_second`; each request takes some.

    `monotonic` returns seconds that never decrease (`context.clock.monotonic`).
    """

    def __init__(
        self, *, rate_per_second: float, burst: float, monotonic: Callable[[], float]
    ) -> None:
        if rate_per_second <= 0 or burst <= 0:
            message = f"rate ({rate_per_second}) and burst ({burst}) must be positive"
            raise ValueError(message)
        self._rate: Final = rate_per_second
        self._burst: Final = burst
        self._monotonic: Final = monotonic
        self._lock: Final = threading.Lock()
        self._tokens = burst
        self._filled = monotonic()

    def reserve(self, count: float = 1, *, longest_seconds: float = inf) -> float:
        """Take tokens and return the seconds to wait before using them.

        Callers are served in the order of their calls: the count of tokens may become negative. Nothing
        is taken if the wait would be longer than `longest_seconds`.

        Raises:
            ValueError: more tokens than the bucket can hold.
        """
        if count > self._burst:
            message = f"{count} tokens requested from a bucket that holds {self._burst}"
            raise ValueError(message)
        with self._lock:
            self._refill()
            wait_seconds = max(0.0, (count - self._tokens) / self._rate)
            if wait_seconds <= longest_seconds:
                self._tokens -= count
            return wait_seconds

    def try_take(self, count: float = 1) -> bool:
        """Take tokens if they are available now."""
        with self._lock:
            self._refill()
            if self._tokens < count:
                return False
            self._tokens -= count
            return True

    def _refill(self) -> None:
        now = self._monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
