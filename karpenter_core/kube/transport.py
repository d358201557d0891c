"""The port through which every byte to and from an API server passes.

Two adapters: HTTP through the official client's session (`kube.client`), and a direct call into
the embedded API server (`sim.direct`). Informers, writer and lease know only this.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

__all__ = ["LINE_TOO_LONG", "NO_ANSWER", "UNREACHABLE", "ApiRequest", "ApiResponse", "Transport"]

# Reasons of an ApiError with status 0.
UNREACHABLE: Final = "Unreachable"
"""The request never left: sending it again is safe, whatever it is."""
NO_ANSWER: Final = "NoAnswer"
"""It was sent and no (whole) answer came: it may have been done."""
LINE_TOO_LONG: Final = "LineTooLong"
"""A line of a stream does not fit the buffer: list instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """One HTTP request to an API server; `path` starts with a slash and holds no query."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    content_type: str = "application/json"
    accept: str = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResponse:
    """A response; header names are in lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class Transport(Protocol):
    """Sends requests to an API server."""

    async def request(self, request: ApiRequest) -> ApiResponse:
        """Send a request and read the whole answer.

        Raises:
            ApiError: with status 0 when no answer came (connection refused, reset, timed out).
        """
        ...

    def stream(
        self, request: ApiRequest
    ) -> AbstractAsyncContextManager[tuple[ApiResponse, AsyncIterator[bytes]]]:
        """Send a request and iterate over the lines of its answer (a watch).

        The response's body is empty unless its status is an error.

        Raises:
            ApiError: with status 0 when no answer came or the stream broke.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
