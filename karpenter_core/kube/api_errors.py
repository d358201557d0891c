"""Turns error answers of the API server into typed errors."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from karpenter_core.errors import (
    ApiError,
    ConflictError,
    GoneError,
    InvalidError,
    NotFoundError,
    TooManyRequestsError,
    is_webhook_denial,
)

if TYPE_CHECKING:
    from karpenter_core.kube.transport import ApiResponse

__all__ = ["error_of"]

_ERRORS: Final[dict[int, type[ApiError]]] = {
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: TooManyRequestsError,
}

_OF_THE_OBJECT: Final = frozenset({404, 409, 410})
"""Answers that say that an object is gone or another one, unless a webhook has chosen them."""

_LONGEST_RETRY_SECONDS: Final = 300
"""Bound of Retry-After: an answer that asks for more, of a proxy perhaps, must not stop the controller."""

_RETRY_DIGITS: Final = 9


class _StatusCause(msgspec.Struct, gc=False):
    reason: str = ""


class _StatusDetails(msgspec.Struct, rename="camel"):
    retry_after_seconds: int = 0
    causes: tuple[_StatusCause, ...] = ()


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    details: _StatusDetails | None = None


_status_decoder: Final = msgspec.json.Decoder(_Status)


def error_of(response: ApiResponse, subject: str, *, is_change: bool = False) -> ApiError:
    """Turn an error response into the typed error; `subject` names the verb and the target.

    A 404 without a reason is a proxy's page, or the API server's before it serves the kind: to a request
    that changes or deletes an object (`is_change`) it is not the object's end.
    """
    try:
        status = _status_decoder.decode(response.body)
    except (
        msgspec.DecodeError,
        UnicodeDecodeError,
        RecursionError,
    ):  # a proxy's page, not the API server's word
        status = _Status()
    text = status.message or status.reason or f"HTTP status {response.status}"
    error = _ERRORS.get(response.status, ApiError)
    if response.status in _OF_THE_OBJECT and is_webhook_denial(text):
        error = ApiError
    if is_change and error is NotFoundError and not status.reason:
        error = ApiError
    return error(
        f"{subject}: {text}",
        status=response.status,
        reason=status.reason,
        retry_after=_retry_after(response, status),
        causes=() if status.details is None else [cause.reason for cause in status.details.causes],
    )


def _retry_after(response: ApiResponse, status: _Status) -> timedelta | None:
    """Return the time that the answer asks to wait, `_LONGEST_RETRY_SECONDS` at most."""
    header = response.headers.get("retry-after", "")
    if header.isascii() and header.isdigit():
        is_short = len(header) <= _RETRY_DIGITS
        asked = int(header) if is_short else _LONGEST_RETRY_SECONDS
    elif status.details is not None and status.details.retry_after_seconds > 0:
        asked = status.details.retry_after_seconds
    else:
        return None
    return timedelta(seconds=min(asked, _LONGEST_RETRY_SECONDS))
