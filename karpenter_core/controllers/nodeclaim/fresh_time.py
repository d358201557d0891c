"""Measures how long the state has been fresh without a gap.

While the API server does not answer, kubelets cannot register their Nodes and nothing is launched. The
time limits of claims pass all the same, and would be over for all of them at once when it answers again.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from karpenter_core.clock import Clock
    from karpenter_core.controllers.reconciling.freshness import FreshnessConsumer, FreshnessGuard

__all__ = ["FreshTime"]


@final
class FreshTime:
    """The time since the kinds of a consumer became fresh, or since the consumer began its work."""

    __slots__ = ("_clock", "_since")

    def __init__(
        self, clock: Clock, freshness: FreshnessGuard, consumer: FreshnessConsumer
    ) -> None:
        self._clock: Final = clock
        self._since = clock.monotonic()
        freshness.subscribe(consumer, self.restart)

    def restart(self) -> None:
        """Count from now on."""
        self._since = self._clock.monotonic()

    def elapsed(self) -> timedelta:
        """Return the time, by the monotonic clock."""
        return timedelta(seconds=self._clock.monotonic() - self._since)
