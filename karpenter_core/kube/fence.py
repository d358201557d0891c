"""Refuses writes of a process that has lost the leader election.

A process that was suspended for half a minute may continue in the middle of a write, before any of
its tasks notices that another process leads now; so each write checks the clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from karpenter_core.errors import FencedError

if TYPE_CHECKING:
    from karpenter_core.clock import Clock

__all__ = ["AlwaysLeaderFence", "LeaseFence", "ObserverFence", "WriteFence"]


class WriteFence(Protocol):
    """Whether this process may write now."""

    def check(self) -> None:
        """Return if it may.

        Raises:
            FencedError: the lease is not held, or its last renewal is too old to rely on.
        """
        ...


class AlwaysLeaderFence:
    """The fence of a process that runs without leader election."""

    __slots__ = ()

    def check(self) -> None:
        """Let everything pass."""


class ObserverFence:
    """The fence of a process that only observes."""

    __slots__ = ()

    def check(self) -> None:
        """Let nothing pass."""
        raise FencedError("this process only observes (--observe)")


class LeaseFence:
    """Open until `renew_deadline` after the sending of the last renewal that succeeded."""

    __slots__ = ("_clock", "_open_until")

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._open_until: float | None = None

    @property
    def seconds_left(self) -> float:
        """Return the seconds for which writes may still go without another renewal."""
        return 0.0 if self._open_until is None else self._open_until - self._clock.monotonic()

    def check(self) -> None:
        """Return if the lease is held at this very moment."""
        if self._open_until is None:
            raise FencedError("the leader lease is not held")
        if (late := self._clock.monotonic() - self._open_until) >= 0:
            raise FencedError(f"the leader lease was not renewed in time ({late:.1f} s too late)")

    def open_until(self, moment: float) -> None:
        """Let writes pass until this moment of the monotonic clock."""
        self._open_until = moment

    def close(self) -> None:
        """Stop writes."""
        self._open_until = None
