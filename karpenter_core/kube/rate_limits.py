"""Token bucket over a Clock: spreads bursts of calls to the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from karpenter_core.clock import Clock

__all__ = ["CLIENT_BURST", "CLIENT_QPS", "AsyncTokenBucket", "RequestLimiter"]

CLIENT_QPS: Final = 200.0  # upstream default of --kube-client-qps
CLIENT_BURST: Final = 300  # upstream default of --kube-client-burst


class RequestLimiter(Protocol):
    """A limiter that delays requests."""

    async def acquire(self) -> None:
        """Wait for a turn."""
        ...


class AsyncTokenBucket:
    """Lets `burst` through at once and `rate` a second after that, first come first served."""

    __slots__ = ("_burst", "_clock", "_rate", "_tokens", "_updated")

    def __init__(self, clock: Clock, *, rate: float, burst: int) -> None:
        if rate <= 0 or burst < 1:
            message = f"a token bucket needs rate > 0 and burst >= 1, not {rate} and {burst}"
            raise ValueError(message)
        self._clock: Final = clock
        self._rate: Final = rate
        self._burst: Final = burst
        self._tokens = float(burst)
        self._updated = clock.monotonic()

    def try_take(self) -> bool:
        """Take a token if one is there."""
        self._refill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    async def acquire(self) -> None:
        """Wait for a token; the wait is fixed on arrival, so callers keep their order."""
        self._refill()
        self._tokens -= 1
        if self._tokens >= 0:
            return
        try:
            await self._clock.sleep(-self._tokens / self._rate)
        except BaseException:
            self._tokens += 1  # the one who gave up leaves its place to others
            raise

    def _refill(self) -> None:
        now = self._clock.monotonic()
        gained = max(0.0, now - self._updated) * self._rate
        self._tokens = min(float(self._burst), self._tokens + gained)
        self._updated = now
