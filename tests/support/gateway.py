"""A proxy between controller and API server that can refuse or kill.

Every request is forwarded as it is, watches included. A hook sees each write before it is sent on
and after it was answered, and may kill the controller or refuse the write. So a test can stop a
process between any two steps of a protocol without a line in production code that knows of it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Self, TypeAlias, final

import aiohttp
from aiohttp import web
from yarl import URL

from tests.support.kubeconfig import write_kubeconfig
from tests.support.processes import free_ports

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path
    from types import TracebackType

    from karpenter_core.testing.cluster import ClusterClient

__all__ = ["Gateway", "HookMoment", "ObservedWrite"]

WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
BOOKKEEPING: Final = ("/leases", "/events", "/selfsubjectaccessreviews")
"""Writes that are no step of any protocol."""
HOP_HEADERS: Final = frozenset(
    {"connection", "content-length", "host", "keep-alive", "transfer-encoding", "content-encoding"},
)
BODY_LIMIT: Final = 16 * 1024**2


class HookMoment(StrEnum):
    """Moment at which a hook is called."""

    BEFORE = "before"
    """The API server has not seen the write yet."""
    AFTER = "after"
    """The API server has done it; the controller does not know yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedWrite:
    """One write of the controller."""

    number: int
    """Counted from 1."""
    method: str
    path: str

    def __str__(self) -> str:
        return f"{self.number}: {self.method} {self.path}"


WriteHook: TypeAlias = "Callable[[ObservedWrite, HookMoment], Awaitable[bool]]"
"""Says whether to go on: False keeps the write, or the answer to it, from getting through."""


@final
class Gateway:
    """A reverse proxy on loopback; an async context manager.

    `kubeconfig` leads through it. `writes` lists what passed since the hook was last set.
    """

    __slots__ = ("_client", "_hook", "_runner", "_url", "kubeconfig", "writes")

    def __init__(self, client: ClusterClient, kubeconfig: Path) -> None:
        self._client: Final = client
        self._hook: WriteHook | None = None
        self._runner: web.AppRunner | None = None
        (port,) = free_ports(1)
        self._url: Final = f"http://127.0.0.1:{port}"
        self.kubeconfig: Final = kubeconfig
        self.writes: Final[list[ObservedWrite]] = []

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=BODY_LIMIT)
        app.router.add_route("*", "/{path:.*}", self._forward)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        write_kubeconfig(self.kubeconfig, self._url)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def port(self) -> int:
        """Port on loopback."""
        return int(self._url.rpartition(":")[2])

    def watch_writes(self, hook: WriteHook | None) -> None:
        """Call this for each write from now on; counting begins anew."""
        self._hook = hook
        self.writes.clear()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        write = self._write(request)
        body = await request.read()
        if write is not None and not await self._passes(write, HookMoment.BEFORE):
            return web.Response(status=HTTPStatus.BAD_GATEWAY)
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in HOP_HEADERS and name.lower() != "accept-encoding"
        }
        try:
            async with self._client.session.request(
                request.method,
                URL(f"{self._client.url}{request.raw_path}", encoded=True),
                data=body or None,
                headers=headers,
            ) as answer:
                if write is not None:
                    content = await answer.read()
                    if not await self._passes(write, HookMoment.AFTER):
                        return web.Response(status=HTTPStatus.BAD_GATEWAY)
                    kept = _kept_headers(answer)
                    return web.Response(status=answer.status, body=content, headers=kept)
                return await _pass_on(request, answer)
        except aiohttp.ClientConnectionError:
            return web.Response(status=HTTPStatus.BAD_GATEWAY)

    async def _passes(self, write: ObservedWrite, moment: HookMoment) -> bool:
        return self._hook is None or await self._hook(write, moment)

    def _write(self, request: web.Request) -> ObservedWrite | None:
        if request.method not in WRITES or any(part in request.path for part in BOOKKEEPING):
            return None
        write = ObservedWrite(number=len(self.writes) + 1, method=request.method, path=request.path)
        self.writes.append(write)
        return write


async def _pass_on(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=_kept_headers(answer))
    # A controller that was killed meanwhile no longer listens; that is what some tests are for.
    with contextlib.suppress(ConnectionError, aiohttp.ClientConnectionError):
        await response.prepare(request)
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
    return response


def _kept_headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {
        name: value for name, value in answer.headers.items() if name.lower() not in HOP_HEADERS
    }
