"""Computes waits after throttled calls: Retry-After, or a growing back-off.

A throttled call was not carried out, so it does not count as a failure of the work itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from karpenter_core.controllers.reconciling.workqueue import ExponentialBackoff
from karpenter_core.errors import ThrottledError, TooManyRequestsError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

__all__ = ["ThrottleWaits", "retry_after_seconds"]

K = TypeVar("K", bound="Hashable")

MIN_WAIT_SECONDS: Final = 0.2
"""The wait if the other side asked for none at all."""
MAX_SPREAD_SECONDS: Final = 30.0
DEFAULT_BACKOFF: Final = ExponentialBackoff(base_seconds=1.0, maximum_seconds=30.0)
"""The waits if the other side throttles and names no time."""


@final
class ThrottleWaits(Generic[K]):
    """Computes waits of throttled keys; counts consecutive throttlings without a time per key."""

    def __init__(self, jitter: Callable[[], float]) -> None:
        """`jitter` is `ControllerRuntime.jitter`."""
        self._jitter: Final = jitter
        self._without_retry_after: Final[dict[K, int]] = {}

    def seconds(self, key: K, error: Exception) -> float | None:
        """Return the seconds until a throttled key is retried; None for any other error.

        The wait is what the other side asked for, or twice the last wait if it named no time, plus a
        random part of up to the same (30 s at most), so that keys that were throttled together are not
        retried together. Any other error resets the key.
        """
        if isinstance(error, ThrottledError) and error.retry_after is None:
            times = self._without_retry_after[key] = self._without_retry_after.get(key, 0) + 1
            return self._spread(DEFAULT_BACKOFF.seconds(times))
        asked = retry_after_seconds(error)
        if asked <= 0 and not isinstance(error, ThrottledError):
            self.forget(key)
            return None
        return self._spread(max(asked, MIN_WAIT_SECONDS))

    def forget(self, key: K) -> None:
        """Reset the count of a key that was not throttled, or is gone."""
        self._without_retry_after.pop(key, None)

    def _spread(self, seconds: float) -> float:
        return seconds + self._jitter() * min(seconds, MAX_SPREAD_SECONDS)


def retry_after_seconds(error: Exception) -> float:
    """Return the seconds that the other side asked to wait; 0 if it named none."""
    if isinstance(error, ThrottledError | TooManyRequestsError) and error.retry_after is not None:
        return error.retry_after.total_seconds()
    return 0.0
