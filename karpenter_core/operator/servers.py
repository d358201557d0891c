"""HTTP servers: metrics and decisions, health probes, and the dashboard."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping

    from aiohttp import web
    from prometheus_client import CollectorRegistry

    from karpenter_core.operator.bounded_listener import BoundedListener
    from karpenter_core.operator.metrics_access import AccessReviewer
    from karpenter_core.operator.serving_certificate import ServingCertificate

__all__ = ["FurtherServer", "HttpServers", "ReadinessCheck"]

MOST_ANSWERS: Final = 8
"""Requests to the metrics port that are answered at the same time."""
ANSWER_SECONDS: Final = 60.0
"""Time until an answer has been read; a scraper gives up much earlier."""
SCRAPE_THREADS: Final = 2
"""Scrapes that write series at the same time; the others wait for their turn, piece by piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessCheck:
    """One thing that readiness depends on; `failure` returns None when all is well."""

    name: str
    failure: Callable[[], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherServer:
    """An application on a port of its own; it protects itself, and is served over TLS as metrics are."""

    make_app: Callable[[], web.Application]
    address: str
    """Empty = every interface."""
    port: int
    option: str
    """Name of the setting of the port, for messages."""


@final
class HttpServers:
    """`/metrics` on one port; `/healthz` and `/readyz` on another (0 = a free one)."""

    def __init__(
        self,
        *,
        registry: CollectorRegistry,
        checks: tuple[ReadinessCheck, ...],
        address: str,
        metrics_address: str = "",
        probe_address: str = "",
        metrics_port: int,
        probe_port: int,
        certificate: ServingCertificate | None = None,
        reviewer: AccessReviewer | None = None,
        extra_routes: Mapping[str, Callable[[], str]] | None = None,
        slow_routes: Mapping[str, Callable[[Mapping[str, str]], str]] | None = None,
        json_routes: Mapping[str, Callable[[Mapping[str, str]], bytes]] | None = None,
        dashboard: FurtherServer | None = None,
    ) -> None:
        """`address` is that of both servers, unless one has its own; empty = every interface.

        `certificate` and `reviewer` protect everything on the metrics port. `slow_routes` and
        `json_routes` are given the query, and refuse it by a BadInputError. Slow ones run in a thread.
        """
        self._registry = registry
        self._checks = checks
        self._addresses = (metrics_address or address or None, probe_address or address or None)
        self._certificate = certificate
        self._reviewer = reviewer
        self._ports = (metrics_port, probe_port)
        self._extra_routes = dict(extra_routes or {})
        self._slow_routes = dict(slow_routes or {})
        self._json_routes = dict(json_routes or {})
        self._dashboard = dashboard
        self._listeners: list[BoundedListener] = []
        self.dashboard_port = 0 if dashboard is None else dashboard.port
        self.metrics_port = metrics_port
        self.probe_port = probe_port

    async def start(self) -> None:
        """Bind the ports.

        Raises:
            SettingsError: a port is taken.
        """
        tls = None if self._certificate is None else self._certificate.context
        app, address = self._metrics_app(), self._addresses[0]
        self.metrics_port = await self._serve(app, address, self._ports[0], "metrics-port", tls)
        app, address = self._probe_app(), self._addresses[1]
        self.probe_port = await self._serve(app, address, self._ports[1], "health-probe-port")
        if (further := self._dashboard) is not None:
            app, address = further.make_app(), further.address or None
            self.dashboard_port = await self._serve(app, address, further.port, further.option, tls)

    async def stop(self) -> None:
        """Close all of them."""
        for listener in reversed(self._listeners):
            await listener.stop()
        self._listeners.clear()

    def failures(self) -> dict[str, str]:
        """Return the failed readiness checks, by name."""
        failures: dict[str, str] = {}
        for check in self._checks:
            failure = check.failure()
            if failure is not None:
                failures[check.name] = failure
        return failures

    def _metrics_app(self) -> web.Application:
        from aiohttp import web
        from prometheus_client import CONTENT_TYPE_LATEST

        from karpenter_core.operator.exposition import exposition

        threads = asyncio.Semaphore(SCRAPE_THREADS)

        async def next_piece(pieces: Iterator[bytes]) -> bytes:
            async with threads:
                return await asyncio.to_thread(next, pieces, b"")

        async def metrics(request: web.Request) -> web.StreamResponse:
            # A large cluster has a hundred mebibytes of series; the loop has leases to renew. So
            # they are written in a thread, and sent piece by piece.
            response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE_LATEST})
            pieces = exposition(self._registry)
            piece = await next_piece(pieces)
            async with _read_in_time(request):
                await response.prepare(request)
                while piece and request.method != "HEAD":
                    await response.write(piece)
                    piece = await next_piece(pieces)
                await response.write_eof()
            return response

        guards = () if self._reviewer is None else (_guard(self._reviewer),)
        app = web.Application(middlewares=(*guards, _limit_answers()))
        app.router.add_get("/metrics", metrics)
        for path, render in self._extra_routes.items():
            app.router.add_get(path, _text_handler(render))
        for path, render_slowly in self._slow_routes.items():
            app.router.add_get(path, _slow_handler(render_slowly))
        for path, answer in self._json_routes.items():
            app.router.add_get(path, _json_handler(answer))
        return app

    def _probe_app(self) -> web.Application:
        from aiohttp import web

        async def healthy(_request: web.Request) -> web.Response:
            return web.Response(text="ok")

        async def ready(_request: web.Request) -> web.Response:
            failures = self.failures()
            lines = [
                f"[-]{check.name} failed: {failures[check.name]}"
                if check.name in failures
                else f"[+]{check.name} ok"
                for check in self._checks
            ]
            return web.Response(text="\n".join([*lines, ""]), status=500 if failures else 200)

        app = web.Application()
        app.router.add_get("/healthz", healthy)
        app.router.add_get("/readyz", ready)
        return app

    async def _serve(
        self,
        app: web.Application,
        address: str | None,
        port: int,
        option: str,
        tls: ssl.SSLContext | None = None,
    ) -> int:
        from karpenter_core.errors import SettingsError
        from karpenter_core.operator.bounded_listener import BoundedListener

        listener = BoundedListener(app, tls=tls)
        self._listeners.append(listener)
        try:
            return await listener.start(address, port)
        except OSError as error:
            where = f"port {port} of {address}" if address else f"port {port}"
            message = f"{option}: cannot listen on {where}: {error.strerror or error}"
            raise SettingsError(message) from error


