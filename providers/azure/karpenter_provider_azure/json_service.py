"""Calls other JSON services of Azure: prices, image tokens, bootstrapping.

They need none of the SDK's credentials. Each is called seldom, so no connection is kept.
"""

from __future__ import annotations

import json
import time
from http.client import HTTPException
from typing import TYPE_CHECKING, Final, cast, final
from urllib.error import HTTPError
from urllib.request import Request

from karpenter_core.provider.kit.calls.bounded_reads import (
    UnusableAnswerError,
    direct_opener,
    read_bounded,
)
from karpenter_core.provider.kit.calls.caller import CloudCaller
from karpenter_core.provider.kit.calls.http_failures import http_failure
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_core.provider.kit.calls.caller import AttemptObserver
    from karpenter_core.provider.kit.calls.failures import AttemptFailure

__all__ = ["JsonService"]

TIMEOUT_SECONDS: Final = 20
_RETRIES: Final = RetryPolicy(
    throttled_attempts=3, longest_backoff_seconds=10, longest_call_seconds=60
)
_SHOWN: Final = 200


class _ServiceError(Exception):
    """A request failed; status 0 is no answer."""

    def __init__(self, message: str, *, status: int, retry_after: str | None = None) -> None:
        super().__init__(message)
        self.status: Final = status
        self.retry_after: Final = retry_after


@final
class JsonService:
    """Sends requests whose answers are JSON objects; callable from any thread.

    Both methods raise the kit's errors of calls: `ThrottledError`, `AuthError`, `UncertainCallError` or
    another CloudProviderError.
    """

    def __init__(
        self,
        *,
        ca_bundle: str = "",
        timeout_seconds: float = TIMEOUT_SECONDS,
        observe: AttemptObserver | None = None,
        sleep: Callable[[float], None] = time.sleep,
        retries: RetryPolicy | None = None,
    ) -> None:
        """`ca_bundle` is a file of certificates, by default the system's."""
        self._timeout_seconds: Final = timeout_seconds
        self._opener: Final = direct_opener(ca_bundle=ca_bundle)
        self._caller: Final = CloudCaller(
            _failure, policy=retries or _RETRIES, observe=observe, sleep=sleep
        )

    def get(self, url: str, *, action: str) -> JsonObject:
        """Return the answer to a GET; `action` is the name for metrics and errors."""
        request = _request(url, {})
        return self._call(lambda: self._send(request), action)

    def post(
        self,
        url: str,
        body: JsonMapping,
        *,
        action: str,
        headers: Mapping[str, str] | None,
    ) -> JsonObject:
        """Return the answer to a POST, which the service may receive more than once."""
        data = json.dumps(body, separators=(",", ":"), sort_keys=True).encode()
        request = _request(url, {"Content-Type": "application/json", **(headers or {})}, data)
        return self._call(lambda: self._send(request), action)

    def _call(self, attempt: Callable[[], JsonObject], action: str) -> JsonObject:
        return self._caller.call(attempt, action=action, operation_class=action)

    def _send(self, request: Request) -> JsonObject:
        try:
            with self._opener.open(request, timeout=self._timeout_seconds) as answer:
                text = read_bounded(answer, seconds=self._timeout_seconds)
                body: object = json.loads(text)
        except HTTPError as error:
            with error:
                raise _ServiceError(
                    _message(error),
                    status=error.code,
                    retry_after=error.headers.get("Retry-After"),
                ) from error
        except (
            OSError,
            HTTPException,
            ValueError,
            RecursionError,
            UnusableAnswerError,
        ) as error:
            raise _ServiceError(str(error), status=0) from error
        if not isinstance(body, dict):
            raise _ServiceError("the answer is no JSON object", status=0)
        return cast("JsonObject", body)


def _request(url: str, headers: Mapping[str, str], data: bytes | None = None) -> Request:
    return Request(  # noqa: S310 - configured
        url, data=data, headers={"Accept": "application/json", **headers}
    )


def _message(error: HTTPError) -> str:
    try:
        text = error.read(_SHOWN).decode(errors="replace").strip()
    except (OSError, HTTPException):
        text = ""
    return text or str(error.reason)


def _failure(error: Exception) -> AttemptFailure | None:
    if not isinstance(error, _ServiceError):
        return None
    return http_failure(error.status, message=str(error), retry_after=error.retry_after)
