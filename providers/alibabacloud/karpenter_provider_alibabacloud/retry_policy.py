"""Decides which failed calls are repeated, and when.

The SDK repeats nothing by itself, and could not decide which calls may be repeated: a launch whose
reply was lost must not be sent again unless it carries a token by which the cloud recognises it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_provider_alibabacloud.codes import ErrorClass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_provider_alibabacloud.codes import ApiError

__all__ = ["RetryPolicy", "is_repeatable"]

_READS: Final = ("Describe", "List", "Get")
_CLIENT_TOKEN: Final = "ClientToken"  # noqa: S105 - the name of a parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Number of tries, and waits between them; the first try counts."""

    throttled_attempts: int = 5
    transient_attempts: int = 3
    in_progress_attempts: int = 10
    """Number of tries with a token while its first request is still being carried out."""
    in_progress_seconds: float = 0.5
    """The first pause of these; it doubles up to `in_progress_longest_seconds`."""
    in_progress_longest_seconds: float = 5
    first_backoff_seconds: float = 0.1
    longest_backoff_seconds: float = 20
    """Also the longest that a cloud which says when to come back is waited for."""

    def wait_seconds(
        self, error: ApiError, *, attempt: int, repeatable: bool, draw: float
    ) -> float | None:
        """Return how long to wait before the next try, or None to give up.

        `attempt` counts the tries that failed in this way, this one included; `draw` is a random number
        from 0 to 1, so that those who were refused together do not come back together.
        """
        match error.error_class:
            case ErrorClass.THROTTLED:  # nothing was done: every call may be made again
                if attempt >= self.throttled_attempts:
                    return None
                if error.retry_after is not None:
                    requested_seconds = error.retry_after.total_seconds()
                    return (
                        requested_seconds
                        if requested_seconds <= self.longest_backoff_seconds
                        else None
                    )
            case ErrorClass.TRANSIENT:
                if attempt >= self.transient_attempts or not repeatable:
                    return None
            case ErrorClass.IN_PROGRESS:
                if attempt >= self.in_progress_attempts or not repeatable:
                    return None
                longest = self.in_progress_longest_seconds
                pause = min(self.in_progress_seconds * 2 ** (attempt - 1), longest)
                return pause * (1 + draw) / 2
            case _:
                return None
        ceiling = self.first_backoff_seconds * 2 ** (attempt - 1)
        return draw * min(ceiling, self.longest_backoff_seconds)


def is_repeatable(action: str, parameters: Mapping[str, object]) -> bool:
    """Whether a call that may have been carried out can be made again without doing things twice."""
    return action.startswith(_READS) or bool(parameters.get(_CLIENT_TOKEN))
