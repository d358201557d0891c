"""Classifies failed HTTP requests by status and Retry-After header."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from karpenter_core.provider.kit.calls.failures import AttemptFailure, AttemptFailureKind

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["http_failure", "parse_retry_after"]

_DENIED: Final = frozenset({401, 403})
_REQUEST_TIMEOUT: Final = 408
_TOO_MANY_REQUESTS: Final = 429
_SERVER_ERROR: Final = 500
_LONGEST_SECONDS: Final = 24 * 3600
"""A longer time is no sensible answer; it is cut."""


def http_failure(
    status: int,
    *,
    message: str = "",
    code: str = "",
    retry_after: str | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> AttemptFailure:
    """Return the failure that a status means; 0 is a request without an answer.

    `code` is the cloud's code in the body, by default the status. `retry_after` is the header. A cloud
    that has a code for a request whose token is still in use classifies that code itself.
    """
    return AttemptFailure(
        kind=_kind(status),
        message=message,
        code=code or (str(status) if status else ""),
        retry_after=parse_retry_after(retry_after, now=now),
    )


def parse_retry_after(
    header: str | None, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> timedelta | None:
    """Return the time of a Retry-After header: seconds, or a date (RFC 9110, section 10.2.3).

    None if there is no header or it cannot be read; a date in the past is no time.
    """
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        seconds = _seconds_until(header, now())
    if seconds is None or math.isnan(seconds):
        return None
    return timedelta(seconds=min(max(seconds, 0.0), _LONGEST_SECONDS))


def _seconds_until(date: str, now: datetime) -> float | None:
    try:
        at = parsedate_to_datetime(date)
    except (TypeError, ValueError, OverflowError, IndexError):
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return (at - now).total_seconds()


def _kind(status: int) -> AttemptFailureKind:
    if status == _TOO_MANY_REQUESTS:
        return AttemptFailureKind.THROTTLED
    if status in _DENIED:
        return AttemptFailureKind.DENIED
    if not status or status == _REQUEST_TIMEOUT or status >= _SERVER_ERROR:
        return AttemptFailureKind.UNANSWERED
    return AttemptFailureKind.REFUSED
