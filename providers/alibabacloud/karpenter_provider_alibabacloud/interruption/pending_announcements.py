"""Holds the announcements that the core has not acknowledged yet.

Several sources report one instance: its lock, a system event, at last that it stops. All are polled
again and again, and a cause holds until a poll does not find it any more. An instance is announced
once; again only when it turns out to go earlier than was acknowledged.
"""

from __future__ import annotations

from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.provider.contract import Interruption

__all__ = ["PendingAnnouncements"]

_NEVER: Final = datetime.max.replace(tzinfo=UTC)


@final
class PendingAnnouncements:
    """Announcements that are not acknowledged yet; callable from any thread."""

    def __init__(self) -> None:
        self._lock: Final = Lock()
        self._pending: Final[dict[str, Mapping[str, Interruption]]] = {}
        """By source and instance id."""
        self._acknowledged: Final[dict[str, datetime]] = {}
        """By instance id: the earliest end that was acknowledged."""

    def replace(self, source: str, found: Mapping[str, Interruption]) -> None:
        """Take what a source has found, by instance, for all that holds.

        What a source goes on finding under one id is announced as it was at first.
        """
        with self._lock:
            before = self._pending.get(source, {})
            kept = {name: before[name] for name in found if _is_same(before.get(name), found[name])}
            self._pending[source] = {**found, **kept}
            for name in self._acknowledged.keys() - self._causes().keys():
                del self._acknowledged[name]

    def waiting(self) -> tuple[Interruption, ...]:
        """Return what was not acknowledged yet, one for each instance, by instance id."""
        with self._lock:
            causes = self._causes()
            firsts = {
                name: min(announcements, key=_end) for name, announcements in sorted(causes.items())
            }
            return tuple(
                announcement
                for name, announcement in firsts.items()
                if name not in self._acknowledged or _end(announcement) < self._acknowledged[name]
            )

    def acknowledge(self, ids: Iterable[str]) -> None:
        """Announce these no more; others' ids are ignored."""
        handled = set(ids)
        with self._lock:
            for name, causes in self._causes().items():
                ends = [_end(announcement) for announcement in causes if announcement.id in handled]
                if ends:
                    last_end = self._acknowledged.get(name, _NEVER)
                    self._acknowledged[name] = min(last_end, *ends)

    def _causes(self) -> dict[str, list[Interruption]]:
        """Return all that is said of each instance, in the order of the sources."""
        causes: dict[str, list[Interruption]] = {}
        for source in sorted(self._pending):
            for name, announcement in self._pending[source].items():
                causes.setdefault(name, []).append(announcement)
        return causes


def _is_same(before: Interruption | None, after: Interruption) -> bool:
    return before is not None and before.id == after.id


def _end(announcement: Interruption) -> datetime:
    return announcement.deadline or _NEVER
