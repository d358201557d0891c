"""Records when the API server last told of a kind, and says whether that is recent enough.

A contact is a complete list, a watch event or a bookmark. An accepted request, an open connection
or a page of a list is none: none of them proves that what is held is what the server has now.

kube-apiserver sends bookmarks about once a minute, but only of versions beyond the one at which a
watch began. A kind in which nothing changes may therefore be silent for as long as its watch lasts,
and such silence looks like that of a broken connection. After `quiet_seconds` without a word the
informer asks for a complete list: one that shows what is held is a contact; one that shows more has
to be followed by the watch within `reply_seconds`, or the watch is given up.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.clock import Clock
    from karpenter_core.kube.resources import ResourceKind

__all__ = ["Contact", "ContactTimes", "StaleKind"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContactTimes:
    """How long a kind may be silent."""

    fresh_seconds: float = 90.0
    """A kind is fresh for so long after the last contact."""
    quiet_seconds: float = 70.0
    """After so long without a contact a list is asked for; more than a bookmark's 60 s."""
    reply_seconds: float = 5.0
    """A new watch has so long to speak before a list is asked for, and so long to show what a list
    has shown."""

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
    """A kind of which nothing has been heard for too long."""

    kind: ResourceKind
    seconds: float | None
    """Time since the last contact; None when there was none."""
    trouble: str = ""

    def __str__(self) -> str:
        """Return the kind, for how long it is silent, and why if that is known."""
        since = "never listed" if self.seconds is None else f"silent for {self.seconds:.0f} s"
        return f"{self.kind.plural} ({since}{': ' if self.trouble else ''}{self.trouble})"


@final
class Contact:
    """The last contact about one kind; calls `on_fresh` when one ends a time without."""

    __slots__ = ("_at", "_clock", "_on_fresh", "times")

    def __init__(
        self, clock: Clock, times: ContactTimes, on_fresh: Callable[[], None] | None = None
    ) -> None:
        self.times: Final = times
        self._clock: Final = clock
        self._on_fresh: Final = on_fresh
        self._at: float | None = None

    @property
    def at(self) -> float | None:
        """When the last contact was, by the monotonic clock."""
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
        """Whether the last contact is recent enough to act on what is held."""
        age = self.age_seconds
        return age is not None and age <= self.times.fresh_seconds

    def note(self) -> None:
        """Record a contact."""
        was_fresh = self.is_fresh
        self._at = self._clock.monotonic()
        if not was_fresh and self._on_fresh is not None:
            self._on_fresh()

    def next_probe_at(self, opened: float) -> float:
        """Return when a list is to be asked for, of a watch that was begun at `opened`."""
        earliest = opened + self.times.reply_seconds
        return earliest if self._at is None else max(earliest, self._at + self.times.quiet_seconds)
