"""Tracks unused resources beside instances, until they may be deleted.

Launch templates, network interfaces and profiles are left behind when a process dies between two
calls. The core deletes instances itself. Deleting by listings needs care: a listing may be
incomplete or outdated, and a wrong filter makes every resource seem unused.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError, ThrottledError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
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
        """Return the resources that may be deleted now, sorted, those that failed last.

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

    def delete_each(self, things: Iterable[str], delete: Callable[[str], object]) -> None:
        """Delete resources up to the first failure; one that failed comes last in later checks.

        So one that can never be deleted holds up no other.

        Raises:
            CloudProviderError: as `delete` does.
        """
        for thing in things:
            try:
                delete(thing)
            except ThrottledError:
                raise
            except CloudProviderError:
                with self._lock:
                    self._failed.add(thing)
                raise

    def _unused_for(self, grace: timedelta, now: datetime) -> tuple[str, ...]:
        things = (t for t, since in self._unused_since.items() if now - since >= grace)
        return tuple(sorted(things, key=lambda thing: (thing in self._failed, thing)))
