"""Entry of the embedded API server: faults, counts, stops and restarts."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from email.utils import format_datetime
from typing import TYPE_CHECKING, Final

from karpenter_core.kube.transport import ApiResponse
from karpenter_core.sim.apiserver import is_watch, render_error
from karpenter_core.sim.faults import ConnectionLostError, RequestFaults
from karpenter_core.sim.status import PageNotFoundError, StatusError
from karpenter_core.sim.watches import Watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from karpenter_core.kube.transport import ApiRequest
    from karpenter_core.sim.apiserver import ApiServer
    from karpenter_core.sim.faults import RequestFault

__all__ = ["ServerFrontend"]

_PATIENCE_SECONDS: Final = 60.0
"""The longest time that a client waits for an answer that is not a stream."""
_STREAM_HEADERS: Final = {"content-type": "application/json"}


class ServerFrontend:
    """Passes requests to the server while it is open."""

    def __init__(self, server: ApiServer) -> None:
        self.server: Final = server
        self.faults: Final = RequestFaults()
        self.requests: Final = Counter[tuple[str, str]]()
        """The number of requests, by verb (`watch` and `list` are two) and plural."""
        self._watches: Final = dict[Watch, None]()
        self._open = True
        self._date = (0, "")
        """The second of the last answer, since 1970, and its text."""

    def stop(self) -> None:
        """Refuse connections and break every watch; stored objects stay."""
        self._open = False
        for watch in tuple(self._watches):
            watch.stop(ConnectionLostError("the API server went away"))

    def start(self) -> None:
        """Accept requests again."""
        self._open = True

    async def respond(self, request: ApiRequest) -> ApiResponse:
        """Answer a request that is not a watch.

        Raises:
            ConnectionLostError: no answer, though the work may have been done.
        """
        faults = await self._enter(request)
        for fault in faults:
            if fault.is_refusal:
                return self._dated(render_error(fault.error()))
        response = self._dated(self.server.handle(request))
        for fault in faults:
            if fault.reply_latency_seconds:
                await asyncio.sleep(fault.reply_latency_seconds)
        if any(fault.drop_reply for fault in faults):
            raise ConnectionLostError("the reply was lost")
        return response

    async def watch(
        self, request: ApiRequest
    ) -> tuple[ApiResponse, AsyncIterator[list[bytes]] | None]:
        """Open a watch; return its head and its lines, no lines when it is refused.

        Raises:
            ConnectionLostError: no answer.
        """
        faults = await self._enter(request)
        try:
            for fault in faults:
                if fault.is_refusal:
                    raise fault.error()
            watch = self.server.watch(request)
        except (StatusError, PageNotFoundError) as error:
            return self._dated(render_error(error)), None
        limits = [each.drop_after_events for each in faults if each.drop_after_events is not None]
        lines = self._lines(request, watch, min(limits, default=None))
        return self._dated(ApiResponse(status=200, body=b"", headers=_STREAM_HEADERS)), lines

    def _dated(self, response: ApiResponse) -> ApiResponse:
        """Add the server's time, as every HTTP server does."""
        now = self.server.clock.now()
        second = int(now.timestamp())
        if self._date[0] != second:
            self._date = second, format_datetime(now, usegmt=True)
        return replace(response, headers={**response.headers, "date": self._date[1]})

    async def _enter(self, request: ApiRequest) -> list[RequestFault]:
        self._require_open()
        self.requests[_verb(request), _plural(request.path)] += 1
        faults = self.faults.take(request)
        for fault in faults:
            if fault.latency_seconds:
                await asyncio.sleep(fault.latency_seconds)
            if fault.drop_request:
                raise ConnectionLostError("the request was lost")
            if fault.is_unanswered and is_watch(request):
                await asyncio.Event().wait()
            if fault.is_unanswered:
                await asyncio.sleep(_PATIENCE_SECONDS)
                raise ConnectionLostError("no answer in time")
        self._require_open()
        return faults

    def _require_open(self) -> None:
        if not self._open:
            raise ConnectionLostError("connection refused")

    async def _lines(
        self, request: ApiRequest, watch: Watch, limit: int | None
    ) -> AsyncIterator[list[bytes]]:
        self._watches[watch] = None
        sent = 0
        try:
            async for batch in watch.batches():
                if self.faults.silence(request):
                    await asyncio.Event().wait()
                if limit is not None and sent + len(batch) > limit:
                    yield batch[: limit - sent]
                    raise ConnectionLostError("the watch was broken off")
                sent += len(batch)
                yield batch
        finally:
            self._watches.pop(watch, None)


def _verb(request: ApiRequest) -> str:
    if request.method != "GET":
        return request.method.lower()
    if is_watch(request):
        return "watch"
    return "get" if _names_object(request.path) else "list"


def _kind_parts(path: str) -> list[str]:
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    return rest[2:] if rest[:1] == ["namespaces"] and rest[2:] else rest


def _names_object(path: str) -> bool:
    return bool(_kind_parts(path)[1:])


def _plural(path: str) -> str:
    plural, _name, subresource = (*_kind_parts(path), "", "", "")[:3]
    return f"{plural}/{subresource}" if subresource else plural
