"""Counts the instances left of each capacity reservation between two readings.

The counts of a cloud lag behind, so launches and terminations are counted here meanwhile. A count
that is too high (a launch is refused, and the count becomes zero) is better than one that is too
low (paid capacity is not used).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_core.clock import Clock

__all__ = ["ReservationCounts"]

AVAILABILITY_TTL: Final = timedelta(hours=24)


@dataclass(slots=True)
class _ReservationCount:
    left: int
    read_at: datetime
    expires_at: float


@final
class ReservationCounts:
    """The number of instances left, by reservation; callable from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._lock: Final = Lock()
        self._counts: Final[dict[str, _ReservationCount]] = {}

    def record(self, left: Mapping[str, int]) -> None:
        """Record the counts that the cloud returned."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        with self._lock:
            for key, count in left.items():
                self._counts[key] = _ReservationCount(
                    left=count,
                    read_at=now,
                    expires_at=monotonic + AVAILABILITY_TTL.total_seconds(),
                )

    def remaining(self, reservation_id: str) -> int:
        """Return the instances left; zero for an unknown reservation."""
        with self._lock:
            count = self._count(reservation_id)
            return 0 if count is None else count.left

    def note_launched(self, reservation_id: str, *, launched_at: datetime | None = None) -> None:
        """Count one instance less, unless the counts were requested after the launch."""
        at = launched_at or self._clock.now()
        with self._lock:
            count = self._count(reservation_id)
            if count is not None and count.read_at <= at and count.left > 0:
                count.left -= 1

    def note_terminated(self, reservation_id: str) -> None:
        """Count one instance more: an instance in the reservation is gone."""
        with self._lock:
            count = self._count(reservation_id)
            if count is not None:
                count.left += 1

    def note_exhausted(self, *reservation_ids: str) -> None:
        """Set the count to zero: a launch was refused, or instances are reclaimed."""
        with self._lock:
            for reservation_id in reservation_ids:
                count = self._count(reservation_id)
                if count is not None:
                    count.left = 0

    def _count(self, reservation_id: str) -> _ReservationCount | None:
        count = self._counts.get(reservation_id)
        if count is None or count.expires_at > self._clock.monotonic():
            return count
        del self._counts[reservation_id]
        return None
