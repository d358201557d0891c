"""Faults for tests: which requests fail, how, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.sim.status import PageNotFoundError, StatusError

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.kube.transport import ApiRequest

__all__ = ["ConnectionLostError", "RequestFault", "RequestFaults", "matching"]

_REASONS: Final = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class ConnectionLostError(ConnectionError):
    """The client gets no answer, or no more of it."""


@dataclass(slots=True, kw_only=True)
class RequestFault:
    """A fault of the requests that match; several sorts may be combined."""

    matches: Callable[[ApiRequest], bool]
    times: int | None = 1
    """The number of requests that fail; None is all of them."""
    after: int = 0
    """The number of matching requests that succeed first."""
    latency_seconds: float = 0.0
    """The delay before the request is processed."""
    reply_latency_seconds: float = 0.0
    """The delay of the answer, after the request was processed."""
    status: int = 0
    """The status code of the refusal; the request is not processed."""
    message: str = ""
    """The message of the refusal, as of a webhook; else its status code is."""
    is_page: bool = False
    """Answer 404 with a page of text, as a proxy does."""
    retry_after_seconds: int = 0
    drop_reply: bool = False
    """Process the request and lose the answer."""
    drop_request: bool = False
    """Lose the request before it is processed."""
    drop_after_events: int | None = None
    """The number of events after which a watch breaks."""
    is_silent: bool = False
    """Send nothing more on watches, open ones included; these stay silent when the fault ends."""
    is_unanswered: bool = False
    """Never answer, not even with headers; clients give up, except on watches."""

    @property
    def is_refusal(self) -> bool:
        """Whether the request gets an error as its answer."""
        return self.status > 0 or self.is_page

    def error(self) -> StatusError | PageNotFoundError:
        """Return the refusal."""
        if self.is_page:
            return PageNotFoundError()
        return StatusError(
            self.status,
            _REASONS.get(self.status, ""),
            self.message or f"injected fault {self.status}",
            retry_after_seconds=self.retry_after_seconds,
        )


class RequestFaults:
    """The active faults."""

    def __init__(self) -> None:
        self._faults: Final[list[RequestFault]] = []
        self.hits = 0

    def add(self, fault: RequestFault) -> RequestFault:
        """Activate a fault."""
        self._faults.append(fault)
        return fault

    def remove(self, fault: RequestFault) -> None:
        """End a fault, if it is still active."""
        self._faults[:] = [each for each in self._faults if each is not fault]

    def clear(self) -> None:
        """End all faults."""
        self._faults.clear()

    def silence(self, request: ApiRequest) -> bool:
        """Return whether an open watch must send nothing more."""
        return any(fault.is_silent and fault.matches(request) for fault in self._faults)

    def take(self, request: ApiRequest) -> list[RequestFault]:
        """Return the faults of this request, and count them."""
        hitting: list[RequestFault] = []
        for fault in tuple(self._faults):
            if not fault.matches(request):
                continue
            if fault.after:
                fault.after -= 1
                continue
            hitting.append(fault)
            if fault.times is not None:
                fault.times -= 1
                if fault.times <= 0:
                    self._faults.remove(fault)
        self.hits += len(hitting)
        return hitting


def matching(
    method: str = "", path: str = "", *, watch: bool | None = None
) -> Callable[[ApiRequest], bool]:
    """Match requests by method, by a part of the path, and by whether they watch."""

    def matches(request: ApiRequest) -> bool:
        if watch is not None and ("watch" in request.query) is not watch:
            return False
        return method in {"", request.method} and path in request.path

    return matches
