"""Calls a JSON REST API by the standard library and `CloudCaller`'s policy.

    class Server(msgspec.Struct):
        id: str
        state: str

    client = RestClient(endpoint, headers={"Authorization": f"Bearer {token}"}, timeout=timeout)
    server = client.find("get server", f"/v1/servers/{server_id}", Server)  # None for 404

Answers are decoded by msgspec: a number that the cloud sends as text is a `str` field.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar, cast, final
from urllib.parse import urlencode

import msgspec

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.calls.bounded_reads import (
    MOST_ANSWER_BYTES,
    UnusableAnswerError,
    direct_opener,
    read_bounded,
)
from karpenter_core.provider.kit.calls.caller import CloudCaller
from karpenter_core.provider.kit.calls.failures import (
    AttemptFailure,
    AttemptFailureKind,
    FailedCall,
    core_error,
)
from karpenter_core.provider.kit.calls.http_failures import parse_retry_after
from karpenter_core.provider.kit.calls.operation_limits import OperationLimits
from karpenter_core.provider.kit.calls.pages import EndlessListingError, token_pages
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta
    from email.message import Message
    from http.client import HTTPResponse

    from karpenter_core.provider.kit.calls.caller import AttemptObserver
    from karpenter_core.provider.kit.calls.operation_limits import CallRate

__all__ = ["FEW_RETRIES", "RestClient", "RestRefusedError"]

T = TypeVar("T")

FEW_RETRIES: Final = RetryPolicy(
    throttled_attempts=2, transient_attempts=2, longest_backoff_seconds=2
)
"""For calls in hooks: the core retries too, and a longer wait between its attempts holds no thread."""

_REPEATABLE: Final = frozenset({"GET", "PUT", "DELETE"})
_NOT_FOUND: Final = 404
_THROTTLED: Final = 429
_DENIED: Final = frozenset({401, 403})
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_TEXT_CHARACTERS: Final = 1000
"""Bound of each text that an error repeats."""
_FAULTS: Final = 500
"""The first status of the cloud's own faults, after which a call may have been carried out."""


class RestRefusedError(CloudProviderError):
    """The cloud refused a call, and did not carry it out; of other statuses than 401, 403 and 429."""

    def __init__(
        self, call: str, status: int, body: Mapping[str, object], headers: Message | None = None
    ) -> None:
        """`call` names action and path."""
        self.code: Final = _cut(body.get("code", ""))
        """The field `code` of the answer."""
        text = _cut(body.get("message", "")) or "no message"
        parts = (f"{call} was refused with status {status}", self.code, text)
        super().__init__(": ".join(part for part in parts if part))
        self.status: Final = status
        self.body: Final = body
        """The answer; empty if it is no JSON object."""
        self.headers: Final = headers


