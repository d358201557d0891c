"""Tracks unused resources beside instances, until they may be deleted.

Launch templates, network interfaces and profiles are left behind when a process dies between two
calls. The core deletes instances itself. Deleting by listings needs care: a listing may be
incomplete or outdated, and a wrong filter makes every resource seem unused.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

__all__ = ["OrphanTracker"]


@final
class OrphanTracker:
    """Selects resources for deletion: those that were unused in every check for some time.

    An incomplete check selects nothing. If more than `floor` resources, and more than `share` of
    all, are unused, the cause may be a mistake, or an emptied cluster: they are selected only after
    `long_grace`. Callable from any thread; the state is lost with the process, which only delays
    deletions.
    """

    def __init__(
        self,
        *,
        grace: timedelta = timedelta(minutes=5),
        long_grace: timedelta = timedelta(hours=1),
        share: float = 0.5,
        floor: int = 10,
    ) -> None:
        self._grace: Final = grace
        self._long_grace: Final = long_grace
        self._share: Final = share
        self._floor: Final = floor
        self._lock: Final = threading.Lock()
        self._unused_since: Final[dict[str, datetime]] = {}
        self._failed: Final[set[str]] = set()

    def deletable(
        self, existing: Collection[str], used: Collection[str], *, complete: bool, now: datetime
    ) -> tuple[str, ...]:
        """Return the resources that may be deleted now, sorted, those of `note_failed` last.

        `complete` is False if any part of either listing could not be read.
        """
        with self._lock:
            if not complete:
                return ()
            unused = set(existing) - set(used)
            for thing in [thing for thing in self._unused_since if thing not in unused]:
                del self._unused_since[thing]
            self._failed.intersection_update(unused)
            for thing in unused:
                self._unused_since.setdefault(thing, now)
            ripe = self._unused_for(self._grace, now)
            if len(ripe) > self._floor and len(ripe) > self._share * len(existing):
                return self._unused_for(self._long_grace, now)
            return ripe

    def note_failed(self, thing: str) -> None:
        """Put a resource whose deletion failed behind the others, while it is unused.

        So one that can never be deleted holds up no other, although a failure ends the deletions.
        """
        with self._lock:
            self._failed.add(thing)

    def _unused_for(self, grace: timedelta, now: datetime) -> tuple[str, ...]:
        things = (t for t, since in self._unused_since.items() if now - since >= grace)
        return tuple(sorted(things, key=lambda thing: (thing in self._failed, thing)))
