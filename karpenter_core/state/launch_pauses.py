"""Pauses launches of NodePools whose nodes do not register or fit their pods.

Without a pause a broken image or NodeClass costs money around the clock: instances are launched, time
out, are terminated, and launched again. So do nodes that have less than their instance type promises,
or taints that no NodePool declares: the pods stay pending. After two failures in a row nothing is launched
for a minute, then one claim is tried; each further failure doubles the pause, up to ten minutes. One
success, or a change of the pool or its NodeClass, ends it.

Where nodes do not fit their pods, such pods are paused as well (`paused_pods`): other pods of the NodePool may have
nodes that fit all the time, and must neither end that pause nor wait for its end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Self

from karpenter_core.state.instants import shift_time

if TYPE_CHECKING:
    from datetime import datetime

__all__ = [
    "PAUSE_BASE",
    "PAUSE_CAP",
    "PAUSE_FAILURES",
    "PAUSE_MEMORY",
    "LaunchPause",
    "next_pause",
]

PAUSE_FAILURES: Final = 2
PAUSE_BASE: Final = timedelta(minutes=1)
PAUSE_CAP: Final = timedelta(minutes=10)
PAUSE_MEMORY: Final = timedelta(hours=1)
"""Time after a pause of pods for which it is remembered: a failure meanwhile doubles it."""


@dataclass(frozen=True, slots=True)
class LaunchPause:
    """Failed registrations of a pool in a row; nothing is launched before `until`."""

    failures: int
    until: datetime
    wait: timedelta = timedelta()

    @property
    def is_on_trial(self) -> bool:
        """Whether so many failed that only one claim at a time is tried."""
        return self.failures >= PAUSE_FAILURES

    def shifted(self, by: timedelta) -> Self:
        """Return the entry with its instants moved."""
        return replace(self, until=shift_time(self.until, by))


def next_pause(
    old: LaunchPause | None, results: tuple[bool, ...], *, now: datetime
) -> LaunchPause | None:
    """Return the pause after the last of some results, True for a success; None ends it.

    Claims of one batch fail at about the same time: while a pause lasts, it does not grow.
    """
    if not results or results[-1]:
        return None
    failures = _count_recent_failures(results) if old is None else old.failures + 1
    if failures < PAUSE_FAILURES:
        return LaunchPause(failures, now)
    if old is not None and now < old.until:
        return replace(old, failures=failures)
    last = timedelta() if old is None else old.wait
    wait = min(max(2 * last, PAUSE_BASE), PAUSE_CAP)
    return LaunchPause(failures, now + wait, wait)


def _count_recent_failures(results: tuple[bool, ...]) -> int:
    """Count the failures since the last success."""
    return next((i for i, ok in enumerate(reversed(results)) if ok), len(results))
