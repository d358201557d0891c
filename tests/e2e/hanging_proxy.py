"""A TCP proxy before the API server that hangs, as one before a dead back end does.

Connections stay open: neither side learns that nothing will come any more. The proxy reads plain HTTP, so
it can choose which requests to be silent about; TLS begins behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Self, final

from tests.support.kubeconfig import write_kubeconfig
from tests.support.processes import free_ports

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

__all__ = ["HangingProxy", "Trouble"]

CHUNK: Final = 2**16
END_OF_HEAD: Final = b"\r\n\r\n"
FORBIDDEN: Final = (
    b'{"kind":"Status","code":403,"reason":"Forbidden","message":"pods is forbidden"}'
)
REFUSAL: Final = (
    b"HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
    % (len(FORBIDDEN), FORBIDDEN)
)


class Trouble(StrEnum):
    """Effect on the matched requests."""

    SILENT = "streams are open and say nothing"
    HEADLESS = "headers never come"
    FORBIDDEN = "lists and watches are refused"
    DEAD = "no connection says anything any more"


@final
class HangingProxy:
    """Passes everything on to a port on loopback; an async context manager.

    `kubeconfig` leads through it. `begin` makes trouble for requests whose head has `marks` in it,
    connections that are open included; what has gone silent stays so after `end`.
    """

    def __init__(self, port: int, kubeconfig: Path, *, marks: tuple[bytes, ...]) -> None:
        self._target: Final = port
        self._marks: Final = marks
        (self._port,) = free_ports(1)
        self.kubeconfig: Final = kubeconfig
        self._trouble: Trouble | None = None
        self._server: asyncio.Server | None = None
        self._connections: Final[set[_Connection]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        write_kubeconfig(self.kubeconfig, f"http://127.0.0.1:{self._port}")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.close()

    def begin(self, trouble: Trouble) -> None:
        """Make trouble from now on."""
        self._trouble = trouble
        for connection in tuple(self._connections):
            if trouble is Trouble.FORBIDDEN and connection.is_meant:
                connection.close()  # who watches asks again, and is refused
            elif trouble is Trouble.DEAD or connection.is_meant:
                connection.is_silent = True

    def end(self) -> None:
        """Serve new requests again."""
        self._trouble = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, upward = await asyncio.open_connection("127.0.0.1", self._target)
        connection = _Connection(writer, upward)
        self._connections.add(connection)
        try:
            with contextlib.suppress(ConnectionError):
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._up(reader, connection))
                    group.create_task(self._down(upstream, connection))
        except* (ConnectionError, _Closed):
            pass
        finally:
            self._connections.discard(connection)
            connection.close()

    async def _up(self, reader: asyncio.StreamReader, connection: _Connection) -> None:
        while chunk := await reader.read(CHUNK):
            if chunk.startswith(b"GET "):
                head = chunk.partition(b"\r\n")[0]
                connection.is_meant = any(mark in head for mark in self._marks)
                connection.is_watch = b"watch=true" in head
                connection.has_head = False
            if self._is_refused(connection):
                connection.client.write(REFUSAL)
                continue
            if self._trouble is Trouble.DEAD:
                connection.is_silent = True
            if self._trouble is Trouble.HEADLESS and connection.is_meant and connection.is_watch:
                connection.is_silent = True
            connection.server.write(chunk)
            await connection.server.drain()
        raise _Closed

    def _is_refused(self, connection: _Connection) -> bool:
        return self._trouble is Trouble.FORBIDDEN and connection.is_meant

    async def _down(self, upstream: asyncio.StreamReader, connection: _Connection) -> None:
        while chunk := await upstream.read(CHUNK):
            if connection.is_silent:
                continue
            if self._trouble is Trouble.SILENT and connection.is_meant and connection.is_watch:
                chunk = b"" if connection.has_head else chunk
                head, end, _ = chunk.partition(END_OF_HEAD)
                chunk = head + end
                connection.has_head = connection.has_head or bool(end)
                connection.is_silent = connection.has_head
            connection.client.write(chunk)
            await connection.client.drain()
        if not connection.is_silent:
            raise _Closed


class _Closed(Exception):  # noqa: N818 - no error: one side has ended the connection
    """One side has ended the connection; the other one ends too."""


@final
class _Connection:
    """Both ends of one connection."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client: Final = client
        self.server: Final = server
        self.is_meant = False
        self.is_watch = False
        self.has_head = False
        self.is_silent = False

    def close(self) -> None:
        """End both."""
        self.client.close()
        self.server.close()
