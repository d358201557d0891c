"""Serves HTTP/1.1 on 127.0.0.1 in a thread, with long request lines."""

from __future__ import annotations

import socket
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import urlsplit

from karpenter_simulated_alibabacloud.protocol import HttpReply, HttpRequest

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Server"]

_STOP_CHECK_SECONDS: Final = 0.05

if TYPE_CHECKING:
    Application = Callable[[HttpRequest], HttpReply | None]
    """Answers a request; None cuts the connection."""


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, application: Application, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.application: Final = application
        self._lock: Final = Lock()
        self._open: Final[set[socket.socket]] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients may go when they please."""

    def cut_all(self) -> None:
        """Cut the connections that clients keep."""
        with self._lock:
            still_open = list(self._open)
        for connection in still_open:
            _cut(connection)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer is one write
    server: _Listener  # pyright: ignore[reportIncompatibleVariableOverride] - it is made by none other

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        parts = urlsplit(self.path)
        reply = self.server.application(
            HttpRequest(
                method=self.command,
                path=parts.path or "/",
                query=parts.query,
                headers={name.lower(): value for name, value in self.headers.items()},
                body=self.rfile.read(length) if length else b"",
            )
        )
        if reply is None:
            self.close_connection = True
            _cut(self.connection)
            return
        self.send_response_only(reply.status)
        for name, value in reply.headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)
        self.wfile.flush()

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - the names are those of http.server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is http.server's
        """Say nothing: the call log has it."""


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@final
class Server:
    """A thread that serves an application on 127.0.0.1."""

    def __init__(self, application: Application, *, port: int = 0, name: str) -> None:
        self._listener: Final = _Listener(application, port)
        self._thread: Final = Thread(target=self._serve, name=name, daemon=True)

    def _serve(self) -> None:
        self._listener.serve_forever(poll_interval=_STOP_CHECK_SECONDS)

    @property
    def endpoint(self) -> str:
        """Where it serves: host and port."""
        return f"127.0.0.1:{self._listener.server_port}"

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """End; connections that are open are cut."""
        self._listener.shutdown()
        self._thread.join()
        self._listener.cut_all()
        self._listener.server_close()
