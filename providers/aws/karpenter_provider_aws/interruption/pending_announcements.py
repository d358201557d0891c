"""Holds the announcements that the core has not acknowledged yet.

These announcements come from polling, not from the queue, and hold for as long as their cause does.
A cause that a later poll finds again is the same announcement, under the same id, and is announced
until it is acknowledged. An announcement whose cause is gone is dropped; should the cause come
back, it is a new one.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from karpenter_core.provider.contract import Interruption

__all__ = ["PendingAnnouncements"]


@final
class PendingAnnouncements:
    """The announcements of one source; callable from any thread."""

    def __init__(self) -> None:
        self._lock: Final = Lock()
        self._pending: dict[tuple[str, ...], Interruption] = {}
        self._acknowledged: set[str] = set()

    def replace(self, found: Mapping[tuple[str, ...], Interruption]) -> Collection[tuple[str, ...]]:
        """Take what a look has found, by cause, for all that holds; return the causes that are new.

        Of a cause that is known already the first announcement stays.
        """
        with self._lock:
            news = [cause for cause in found if cause not in self._pending]
            self._pending = {cause: self._pending.get(cause, said) for cause, said in found.items()}
            self._acknowledged &= {said.id for said in self._pending.values()}
            return news

    def waiting(self) -> tuple[Interruption, ...]:
        """Return what was not acknowledged yet, by cause."""
        with self._lock:
            return tuple(
                said
                for _, said in sorted(self._pending.items(), key=lambda item: item[0])
                if said.id not in self._acknowledged
            )

    def acknowledge(self, ids: Iterable[str]) -> None:
        """Announce these no more; others' ids are ignored."""
        with self._lock:
            pending_ids = {said.id for said in self._pending.values()}
            self._acknowledged |= pending_ids.intersection(ids)
