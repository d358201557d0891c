"""Records the API server's last contact for each kind, and judges its age.

A contact is a complete list, a watch event or a bookmark. An accepted request, an open connection
or a page of a list is no contact: it does not prove that the held objects are the server's.

kube-apiserver sends bookmarks about once a minute, but only of versions beyond the one at which a
watch began. A kind in which nothing changes may therefore be silent for as long as its watch lasts,
and this silence looks like that of a broken connection. After `quiet_seconds` of silence the informer
requests a complete list. A list that equals the held objects is a contact; if it shows more, the watch
must show the same within `reply_seconds`, or the watch is ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.clock import Clock
    from karpenter_core.kube.resources import ResourceKind

__all__ = ["ContactTimes", "LastContact", "StaleKind"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContactTimes:
    """Time limits for the silence of a kind."""

    fresh_seconds: float = 90.0
    """Time after the last contact during which a kind counts as fresh."""
    quiet_seconds: float = 70.0
    """Silence after which a list is requested; longer than the 60 s between bookmarks."""
    reply_seconds: float = 5.0
    """A new watch has so long to speak before a list is asked for, and so long to show what a list
    has shown."""
    proves_recovery: bool = False
    """After a failure, request a list as soon as the new watch has been silent for `reply_seconds`: for
    views, where people wait for it. A controller spares an API server that has just come back."""

    def __post_init__(self) -> None:
        """Refuse times under which a quiet kind is never fresh for long."""
        if not 0 < self.reply_seconds < self.quiet_seconds < self.fresh_seconds:
            message = (
                "contact times need 0 < reply < quiet < fresh, not "
                f"{self.reply_seconds}, {self.quiet_seconds}, {self.fresh_seconds}"
            )
            raise ValueError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleKind:
    """A kind whose last contact is too long ago."""

    kind: ResourceKind
    seconds: float | None
    """Time since the last contact; None when there was none."""
    problem: str

    def __str__(self) -> str:
        """Return the kind, the length of its silence, and the reason if it is known."""
        since = "never listed" if self.seconds is None else f"silent for {self.seconds:.0f} s"
        return f"{self.kind.plural} ({since}{': ' if self.problem else ''}{self.problem})"


@final
class LastContact:
    """The last contact of one kind; calls `on_fresh` when a contact makes a stale kind fresh."""

    __slots__ = ("_at", "_clock", "_on_fresh", "times")

    def __init__(
        self, clock: Clock, times: ContactTimes, on_fresh: Callable[[], None] | None
    ) -> None:
        self.times: Final = times
        self._clock: Final = clock
        self._on_fresh: Final = on_fresh
        self._at: float | None = None

    @property
    def at(self) -> float | None:
        """Time of the last contact, by the monotonic clock."""
        return self._at

    @property
    def age_seconds(self) -> float | None:
        """Time since the last contact; None before the first."""
        return None if self._at is None else self._clock.monotonic() - self._at

    def age_or_infinity(self) -> float:
        """Return the time since the last contact for the metric."""
        age = self.age_seconds
        return inf if age is None else age

    @property
    def is_fresh(self) -> bool:
        """Whether the last contact is recent enough to act on the held objects."""
        age = self.age_seconds
        return age is not None and age <= self.times.fresh_seconds

    def record(self) -> None:
        """Record a contact."""
        was_fresh = self.is_fresh
        self._at = self._clock.monotonic()
        if not was_fresh and self._on_fresh is not None:
            self._on_fresh()

    def next_probe_at(self, opened: float, *, has_failed: bool) -> float:
        """Return when to request a list to check a watch that was opened at `opened`.

        `has_failed` tells that the watch before it, or this one, has failed since the last contact.
        """
        earliest = opened + self.times.reply_seconds
        is_hasty = has_failed and self.times.proves_recovery
        return (
            earliest
            if self._at is None or is_hasty
            else max(earliest, self._at + self.times.quiet_seconds)
        )
