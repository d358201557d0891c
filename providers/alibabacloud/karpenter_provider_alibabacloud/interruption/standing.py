"""The one queue of announcements: by instance, whatever noticed that it is going.

Several sources tell of one instance: its lock, a system event, at last that it stops. All are looked
at again and again, and a cause holds until a look does not find it any more. An instance is announced
once; again only when it turns out to go earlier than was acknowledged.
"""

from __future__ import annotations

from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.provider.contract import Interruption

__all__ = ["Announcements"]

_NEVER: Final = datetime.max.replace(tzinfo=UTC)


@final
class Announcements:
    """What was found and not acknowledged yet; callable from any thread."""

    def __init__(self) -> None:
        self._lock: Final = Lock()
        self._standing: Final[dict[str, Mapping[str, Interruption]]] = {}
        """By source and instance id."""
        self._acknowledged: Final[dict[str, datetime]] = {}
        """By instance id: the earliest end that was acknowledged."""

    def replace(self, source: str, found: Mapping[str, Interruption]) -> None:
        """Take what a source has found, by instance, for all that holds.

        What a source goes on finding under one id is announced as it was at first.
        """
        with self._lock:
            before = self._standing.get(source, {})
            kept = {name: before[name] for name in found if _is_same(before.get(name), found[name])}
            self._standing[source] = {**found, **kept}
            for name in self._acknowledged.keys() - self._causes().keys():
                del self._acknowledged[name]

    def waiting(self) -> tuple[Interruption, ...]:
        """Return what was not acknowledged yet, one for each instance, by instance id."""
        with self._lock:
            causes = self._causes()
            firsts = {name: min(said, key=_end) for name, said in sorted(causes.items())}
            return tuple(
                said
                for name, said in firsts.items()
                if name not in self._acknowledged or _end(said) < self._acknowledged[name]
            )

    def acknowledge(self, ids: Iterable[str]) -> None:
        """Announce these no more; others' ids are ignored."""
        handled = set(ids)
        with self._lock:
            for name, causes in self._causes().items():
                ends = [_end(said) for said in causes if said.id in handled]
                if ends:
                    known = self._acknowledged.get(name, _NEVER)
                    self._acknowledged[name] = min(known, *ends)

    def _causes(self) -> dict[str, list[Interruption]]:
        """Return all that is said of each instance, in the order of the sources."""
        causes: dict[str, list[Interruption]] = {}
        for source in sorted(self._standing):
            for name, said in self._standing[source].items():
                causes.setdefault(name, []).append(said)
        return causes


def _is_same(before: Interruption | None, after: Interruption) -> bool:
    return before is not None and before.id == after.id


def _end(said: Interruption) -> datetime:
    return said.deadline or _NEVER
