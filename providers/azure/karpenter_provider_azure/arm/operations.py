"""Reads the state of long-running operations.

A write is answered before it is carried out. Its answer names a URL of the operation
(`Azure-AsyncOperation`, else `Location`), or the resource itself says its `provisioningState`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.provider.kit.calls.http_failures import parse_retry_after
from karpenter_provider_azure.arm.errors import ArmError, error_of_body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.json_objects import JsonMapping
    from karpenter_provider_azure.arm.client import ArmAnswer, ArmClient

__all__ = [
    "POLL_PERIOD",
    "OperationState",
    "OperationStatus",
    "operation_url",
    "poll_operation",
    "state_of_answer",
    "state_of_resource",
]

POLL_PERIOD: Final = timedelta(seconds=3)
"""Between polls of an operation, unless Azure asks for a longer time."""

_ASYNC: Final = "azure-asyncoperation"
_LOCATION: Final = "location"
_ACCEPTED: Final = 202


class OperationStatus(StrEnum):
    """The status of an operation; any other status of Azure is one in progress."""

    IN_PROGRESS = "InProgress"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELED = "Canceled"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationState:
    """The state of an operation."""

    status: OperationStatus
    error: ArmError | None = None
    """Of an operation that failed or was canceled."""
    retry_after: timedelta | None = None
    """The time that Azure asks to wait before the next poll."""

    @property
    def is_done(self) -> bool:
        """Whether the operation has ended."""
        return self.status is not OperationStatus.IN_PROGRESS


def operation_url(answer: ArmAnswer) -> str:
    """Return the URL of the operation that an answer names; empty if it names none."""
    return answer.headers.get(_ASYNC) or answer.headers.get(_LOCATION) or ""


def poll_operation(client: ArmClient, url: str, *, action: str) -> OperationState:
    """Return the state of an operation by one GET of its URL.

    Raises:
        ArmError: the poll was refused; `ArmNotFoundError` for an operation that Azure has forgotten.
        CloudProviderError: there is no answer, which says nothing about the operation.
    """
    return state_of_poll(client.follow(url, action=action))


def state_of_poll(answer: ArmAnswer) -> OperationState:
    """Return the state that the answer of an operation's URL tells.

    A body with `status` is that of `Azure-AsyncOperation`; else the HTTP status decides, as for `Location`.
    """
    wait = parse_retry_after(answer.headers.get("retry-after"))
    status: object = answer.body.get("status")
    if isinstance(status, str):
        return _state(status, answer.body, wait)
    is_open = answer.status == _ACCEPTED
    return OperationState(
        status=OperationStatus.IN_PROGRESS if is_open else OperationStatus.SUCCEEDED,
        retry_after=wait,
    )


def state_of_answer(answer: ArmAnswer) -> OperationState:
    """Return the state of an operation by the answer to the request that began it."""
    wait = parse_retry_after(answer.headers.get("retry-after"))
    if operation_url(answer):
        in_body = state_of_resource(answer.body) if answer.body else None
        if answer.status != _ACCEPTED and in_body is not None and in_body.is_done:
            return in_body
        return OperationState(status=OperationStatus.IN_PROGRESS, retry_after=wait)
    if answer.status == _ACCEPTED:
        return OperationState(status=OperationStatus.IN_PROGRESS, retry_after=wait)
    return state_of_resource(answer.body)


def state_of_resource(body: JsonMapping) -> OperationState:
    """Return the state that a resource tells by its `provisioningState`; without one it is done."""
    properties: object = body.get("properties")
    state: object = None
    if isinstance(properties, dict):
        state = cast("Mapping[str, object]", properties).get("provisioningState")
    return _state(state if isinstance(state, str) else OperationStatus.SUCCEEDED, body, None)


def _state(text: str, body: JsonMapping, wait: timedelta | None) -> OperationState:
    for status in OperationStatus:
        if status.lower() == text.lower():
            has_failed = status in {OperationStatus.FAILED, OperationStatus.CANCELED}
            error = _error(text, body) if has_failed else None
            return OperationState(status=status, error=error, retry_after=wait)
    return OperationState(status=OperationStatus.IN_PROGRESS, retry_after=wait)


def _error(status: str, body: JsonMapping) -> ArmError:
    wrapped: object = body.get("error")
    if isinstance(wrapped, dict):
        return error_of_body(body)
    return ArmError(f"the operation ended with the status {status} and names no error", code=status)
