"""Serves the dashboard's page, documents, and changes as server-sent events.

Only GET is answered. The page itself has no data: with token authentication it is served to anybody,
and asks for the token that the documents below `/dashboard/` need. That prefix is not `/api/`, which
the default roles of Kubernetes let every user get.
"""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus
from importlib import resources
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlsplit

import msgspec
import structlog

from karpenter_core.errors import BadInputError, KarpenterError
from karpenter_core.operator.dashboard.feed import UnavailableError
from karpenter_core.operator.dashboard.subscribers import Subscriber

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from karpenter_core.operator.dashboard.feed import DashboardFeed
    from karpenter_core.operator.metrics_access import AccessReviewer

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

__all__ = ["DashboardServer"]

PREFIX: Final = "/dashboard/v1"
_PACKAGE: Final = "karpenter_core.operator.dashboard"
STREAM_SECONDS: Final = 600.0
"""Length of a stream: a page opens it anew, and its token is reviewed again."""
WRITE_SECONDS: Final = 10.0
KEEP_ALIVE_SECONDS: Final = 15.0
MOST_REQUESTS: Final = 50
"""Requests for documents that are answered at the same time; streams have a limit of their own."""
BUFFER_BYTES: Final = 1 << 20
"""The most that waits in a connection before the queue of its viewer fills."""
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_FILES: Final = {
    "/": ("index.html", "text/html"),
    "/style.css": ("style.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/app.js": ("app.js", "text/javascript"),
    "/client.js": ("client.js", "text/javascript"),
    "/details.js": ("details.js", "text/javascript"),
    "/format.js": ("format.js", "text/javascript"),
    "/elements.js": ("elements.js", "text/javascript"),
}


@final
class DashboardServer:
    """Routes of the dashboard; `HttpServers` binds them to a port."""

    def __init__(
        self, feed: DashboardFeed, *, address: str, reviewer: AccessReviewer | None
    ) -> None:
        """`address` is the one that is bound: on loopback, only names of loopback are answered."""
        self._feed: Final = feed
        self._is_local: Final = _is_loopback(address)
        self._reviewer: Final = reviewer
        self._answering = 0

    def make_app(self) -> web.Application:
        """Return the application."""
        from aiohttp import web

        if not self._is_local and self._reviewer is None:
            structlog.get_logger("dashboard").warning(
                "the dashboard needs no token; set metrics-token-auth, or bind it to 127.0.0.1",
                setting="dashboard-bind-address",
            )
        app = web.Application(middlewares=[self._make_guard()])
        app.on_response_prepare.append(_add_headers)
        for path, (name, content_type) in _FILES.items():
            app.router.add_get(path, _file_handler(name, content_type), allow_head=False)
        for path, handler in (
            ("state", self._state),
            ("events", self._events),
            ("pods", self._pods),
            ("explain", self._explain),
            ("rebalance", self._rebalance),
        ):
            app.router.add_get(f"{PREFIX}/{path}", handler, allow_head=False)
        return app

    def _make_guard(self):  # noqa: ANN202 - aiohttp's middleware type is private
        from aiohttp import web

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            refusal = self._refusal(request)
            if refusal is None:
                refusal = await self._review(request)
            if refusal is not None:
                return refusal
            try:
                return await handler(request)
            except BadInputError as error:
                return _problem(HTTPStatus.BAD_REQUEST, str(error))
            except UnavailableError as error:
                return _problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error), **{"Retry-After": "5"})
            except KarpenterError as error:
                return _problem(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))

        return guard

    def _refusal(self, request: web.Request) -> web.Response | None:
        """Return the refusal of a request that is wrong from any sender."""
        if request.method != "GET":
            return _problem(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered", Allow="GET")
        # A name of another site may point at loopback: its page would be of the same origin.
        if self._is_local and not _is_loopback(_host_of(request)):
            return _problem(HTTPStatus.FORBIDDEN, "this address serves localhost only")
        if request.headers.get("Sec-Fetch-Site") == "cross-site" and request.path != "/":
            return _problem(HTTPStatus.FORBIDDEN, "requests of other sites are refused")
        return None

    async def _review(self, request: web.Request) -> web.Response | None:
        """Return the refusal of a request whose token is not permitted the path."""
        if self._reviewer is None or not request.path.startswith("/dashboard/"):
            return None
        status = await self._reviewer.status(
            request.headers.get("Authorization", ""), method="GET", path=request.path
        )
        if status is HTTPStatus.OK:
            return None
        if status is HTTPStatus.UNAUTHORIZED:
            challenge = {"WWW-Authenticate": "Bearer"}
            return _problem(status, "a bearer token is needed", **challenge)
        return _problem(status, status.phrase)

    async def _state(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, self._feed.state)

    async def _pods(self, request: web.Request) -> web.StreamResponse:
        _, name = _only_parameter(request, ("node",))
        return await self._answer(request, partial(self._feed.pods_of, name))

    async def _explain(self, request: web.Request) -> web.StreamResponse:
        kind, name = _only_parameter(request, ("node", "pod"))
        return await self._answer(request, partial(self._feed.explain, kind, name))

    async def _rebalance(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, self._feed.rebalance)

    async def _answer(
        self, request: web.Request, make: Callable[[], Awaitable[bytes]]
    ) -> web.StreamResponse:
        """Make and send a document; a client that does not take it is disconnected."""
        from aiohttp import web

        if self._answering >= MOST_REQUESTS:
            raise UnavailableError("too many requests are being answered")
        self._answering += 1
        try:
            response = web.Response(body=await make(), content_type="application/json")
            try:
                async with asyncio.timeout(WRITE_SECONDS):
                    await response.prepare(request)
                    await response.write_eof()
            except TimeoutError:
                _abort(request)
            return response
        finally:
            self._answering -= 1

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Send changes until the viewer goes, is too slow, or has to open the stream anew."""
        from aiohttp import web

        subscribers = self._feed.subscribers
        subscriber = Subscriber(lambda: _abort(request))
        if not subscribers.add(subscriber):
            raise UnavailableError("too many pages are open")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        try:
            await response.prepare(request)
            if request.transport is not None:
                request.transport.set_write_buffer_limits(high=BUFFER_BYTES)  # pyright: ignore[reportAttributeAccessIssue] - sockets have it
            hello = msgspec.json.encode({"version": self._feed.version})
            await response.write(b"event: hello\ndata: %s\n\n" % hello)
            self._feed.watch()
            async with asyncio.timeout(STREAM_SECONDS):
                while True:
                    message = await _next_message(subscriber)
                    await asyncio.wait_for(response.write(message), WRITE_SECONDS)
        except (TimeoutError, ConnectionError):
            pass  # the page opens another stream
        finally:
            subscribers.remove(subscriber)
        return response


async def _next_message(subscriber: Subscriber) -> bytes:
    """Return the next message, or a comment if none comes for a while."""
    try:
        return await asyncio.wait_for(subscriber.queue.get(), KEEP_ALIVE_SECONDS)
    except TimeoutError:
        return b": \n\n"


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()  # pyright: ignore[reportAttributeAccessIssue] - sockets have it


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    response.headers.popall("Server", None)


def _only_parameter(request: web.Request, names: tuple[str, ...]) -> tuple[str, str]:
    """Return the name and the value of the only parameter.

    Raises:
        BadInputError: there is none, another one, or several.
    """
    items = list(request.query.items())
    if len(items) != 1 or items[0][0] not in names or not items[0][1]:
        raise BadInputError(f"one parameter is needed: {' or '.join(names)}")
    return items[0]


def _host_of(request: web.Request) -> str:
    """Return the host that the client asks for; empty if it is none."""
    try:
        return urlsplit(f"//{request.host}").hostname or ""
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _problem(status: HTTPStatus, message: str, **headers: str) -> web.Response:
    from aiohttp import web

    body = msgspec.json.encode({"error": message})
    return web.Response(body=body, status=status, content_type="application/json", headers=headers)


def _file_handler(name: str, content_type: str):  # noqa: ANN202 - aiohttp's handler type is private
    from aiohttp import web

    body = (resources.files(_PACKAGE) / "page" / name).read_bytes()

    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type=content_type, charset="utf-8")

    return handle
