"""Computes when windows that repeat on a time zone's local clock are open.

A window is open while the clock on the wall shows a time from a start (a cron schedule) up to the
start plus the duration. This is a function of the local time alone, so that a change of the clock
moves no start and no end: a window from 22:00 for nine hours ends at 07:00 in every night. A time
that the clock skips cannot open a window, and one that it shows twice opens it twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from karpenter_core.api.cron_schedule import CronSchedule

__all__ = ["LocalWindow", "read_time_zone"]

_JOINED_STARTS: Final = 100
"""Starts that are followed to find the end of windows that overlap each other."""
_CHANGES: Final = 16
"""Instants that are tried for the next change, before the search goes on from there later."""
_SEARCHED: Final = timedelta(days=366)
"""Time that is searched for changes of the clock at once: the next start may be centuries away."""
_NOT_PORTABLE: Final = ("posix/", "right/", "Factory", "localtime", "posixrules")
"""Files of some systems' databases that are no zones, or count leap seconds."""


@lru_cache(maxsize=64)
def read_time_zone(name: str) -> ZoneInfo:
    """Return the time zone of an IANA name.

    Raises:
        BadInputError: there is none of this name.
    """
    message = f'timeZone "{name}" is not a time zone of the IANA database'
    if name.startswith(_NOT_PORTABLE):
        raise BadInputError(message)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise BadInputError(message) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalWindow:
    """Starts on the local clock of a zone, and the time on it that the window stays open."""

    schedule: CronSchedule
    duration: timedelta
    zone: ZoneInfo

    def is_open(self, at: datetime) -> bool:
        """Tell whether the window is open at an instant."""
        return self._is_open_locally(_local_time(at, self.zone))

    def next_change(self, at: datetime) -> tuple[datetime, bool] | None:
        """Return the first instant after `at` at which the window opens or closes.

        It comes with whether that is certain: otherwise nothing changes before it, and the search
        may go on from there. None if the window never changes again.
        """
        is_open, instant = self.is_open(at), at.astimezone(UTC)
        for _ in range(_CHANGES):
            found = self._next_candidate(instant)
            if found is None:
                return None
            instant = found
            if self.is_open(instant) is not is_open:
                return instant, True
        return instant, False

    def _is_open_locally(self, local: datetime) -> bool:
        start = self.schedule.last_local(local)
        return start is not None and local < start + self.duration

    def _next_candidate(self, at: datetime) -> datetime | None:
        """Return the next instant at which the window may open or close, or an earlier one."""
        edge = self._next_local_edge(_local_time(at, self.zone))
        if edge is None:
            return None
        instants = {edge.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
        if min(instants) > (searched := at + _SEARCHED):
            return _next_clock_change(at, searched, self.zone) or searched
        latest = max(instants)
        change = _next_clock_change(at, latest, self.zone)
        return min(
            (instant for instant in (*instants, change) if instant is not None and instant > at),
            default=latest if latest > at else None,
        )

    def _next_local_edge(self, local: datetime) -> datetime | None:
        """Return the next start, or the end if the window is open; starts that overlap are joined."""
        start = self.schedule.last_local(local)
        if start is None or local >= start + self.duration:
            return self.schedule.next_local(local)
        for _ in range(_JOINED_STARTS):
            following = self.schedule.next_local(start)
            if following is None or following > start + self.duration:
                break
            start = following
        return start + self.duration


def _local_time(at: datetime, zone: ZoneInfo) -> datetime:
    return at.astimezone(zone).replace(tzinfo=None, fold=0)


def _next_clock_change(at: datetime, until: datetime, zone: ZoneInfo) -> datetime | None:
    """Return the first change of the zone's offset after `at` and up to `until`, to the second."""
    before, offset = at, _offset(at, zone)
    while before < until:
        after = min(before + timedelta(days=1), until)
        if _offset(after, zone) != offset:
            while after - before > timedelta(seconds=1):
                middle = before + (after - before) / 2
                if _offset(middle, zone) == offset:
                    before = middle
                else:
                    after = middle
            rounded = after.replace(microsecond=0)
            return rounded if _offset(rounded, zone) != offset else after
        before = after
    return None


def _offset(at: datetime, zone: ZoneInfo) -> timedelta | None:
    return at.astimezone(zone).utcoffset()