def _limit_answers():  # noqa: ANN202 - aiohttp's middleware type is private
    """Return the middleware that refuses requests beyond the limit, and ends slow answers."""
    from aiohttp import web

    answering = 0

    @web.middleware
    async def limit(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        nonlocal answering
        if answering >= MOST_ANSWERS:
            text = "too many requests are being answered\n"
            return web.Response(text=text, status=503, headers={"Retry-After": "5"})
        answering += 1
        try:
            response = await handler(request)
            if not response.prepared:
                async with _read_in_time(request):
                    await response.prepare(request)
                    await response.write_eof()
            return response
        finally:
            answering -= 1

    return limit


@asynccontextmanager
async def _read_in_time(request: web.Request) -> AsyncGenerator[None]:
    """Close the connection if the reader takes too long for what the block writes."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            yield
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()


def _guard(reviewer: AccessReviewer):  # noqa: ANN202 - aiohttp's middleware type is private
    """Return the middleware that lets a request pass if its token is permitted the path."""
    from aiohttp import web

    @web.middleware
    async def guard(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        status = await reviewer.status(
            request.headers.get("Authorization", ""), method=request.method, path=request.path
        )
        if status is HTTPStatus.OK:
            return await handler(request)
        headers = {"WWW-Authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else None
        return web.Response(text=f"{status.phrase}\n", status=status, headers=headers)

    return guard


def _text_handler(render: Callable[[], str]):  # noqa: ANN202 - aiohttp's handler type is private
    from aiohttp import web

    async def handle(_request: web.Request) -> web.Response:
        return web.Response(text=render())

    return handle


def _slow_handler(render: Callable[[Mapping[str, str]], str]):  # noqa: ANN202 - see above
    from aiohttp import web

    from karpenter_core.errors import BadInputError

    async def handle(request: web.Request) -> web.Response:
        try:
            text = await asyncio.to_thread(render, dict(request.query))
        except BadInputError as error:
            return web.Response(text=f"{error}\n", status=400)
        return web.Response(text=text)

    return handle


def _json_handler(answer: Callable[[Mapping[str, str]], bytes]):  # noqa: ANN202 - see above
    from aiohttp import web

    from karpenter_core.errors import BadInputError

    async def handle(request: web.Request) -> web.Response:
        try:
            body = answer(request.query)
        except BadInputError as error:
            return web.Response(text=f"{error}\n", status=400)
        return web.Response(body=body, content_type="application/json")

    return handle