@final
class RestClient:
    """Calls one API; callable from any thread.

    GET, PUT and DELETE are repeated after a failure, POST and PATCH only after throttling: a request
    without an answer may have been carried out (`UncertainCallError`). GET is the operation class
    `read`, the rest is `write`. Every method raises `ThrottledError` for 429, `AuthError` for 401 and
    403, `RestRefusedError` for other refusals, and `CloudProviderError` if there is no answer.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        headers: Mapping[str, str] | Callable[[], Mapping[str, str]],
        timeout: timedelta,
        error_of: Callable[[str, str], CloudProviderError | None] = lambda _code, _message: None,
        rates: Mapping[str, CallRate] | None = None,
        policy: RetryPolicy = FEW_RETRIES,
        observe: AttemptObserver | None = None,
        most_bytes: int = MOST_ANSWER_BYTES,
    ) -> None:
        """`timeout` is for each attempt; `headers` may be a function that is called for each.

        An answer larger than `most_bytes` is no answer. Redirects are refusals.

        `error_of` returns the core's error for the code and message of a refusal; None leaves it a
        `RestRefusedError`. `rates` are those of the operation classes `read` and `write`.
        """
        self._error_of: Final = error_of
        self._endpoint: Final = endpoint.rstrip("/")
        self._headers: Final = headers if callable(headers) else lambda: headers
        self._timeout_seconds: Final = timeout.total_seconds()
        self._most_bytes: Final = most_bytes
        self._opener: Final = direct_opener()
        self._caller: Final = CloudCaller(
            _attempt_failure,
            policy=policy,
            limits=OperationLimits(monotonic=monotonic, rates=rates),
            make_error=self._error,
            observe=observe,
        )

    def get(self, action: str, path: str, answer: type[T], **query: str) -> T:
        """Return the decoded answer to a GET."""
        return self.call(action, "GET", path, answer, query=query)

    def find(
        self, action: str, path: str, answer: type[T], *, method: str = "GET", body: object = None
    ) -> T | None:
        """Return the decoded answer, or None for 404."""
        try:
            return self.call(action, method, path, answer, body=body)
        except RestRefusedError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    def pages(
        self,
        action: str,
        path: str,
        key: str,
        item: type[T],
        *,
        page_query: str = "page_token",
        **query: str,
    ) -> list[T]:
        """Return the items of a listing: those under `key` of each page.

        A page names the next one in the field `next`, which is sent as the query parameter `page_query`.

        Raises:
            CloudProviderError: also if a page lacks `key`, an item cannot be read, or the pages do not end.
        """
        found: list[T] = []
        try:
            for page in token_pages(
                lambda at: self.get(
                    action,
                    path,
                    dict[str, msgspec.Raw],
                    **query,
                    **({page_query: at} if at else {}),
                ),
                lambda page: msgspec.json.decode(page.get("next", b"null"), type=str | None),
                listing=action,
            ):
                if key not in page:
                    raise CloudProviderError(f"{action}: the answer has no field {key!r}")
                found += msgspec.json.decode(page[key], type=list[item])
        except (*_UNREADABLE, EndlessListingError) as error:
            raise CloudProviderError(f"{action}: {error}") from error
        return found

    def call(
        self,
        action: str,
        method: str,
        path: str,
        answer: type[T],
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        repeatable: bool | None = None,
    ) -> T:
        """Make a call, and decode its answer; an empty answer is decoded as `{}`.

        `action` names the call in errors and metrics, without ids. Ids in `path` are quoted by the caller.
        `repeatable` says whether a call without an answer may be made again; None goes by the method.
        """
        path += f"?{urlencode(query)}" if query else ""
        data = None if body is None else msgspec.json.encode(body)
        return self._caller.call(
            lambda: msgspec.json.decode(
                self._send(action, method, path, data) or b"{}", type=answer
            ),
            action=action,
            operation_class="read" if method == "GET" else "write",
            repeatable=method in _REPEATABLE if repeatable is None else repeatable,
        )

    def _send(self, action: str, method: str, path: str, data: bytes | None) -> bytes:
        from urllib.error import HTTPError
        from urllib.request import Request

        headers = {"Content-Type": "application/json", **self._headers()}
        request = Request(  # noqa: S310 - the endpoint is the operator's setting
            self._endpoint + path, data=data, headers=headers, method=method
        )
        try:
            with self._opener.open(request, timeout=self._timeout_seconds) as answer:
                return self._read(answer)
        except HTTPError as error:
            with error:
                # An HTTPError reads from the answer that it was made of.
                body = _object(self._read(cast("HTTPResponse", error.fp)))
                raise RestRefusedError(
                    f"{action} ({path})", error.code, body, error.headers
                ) from error

    def _read(self, answer: HTTPResponse) -> bytes:
        return read_bounded(answer, seconds=self._timeout_seconds, most_bytes=self._most_bytes)

    def _error(self, call: FailedCall) -> Exception:
        if call.failure.kind is not AttemptFailureKind.REFUSED or call.cause is None:
            return core_error(call)
        return self._error_of(call.failure.code, str(call.cause)) or call.cause


def _cut(value: object) -> str:
    text = str(value)
    return text if len(text) <= _TEXT_CHARACTERS else f"{text[:_TEXT_CHARACTERS]}…"


def _object(text: bytes) -> Mapping[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except _UNREADABLE:
        return {}


def _attempt_failure(error: Exception) -> AttemptFailure | None:
    from http.client import HTTPException

    if not isinstance(error, RestRefusedError):
        unanswered = (OSError, HTTPException, UnusableAnswerError, *_UNREADABLE)
        kind = AttemptFailureKind.UNANSWERED
        return (
            AttemptFailure(kind=kind, message=str(error)) if isinstance(error, unanswered) else None
        )
    if error.status == _THROTTLED:
        kind = AttemptFailureKind.THROTTLED
    elif error.status in _DENIED:
        kind = AttemptFailureKind.DENIED
    elif error.status >= _FAULTS:
        kind = AttemptFailureKind.UNANSWERED
    else:
        kind = AttemptFailureKind.REFUSED
    return AttemptFailure(
        kind=kind,
        message=str(error),
        code=error.code or str(error.status),
        retry_after=parse_retry_after(error.headers.get("Retry-After") if error.headers else None),
    )
