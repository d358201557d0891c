"""How long to leave alone who throttles: as long as was asked, or ever longer where nothing was said.

What is throttled was not tried, so none of it counts as a failure of the work itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from karpenter_core.controllers.workqueue import Backoff
from karpenter_core.errors import ThrottledError, TooManyRequestsError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

__all__ = ["ThrottleWaits", "retry_after_seconds"]

K = TypeVar("K", bound="Hashable")

LEAST_SECONDS: Final = 0.2
"""For who asks to be left alone for no time at all."""
MOST_SPREAD_SECONDS: Final = 30.0
UNSAID: Final = Backoff(base_seconds=1.0, maximum_seconds=30.0)
"""For who asks to be left alone and does not say how long."""


@final
class ThrottleWaits(Generic[K]):
    """Waits of throttled keys; remembers how often in a row each was throttled without a time."""

    def __init__(self, jitter: Callable[[], float]) -> None:
        """`jitter` is `Runtime.jitter`."""
        self._jitter: Final = jitter
        self._unsaid: Final[dict[K, int]] = {}

    def seconds(self, key: K, error: Exception) -> float | None:
        """Return when to try again what was throttled; None for any other error, which ends the row.

        As long as the other side asked for, or twice as long as the last time where it did not say,
        and up to as long again (30 s at most): what was throttled together would else come back
        together.
        """
        if isinstance(error, ThrottledError) and error.retry_after is None:
            times = self._unsaid[key] = self._unsaid.get(key, 0) + 1
            return self._spread(UNSAID.seconds(times))
        asked = retry_after_seconds(error)
        if asked <= 0 and not isinstance(error, ThrottledError):
            self.forget(key)
            return None
        return self._spread(max(asked, LEAST_SECONDS))

    def forget(self, key: K) -> None:
        """Start the row of a key anew: it was not throttled, or is gone."""
        self._unsaid.pop(key, None)

    def _spread(self, seconds: float) -> float:
        return seconds + self._jitter() * min(seconds, MOST_SPREAD_SECONDS)


def retry_after_seconds(error: Exception) -> float:
    """Return how long the other side asked to be left alone; 0 when it did not say."""
    if isinstance(error, ThrottledError | TooManyRequestsError) and error.retry_after is not None:
        return error.retry_after.total_seconds()
    return 0.0
