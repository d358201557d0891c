"""Counts consecutive failed passes; too many make the process unready.

A failed pass is tried again, so one failure means little. A controller that fails five times in a row,
or is throttled twenty times in a row, counts as failing: `/readyz` names it, a metric counts, and a
condition and an Event on every NodePool tell users. The first successful pass clears all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.judgements import describe_failure
from karpenter_core.api.notices import Notice

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.controllers.metrics.process_metrics import Metrics
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "FAILING_PASSES",
    "THROTTLED_PASSES",
    "PassHealth",
    "PassStreak",
    "pass_failure_gauge",
    "pool_failure_reporter",
]

FAILING_PASSES: Final = 5
"""Failures in a row after which a controller counts as failing."""
THROTTLED_PASSES: Final = 20
"""Throttled passes in a row after which a controller counts as failing.

At half a minute each, if the cloud names no time, that is about ten minutes without work.
"""


@final
class PassStreak:
    """The number of failed passes in a row of one controller, and the last error."""

    def __init__(self, name: str, health: PassHealth) -> None:
        self.name: Final = name
        self._health: Final = health
        self.failures = 0
        self.error = ""
        self._throttled = 0

    @property
    def problem(self) -> str:
        """The failure as text; empty unless the controller counts as failing."""
        if self.failures < FAILING_PASSES:
            return ""
        return f"{self.name} has failed {self.failures} times in a row: {self.error}"

    def succeeded(self) -> None:
        """Note that a pass succeeded."""
        self._throttled = 0
        if self.failures:
            self.failures, self.error = 0, ""
            self._health.notify(self)

    def failed(self, error: Exception) -> None:
        """Note that a pass failed."""
        self._add(1, error)

    def throttled(self, error: Exception) -> None:
        """Note that a pass was throttled, which counts as a failure after THROTTLED_PASSES."""
        self._throttled += 1
        if self._throttled == THROTTLED_PASSES:
            self._add(THROTTLED_PASSES, error)
        elif self._throttled > THROTTLED_PASSES:
            self._add(1, error)

    def _add(self, failures: int, error: Exception) -> None:
        self.failures += failures
        self.error = describe_failure(error) or type(error).__name__
        self._health.notify(self)


@final
class PassHealth:
    """The streaks of all controllers of a process."""

    def __init__(self) -> None:
        self._streaks: Final[list[PassStreak]] = []
        self._listeners: Final[list[Callable[[PassStreak], None]]] = []

    def streak(self, name: str) -> PassStreak:
        """Return a new streak; several loops of one name have one each."""
        streak = PassStreak(name, self)
        self._streaks.append(streak)
        return streak

    def subscribe(self, listener: Callable[[PassStreak], None]) -> None:
        """Call `listener` with every streak that changes."""
        self._listeners.append(listener)

    def notify(self, streak: PassStreak) -> None:
        """Call the listeners with a streak."""
        for listener in self._listeners:
            listener(streak)

    @property
    def failing(self) -> str:
        """The failing controllers and their errors; empty if there is none.

        Unlike `problem` it has no count, so it does not change while the same error repeats.
        """
        return "; ".join(f"{each.name}: {each.error}" for each in self._streaks if each.problem)

    @property
    def problem(self) -> str | None:
        """The failing controllers, for readiness; None if there is none."""
        return "; ".join(streak.problem for streak in self._streaks if streak.problem) or None


def pass_failure_gauge(metrics: Metrics) -> Callable[[PassStreak], None]:
    """Return a listener that shows streaks in the metric."""

    def show(streak: PassStreak) -> None:
        metrics.pass_failures.labels(controller=streak.name).set(streak.failures)

    return show


def pool_failure_reporter(
    snapshot: Callable[[], Snapshot], publish: Callable[[Notice], None]
) -> Callable[[PassStreak], None]:
    """Return a listener that publishes an Event on every NodePool about a failing controller."""

    def report(streak: PassStreak) -> None:
        if not streak.problem:
            return
        message = f"pass of controller {streak.problem}; it is repeated"
        for pool in snapshot().node_pools.values():
            publish(
                Notice(
                    regarding=pool.ref,
                    type="Warning",
                    reason="PassFailing",
                    message=message,
                    dedupe=(pool.uid, streak.name),
                )
            )

    return report
