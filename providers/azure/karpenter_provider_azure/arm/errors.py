"""Reads Azure Resource Manager's errors, and derives errors of calls.

An error is judged by the status of its answer first, because a throttled call has the same code as an
exceeded quota (`OperationNotAllowed`), and then by its codes. A failed long-running operation is
answered with status 200: its error is made by `error_of_body`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, cast

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.calls.failures import (
    AttemptFailure,
    AttemptFailureKind,
    FailedCall,
    core_error,
)
from karpenter_core.provider.kit.calls.http_failures import http_failure, parse_retry_after
from karpenter_provider_azure.json_values import object_of, objects_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta

    from karpenter_core.api.json_objects import JsonMapping

__all__ = [
    "ArmError",
    "ArmNotFoundError",
    "NoTokenError",
    "arm_failure",
    "call_error",
    "disallows_size",
    "error_of_answer",
    "error_of_body",
]

NOT_FOUND: Final = 404
_OK: Final = 200
_MISSING_RESOURCE: Final = frozenset({"resourcenotfound", "notfound"})
"""Codes of Azure Resource Manager and of the resource providers."""
_DISALLOWED: Final = "requestdisallowedbypolicy"
_SIZE_POLICY: Final = re.compile(
    r"virtual machine size|hardwareProfile\.vmSize|virtualMachines/sku\.name", re.IGNORECASE
)
_RETRY_MILLISECONDS: Final = ("retry-after-ms", "x-ms-retry-after-ms")
_DEEPEST: Final = 8
"""Errors within errors are read to this depth."""


class ArmError(CloudProviderError):
    """Azure refused a call, or a long-running operation failed.

    `codes` are the codes of the error, its details and its inner errors, the outer one first. Check
    `may_be_done`: an earlier attempt of the call was not answered and may have been carried out, so that
    a refusal such as 412 can be the answer to the call's own effect.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        status: int = _OK,
        codes: Sequence[str] = (),
        details: Sequence[str] = (),
        retry_after: timedelta | None = None,
        action: str = "",
        may_be_done: bool = False,
    ) -> None:
        text = ": ".join(part for part in (action, code or str(status), message) if part)
        super().__init__(f"{text} (it may have been carried out)" if may_be_done else text)
        self.code: Final = code
        """The outer code; empty if the answer has none."""
        self.message: Final = message
        self.status: Final = status
        """The HTTP status; 200 for a failed long-running operation."""
        self.codes: Final = tuple(codes) or ((code,) if code else ())
        self.details: Final = tuple(details)
        """The messages of details and inner errors."""
        self.retry_after: Final = retry_after
        self.action: Final = action
        self.may_be_done: Final = may_be_done

    @property
    def text(self) -> str:
        """All messages, for rules that look for a text."""
        return " ".join(part for part in (self.message, *self.details) if part)

    def of_call(self, action: str, *, may_be_done: bool) -> ArmError:
        """Return this error as the result of a call."""
        return type(self)(
            self.message,
            code=self.code,
            status=self.status,
            codes=self.codes,
            details=self.details,
            retry_after=self.retry_after,
            action=action,
            may_be_done=may_be_done,
        )


class ArmNotFoundError(ArmError):
    """The status is 404, whatever the code: the resource does not exist, or where it would be."""

    @property
    def is_of_resource(self) -> bool:
        """Whether the resource itself is missing, for certain.

        Azure answers with the same status if the resource group or subscription of a setting does not
        exist, or if it does not know the type of the resource; a proxy may answer so too.
        """
        return self.code.lower() in _MISSING_RESOURCE


class NoTokenError(CloudProviderError):
    """No credential gave a token, so that the call was not sent."""

    def __init__(self, message: str, *, is_unanswered: bool) -> None:
        super().__init__(message)
        self.is_unanswered: Final = is_unanswered
        """Whether the service that gives tokens did not answer."""


def error_of_body(body: JsonMapping) -> ArmError:
    """Return the error in a body: below `error` or flat, with details and inner errors.

    The status is 200: the body is that of a failed long-running operation, or of a batch.
    """
    return error_of_answer(_OK, body)


