"""Serves HTTP/1.1 on 127.0.0.1 in a thread, with kept-alive connections."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from ssl import SSLContext

    HttpApplication = Callable[["HttpRequest"], "HttpReply | None"]
    """Answers a request; None cuts the connection."""
    _Connection = socket.socket | tuple[bytes, socket.socket]

__all__ = ["HttpReply", "HttpRequest", "HttpServer"]

_STOP_CHECK_SECONDS: Final = 0.05
_SERVER_ERROR: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One request."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    """One answer."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    """Without the length of the body, which the server adds."""
    body: bytes = b""
    is_cut: bool = False
    """Whether the connection is cut after half of the body."""


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, application: HttpApplication, port: int, tls: SSLContext | None) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.application: Final = application
        self._tls: Final = tls
        self._lock: Final = Lock()
        self._open: Final[set[socket.socket]] = set()

    def process_request(self, request: _Connection, client_address: object) -> None:
        if isinstance(request, socket.socket):
            if self._tls is not None:  # the handshake is done by the thread of the connection
                request = self._tls.wrap_socket(
                    request, server_side=True, do_handshake_on_connect=False
                )
            with self._lock:
                self._open.add(request)
        super().process_request(request, client_address)  # pyright: ignore[reportArgumentType] - typed as a pair

    def shutdown_request(self, request: _Connection) -> None:
        if isinstance(request, socket.socket):
            with self._lock:
                self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing: clients may close connections at any time."""

    def cut_all(self) -> None:
        """Cut the connections that clients keep open."""
        with self._lock:
            still_open = list(self._open)
        for connection in still_open:
            _cut(connection)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer is one write
    server: _Listener  # pyright: ignore[reportIncompatibleVariableOverride] - no other server uses it

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        parts = urlsplit(self.path)
        request = HttpRequest(
            method=self.command,
            path=parts.path or "/",
            query=parts.query,
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(length) if length else b"",
        )
        try:
            reply = self.server.application(request)
        except Exception:  # a mistake of the simulation
            reply = HttpReply(status=_SERVER_ERROR, headers=(("Connection", "close"),))
        if reply is None:
            self.close_connection = True
            _cut(self.connection)
            return
        self.send_response_only(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body[: len(reply.body) // 2] if reply.is_cut else reply.body)
        self.wfile.flush()
        if reply.is_cut:
            self.close_connection = True
            _cut(self.connection)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Log nothing: the call log has it."""


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@final
class HttpServer:
    """A thread that serves an application on 127.0.0.1."""

    def __init__(
        self,
        application: HttpApplication,
        *,
        name: str,
        port: int = 0,
        tls: SSLContext | None = None,
    ) -> None:
        """Listen on a port, any free one by default; with `tls` serve HTTPS.

        An exception of the application is answered with the status 500.
        """
        self._listener: Final = _Listener(application, port, tls)
        self._scheme: Final = "http" if tls is None else "https"
        self._thread: Final = Thread(target=self._serve, name=name, daemon=True)

    def _serve(self) -> None:
        self._listener.serve_forever(poll_interval=_STOP_CHECK_SECONDS)

    @property
    def endpoint(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._listener.server_port}"

    @property
    def endpoint_url(self) -> str:
        """The URL, without a slash at its end."""
        return f"{self._scheme}://{self.endpoint}"

    def start(self) -> None:
        """Start to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; open connections are cut."""
        self._listener.shutdown()
        self._thread.join()
        self._listener.cut_all()
        self._listener.server_close()
