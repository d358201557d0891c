"""Counts the passes of each controller that fail in a row; many of them make the process unready.

A pass that fails is tried again, so one failure says little. What fails five times in a row stands
still, and so does what is throttled twenty times in a row: `/readyz` names it, a metric counts, and a condition and an Event of every NodePool tell users. All of
it is taken back by the first pass that succeeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.judgements import describe_failure
from karpenter_core.api.notices import Notice

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.controllers.apply import Hands
    from karpenter_core.controllers.metrics import Metrics

__all__ = [
    "FAILING_PASSES",
    "THROTTLED_PASSES",
    "PassHealth",
    "PassStreak",
    "gauge_setter",
    "pool_teller",
]

FAILING_PASSES: Final = 5
"""So many failures in a row are no accident."""
THROTTLED_PASSES: Final = 20
"""So many throttled passes without a success in between are no passing shortage of calls.

At half a minute each where the cloud names no time, that is about ten minutes without work done.
"""


@final
class PassStreak:
    """How many passes of one controller have failed in a row, and the last error."""

    def __init__(self, name: str, health: PassHealth) -> None:
        self.name: Final = name
        self._health: Final = health
        self.failures = 0
        self.error = ""
        self._throttled = 0

    @property
    def problem(self) -> str:
        """What is wrong; empty while the passes succeed, or fail now and then."""
        if self.failures < FAILING_PASSES:
            return ""
        return f"{self.name} has failed {self.failures} times in a row: {self.error}"

    def succeeded(self) -> None:
        """Note that a pass succeeded."""
        self._throttled = 0
        if self.failures:
            self.failures, self.error = 0, ""
            self._health.changed(self)

    def failed(self, error: Exception) -> None:
        """Note that a pass failed."""
        self._add(1, error)

    def throttled(self, error: Exception) -> None:
        """Note that a pass was throttled: no failure, until there are so many that nothing gets done."""
        self._throttled += 1
        if self._throttled == THROTTLED_PASSES:
            self._add(THROTTLED_PASSES, error)
        elif self._throttled > THROTTLED_PASSES:
            self._add(1, error)

    def _add(self, failures: int, error: Exception) -> None:
        self.failures += failures
        self.error = describe_failure(error) or type(error).__name__
        self._health.changed(self)


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

    def changed(self, streak: PassStreak) -> None:
        """Tell the listeners of a streak."""
        for listener in self._listeners:
            listener(streak)

    @property
    def failing(self) -> str:
        """The controllers that stand still, and why; empty while none does.

        Unlike `problem` it has no count, so it stays the same while the same error comes again.
        """
        return "; ".join(f"{each.name}: {each.error}" for each in self._streaks if each.problem)

    @property
    def problem(self) -> str | None:
        """What stands still, for readiness; None while nothing does."""
        return "; ".join(streak.problem for streak in self._streaks if streak.problem) or None


def gauge_setter(metrics: Metrics) -> Callable[[PassStreak], None]:
    """Return a listener that shows streaks in the metric."""

    def show(streak: PassStreak) -> None:
        metrics.pass_failures.labels(controller=streak.name).set(streak.failures)

    return show


def pool_teller(hands: Hands) -> Callable[[PassStreak], None]:
    """Return a listener that tells every NodePool of passes that stand still."""

    def tell(streak: PassStreak) -> None:
        if not streak.problem:
            return
        message = f"pass of controller {streak.problem}; it is tried again"
        for pool in hands.feed.snapshot().node_pools.values():
            hands.publish(
                Notice(
                    regarding=pool.ref,
                    type="Warning",
                    reason="PassFailing",
                    message=message,
                    dedupe=(pool.uid, streak.name),
                )
            )

    return tell
