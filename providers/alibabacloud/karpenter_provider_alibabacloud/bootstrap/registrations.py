"""Observes whether launched instances join, to detect expired tokens."""

from __future__ import annotations

from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from karpenter_core.clock import Clock

__all__ = ["JOIN_TIME", "PendingRegistrations"]

JOIN_TIME: Final = timedelta(minutes=10)
"""An instance that ends earlier may still be booting; the core gives up after 15 minutes."""
_FORGOTTEN_AFTER: Final = timedelta(hours=2)


class RegistrationObserver(Protocol):
    """Receives observed registrations (`AttachScripts`)."""

    def note_registered(self) -> None:
        """Record that an instance joined."""
        ...

    def note_unregistered(self) -> None:
        """Record that an instance did not join in time."""
        ...


@final
class PendingRegistrations:
    """Instances launched by this process that have not joined yet; callable from any thread."""

    def __init__(self, scripts: RegistrationObserver | None, clock: Clock) -> None:
        """Without `scripts`, in a cluster that is none of ACK's, nothing follows from it."""
        self._scripts: Final = scripts
        self._clock: Final = clock
        self._lock: Final = Lock()
        self._launched_at: Final[dict[str, datetime]] = {}
        """By provider ID."""

    def note_launched(self, provider_ids: Iterable[str]) -> None:
        """Record launched instances, also those of earlier calls."""
        now = self._clock.now()
        with self._lock:
            for provider_id in provider_ids:
                self._launched_at.setdefault(provider_id, now)
            for old in [
                id_ for id_, at in self._launched_at.items() if now - at > _FORGOTTEN_AFTER
            ]:
                del self._launched_at[old]

    def note_registered(self, provider_id: str) -> None:
        """Record that the Node of an instance has registered."""
        with self._lock:
            was_awaited = self._launched_at.pop(provider_id, None) is not None
        if was_awaited and self._scripts is not None:
            self._scripts.note_registered()

    def note_terminated(self, provider_ids: Iterable[str]) -> None:
        """Record terminated instances; those older than `JOIN_TIME` did not join."""
        now = self._clock.now()
        with self._lock:
            ended = [self._launched_at.pop(provider_id, now) for provider_id in provider_ids]
        for launched_at in ended:
            if self._scripts is not None and now - launched_at >= JOIN_TIME:
                self._scripts.note_unregistered()
