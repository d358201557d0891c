"""HTTP servers: metrics and decisions, health probes, and the dashboard."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping

    from aiohttp import web
    from prometheus_client import CollectorRegistry

    from karpenter_core.operator.metrics_access import AccessReviewer
    from karpenter_core.operator.serving_certificate import ServingCertificate

__all__ = ["FurtherServer", "HttpServers", "ReadinessCheck"]


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
        self._runners: list[web.AppRunner] = []
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
        for runner in reversed(self._runners):
            await runner.cleanup()
        self._runners.clear()

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

        async def metrics(request: web.Request) -> web.StreamResponse:
            # A large cluster has a hundred mebibytes of series; the loop has leases to renew. So
            # they are written in a thread, and sent piece by piece.
            pieces = exposition(self._registry)
            piece = await asyncio.to_thread(next, pieces, b"")
            response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE_LATEST})
            await response.prepare(request)
            while piece and request.method != "HEAD":
                await response.write(piece)
                piece = await asyncio.to_thread(next, pieces, b"")
            await response.write_eof()
            return response

        guards = () if self._reviewer is None else (_guard(self._reviewer),)
        app = web.Application(middlewares=guards)
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
        from aiohttp import web

        from karpenter_core.errors import SettingsError

        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        self._runners.append(runner)
        site = web.TCPSite(runner, address, port, ssl_context=tls)
        try:
            await site.start()
        except OSError as error:
            where = f"port {port} of {address}" if address else f"port {port}"
            message = f"{option}: cannot listen on {where}: {error.strerror or error}"
            raise SettingsError(message) from error
        host_and_port: tuple[str, int] = runner.addresses[0]
        return host_and_port[1]


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
