"""Accepts connections of HTTP servers; limits their number and silence.

aiohttp has no limit for either: a thousand TLS connections that send nothing take 300 MiB, for an
hour. Connections are counted from the moment they are accepted, so that a handshake that never ends
counts too. Where one is too many, the one that has been idle for longest is closed: a scraper or a
kubelet that connects anew is always answered.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Awaitable, Callable

    from aiohttp import web

__all__ = ["BoundedListener"]

MOST_CONNECTIONS: Final = 100
"""Connections to one port that are open at the same time."""
FIRST_REQUEST_SECONDS: Final = 10.0
"""Time from the connection until its first request is there in whole, with the handshake of TLS."""
KEEP_ALIVE_SECONDS: Final = 120.0
"""Time for which an answered connection may wait for its next request; longer than usual scrape intervals."""
MOST_HEADERS: Final = 64
_BACKLOG: Final = 128
_RETRY_SECONDS: Final = 1.0


@final
class _Connection:
    """One accepted connection; `close` ends it in each of its stages."""

    __slots__ = ("accepted", "answering", "handler", "has_asked", "opening")

    def __init__(self, handler: web.RequestHandler, accepted: socket.socket) -> None:
        self.handler: Final = handler
        self.accepted: socket.socket | None = accepted
        """Until a transport has it."""
        self.opening: asyncio.Task[None] | None = None
        """Runs until the first request is there."""
        self.has_asked: Final = asyncio.Event()
        self.answering = 0

    @property
    def is_closed(self) -> bool:
        return self.opening is None and self.handler.transport is None

    def close(self) -> None:
        if self.opening is not None:
            self.opening.cancel()
        if self.accepted is not None:
            self.accepted.close()
        if self.handler.transport is not None:
            self.handler.transport.abort()


@final
class BoundedListener:
    """Serves one application on one port."""

    def __init__(self, app: web.Application, *, tls: ssl.SSLContext | None) -> None:
        """Add a middleware to `app`, which must not run yet."""
        from aiohttp import web

        app.middlewares.insert(0, self._make_tracking())
        self._runner: Final = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=1.0,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            max_headers=MOST_HEADERS,
        )
        self._tls: Final = tls
        self._listening: tuple[socket.socket, ...] = ()
        self._accepting: tuple[asyncio.Task[None], ...] = ()
        self._open: Final[dict[web.RequestHandler, _Connection]] = {}
        """Those that have been idle for longest come first."""

    async def start(self, address: str | None, port: int) -> int:
        """Bind an address, None = all; return the port.

        Raises:
            OSError: it cannot be bound.
        """
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        # Binds every address of the name, as asyncio's servers do, and accepts nothing itself.
        bound = await loop.create_server(asyncio.Protocol, address, port, start_serving=False)
        try:
            self._listening = tuple(each.dup() for each in bound.sockets)
        finally:
            bound.close()
        for listening in self._listening:
            listening.listen(_BACKLOG)
        self._accepting = tuple(
            asyncio.create_task(self._accept(listening)) for listening in self._listening
        )
        bound_port: int = self._listening[0].getsockname()[1]
        return bound_port

    async def stop(self) -> None:
        """Accept nothing more, and close all connections after the answers in progress."""
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        for listening in self._listening:
            listening.close()
        opening = [each.opening for each in self._open.values() if each.opening is not None]
        for connection in list(self._open.values()):
            if not connection.answering:
                connection.close()
        await asyncio.gather(*opening, return_exceptions=True)
        await self._runner.cleanup()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except ConnectionError:
                continue  # it was closed before it was accepted
            except OSError:  # no file descriptor is left
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if not self._make_room():
                accepted.close()
                continue
            server = self._runner.server
            assert server is not None  # noqa: S101 - set up in start()
            connection = _Connection(server(), accepted)
            self._open[connection.handler] = connection
            connection.opening = asyncio.create_task(self._await_request(connection, accepted))
            # A connection that waits is accepted at once, without a turn of the loop.
            await asyncio.sleep(0)

    def _make_room(self) -> bool:
        """Close what is idle if there are too many; tell whether a further one may be opened."""
        for handler in [key for key, each in self._open.items() if each.is_closed]:
            del self._open[handler]
        if len(self._open) < MOST_CONNECTIONS:
            return True
        idle = next((each for each in self._open.values() if not each.answering), None)
        if idle is None:
            return False
        del self._open[idle.handler]
        idle.close()
        return True

    async def _await_request(self, connection: _Connection, accepted: socket.socket) -> None:
        """Finish the handshake, and close what does not ask in time."""
        loop = asyncio.get_running_loop()
        connection.accepted = None
        try:
            async with asyncio.timeout(FIRST_REQUEST_SECONDS):
                await loop.connect_accepted_socket(
                    lambda: connection.handler, accepted, ssl=self._tls
                )
                await connection.has_asked.wait()
        except (OSError, TimeoutError):  # an error of TLS is an OSError
            if connection.handler.transport is not None:
                connection.handler.transport.abort()
        finally:
            connection.opening = None  # else each would be garbage of hundreds of kibibytes
            if connection.handler.transport is None:
                self._open.pop(connection.handler, None)

    def _make_tracking(self):  # noqa: ANN202 - aiohttp's middleware type is private
        """Return the middleware that tells connections that are answered from idle ones."""
        from aiohttp import web

        @web.middleware
        async def track(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            connection = self._open.get(request.protocol)
            if connection is not None:  # else it is being closed
                connection.has_asked.set()
                connection.answering += 1
            try:
                return await handler(request)
            except ConnectionError:
                if request.transport is not None and not request.transport.is_closing():
                    raise  # of a call of the handler's own
                return web.Response()  # nobody reads it; aiohttp would report the error
            finally:
                if connection is not None:
                    connection.answering -= 1
                    if self._open.pop(request.protocol, None) is not None:
                        self._open[request.protocol] = connection  # the last one that was used

        return track
