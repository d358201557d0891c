"""Reads the state of long-running operations.

A write is answered before it is carried out. Its answer names a URL of the operation
(`Azure-AsyncOperation`, else `Location`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.provider.kit.calls.http_failures import parse_retry_after
from karpenter_provider_azure.arm.errors import ArmError, error_of_body

if TYPE_CHECKING:
    from karpenter_provider_azure.arm.sdk_sender import ArmAnswer

__all__ = ["POLL_PERIOD", "OperationState", "operation_url", "state_of_poll"]

POLL_PERIOD: Final = timedelta(seconds=3)
"""Between polls of an operation, unless Azure asks for a longer time."""

_ACCEPTED: Final = 202
_FAILED: Final = frozenset({"failed", "canceled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationState:
    """The state of an operation."""

    is_done: bool
    """Whether it has ended; a status that is not known is one in progress."""
    error: ArmError | None = None
    """Of an operation that failed or was canceled."""
    retry_after: timedelta | None
    """The time that Azure asks to wait before the next poll."""


def operation_url(answer: ArmAnswer) -> str:
    """Return the URL of the operation that an answer names; empty if it names none."""
    return answer.headers.get("azure-asyncoperation") or answer.headers.get("location") or ""


def state_of_poll(answer: ArmAnswer) -> OperationState:
    """Return the state that the answer of an operation's URL tells.

    A body with `status` is that of `Azure-AsyncOperation`; else the HTTP status decides, as for `Location`.
    """
    wait = parse_retry_after(answer.headers.get("retry-after"))
    status: object = answer.body.get("status")
    if not isinstance(status, str):
        return OperationState(is_done=answer.status != _ACCEPTED, retry_after=wait)
    if status.lower() not in _FAILED:
        return OperationState(is_done=status.lower() == "succeeded", retry_after=wait)
    if isinstance(answer.body.get("error"), dict):
        error = error_of_body(answer.body)
    else:
        text = f"the operation ended with the status {status} and names no error"
        error = ArmError(text, code=status)
    return OperationState(is_done=True, error=error, retry_after=wait)
