"""Which failed calls are made again, and when.

The SDK repeats nothing by itself, and could not tell which calls may be repeated: a launch whose reply
was lost must not be sent again unless it carries a token by which the cloud knows it.
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
    """How often, and how long to wait between tries; the first try counts."""

    throttled_attempts: int = 5
    transient_attempts: int = 3
    first_backoff_seconds: float = 0.1
    longest_backoff_seconds: float = 20
    """Also the longest that a cloud which says when to come back is waited for."""

    def wait_seconds(
        self, error: ApiError, *, attempt: int, repeatable: bool, draw: float
    ) -> float | None:
        """Return how long to wait before the next try, or None to give up.

        `attempt` counts the tries that failed, this one included; `draw` is a random number from 0 to
        1, so that those who were refused together do not come back together.
        """
        match error.error_class:
            case ErrorClass.THROTTLED:  # nothing was done: every call may be made again
                if attempt >= self.throttled_attempts:
                    return None
                if error.retry_after is not None:
                    asked = error.retry_after.total_seconds()
                    return asked if asked <= self.longest_backoff_seconds else None
            case ErrorClass.TRANSIENT:
                if attempt >= self.transient_attempts or not repeatable:
                    return None
            case _:
                return None
        ceiling = self.first_backoff_seconds * 2 ** (attempt - 1)
        return draw * min(ceiling, self.longest_backoff_seconds)


def is_repeatable(action: str, parameters: Mapping[str, object]) -> bool:
    """Whether a call that may have been carried out can be made again without doing things twice."""
    return action.startswith(_READS) or bool(parameters.get(_CLIENT_TOKEN))
