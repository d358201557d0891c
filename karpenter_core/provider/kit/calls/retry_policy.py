"""Decides which failed attempts are repeated, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from karpenter_core.provider.kit.calls.failures import AttemptFailureKind

if TYPE_CHECKING:
    from karpenter_core.provider.kit.calls.failures import AttemptFailure

__all__ = ["RetryPolicy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Number of attempts, and waits between them; the first attempt counts.

    All attempts of a call have to end before the hook's time limit (PC-009).
    """

    throttled_attempts: int = 5
    transient_attempts: int = 3
    in_progress_attempts: int = 10
    """Number of attempts with a token while its first request is still being carried out."""
    in_progress_seconds: float = 0.5
    """The first pause of these; it doubles up to `in_progress_longest_seconds`."""
    in_progress_longest_seconds: float = 5
    first_backoff_seconds: float = 0.1
    longest_backoff_seconds: float = 20
    """Also the longest time that a call waits for the end of a pause, or for its rate."""
    longest_call_seconds: float = 80
    """No attempt begins later than this after the call began; waits of all kinds count."""

    def wait_seconds(
        self, failure: AttemptFailure, *, attempt: int, repeatable: bool, draw: float
    ) -> float | None:
        """Return the time to wait before the next attempt, or None to give up.

        `attempt` counts the attempts that failed in this way, this one included; `repeatable` says
        whether the call can be made again after it may have been carried out; `draw` is a random number
        from 0 to 1, so that calls which were refused together are not repeated together.
        """
        match failure.kind:
            case AttemptFailureKind.THROTTLED:
                attempts = self.throttled_attempts
            case AttemptFailureKind.UNANSWERED if repeatable:
                attempts = self.transient_attempts
            case AttemptFailureKind.IN_PROGRESS if repeatable:
                attempts = self.in_progress_attempts
            case _:
                return None
        if attempt >= attempts:
            return None
        if failure.kind is AttemptFailureKind.IN_PROGRESS:
            longest = self.in_progress_longest_seconds
            return min(self.in_progress_seconds * 2 ** (attempt - 1), longest) * (1 + draw) / 2
        if failure.retry_after is not None:
            asked_seconds = max(0.0, failure.retry_after.total_seconds())
            return asked_seconds if asked_seconds <= self.longest_backoff_seconds else None
        ceiling = self.first_backoff_seconds * 2 ** (attempt - 1)
        return draw * min(ceiling, self.longest_backoff_seconds)