def error_of_answer(
    status: int, body: JsonMapping, headers: Mapping[str, str] | None = None
) -> ArmError:
    """Return the error of an answer; `headers` are by name in lower case."""
    errors = list(_nested_errors(body))
    outer = errors[0]
    codes = [str(error["code"]) for error in errors if error.get("code")]
    kind = ArmNotFoundError if status == NOT_FOUND else ArmError
    return kind(
        str(outer.get("message") or ""),
        code=str(outer.get("code") or ""),
        status=status,
        codes=tuple(dict.fromkeys(codes)),
        details=[
            *(str(error["message"]) for error in errors[1:] if error.get("message")),
            *_policy_fields(errors),
        ],
        retry_after=_retry_after(headers or {}),
    )


def _retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """Return the time that Azure asks to wait; services have three headers for it."""
    for name in _RETRY_MILLISECONDS:
        text = headers.get(name, "").strip()
        if text.isdecimal():
            return parse_retry_after(str(int(text) / 1000))
    return parse_retry_after(headers.get("retry-after"))


def arm_failure(error: Exception) -> AttemptFailure | None:
    """Return what a failed attempt means for its call; None if it is not one."""
    if isinstance(error, NoTokenError):
        unanswered = error.is_unanswered
        kind = AttemptFailureKind.UNANSWERED if unanswered else AttemptFailureKind.DENIED
        return AttemptFailure(kind=kind, message=str(error), code="NoToken")
    if not isinstance(error, ArmError):
        return None
    failure = http_failure(error.status, message=error.text, code=error.code)
    return AttemptFailure(
        kind=AttemptFailureKind.REFUSED if disallows_size(error) else failure.kind,
        message=failure.message,
        code=failure.code,
        retry_after=error.retry_after,
    )


def disallows_size(error: ArmError) -> bool:
    """Whether a policy of the subscription (status 403) refuses the VM size, and may permit another one.

    A policy tells the fields that it compared, or has a text of its own.
    """
    disallowed = any(code.lower() == _DISALLOWED for code in error.codes)
    return disallowed and _SIZE_POLICY.search(error.text) is not None


def call_error(call: FailedCall) -> CloudProviderError:
    """Return the error of a call that is not attempted again.

    A refusal stays an `ArmError`, with `may_be_done` of the whole call. Other failures become
    `UncertainCallError`, `ThrottledError` or `AuthError`.
    """
    cause = call.cause
    if isinstance(cause, ArmError) and call.failure.kind is AttemptFailureKind.REFUSED:
        return cause.of_call(call.action, may_be_done=call.may_be_done)
    return core_error(call)


def _nested_errors(body: JsonMapping) -> Iterator[JsonMapping]:
    """Yield an error, its details and its inner errors; the outer one first."""
    wrapped: object = body.get("error")
    error = cast("JsonMapping", wrapped) if isinstance(wrapped, dict) else body
    yield from _with_inner(error, depth=0)


def _with_inner(error: JsonMapping, *, depth: int) -> Iterator[JsonMapping]:
    yield error
    if depth == _DEEPEST:
        return
    details: object = error.get("details")
    parts = cast("list[object]", details) if isinstance(details, list) else []
    inner: object = error.get("innererror") or error.get("innerError")
    for part in (*parts, inner, _error_in_text(error.get("message"))):
        if isinstance(part, dict):
            yield from _with_inner(cast("JsonMapping", part), depth=depth + 1)


def _policy_fields(errors: Iterable[JsonMapping]) -> Iterator[str]:
    """Yield the fields that violated policies have compared (`additionalInfo` of `PolicyViolation`)."""
    for error in errors:
        for info in objects_of(error.get("additionalInfo")):
            evaluated = object_of(object_of(info.get("info")).get("evaluationDetails"))
            for each in objects_of(evaluated.get("evaluatedExpressions")):
                if each.get("path"):
                    yield str(each["path"])


def _error_in_text(message: object) -> object:
    """Return the error that a message consists of: services pass on answers of others as text."""
    if not isinstance(message, str) or not message.lstrip().startswith("{"):
        return None
    try:
        body: object = json.loads(message)
    except ValueError:
        return None
    if not isinstance(body, dict):
        return None
    content = cast("dict[str, object]", body)
    return content.get("error", content)
