"""The endpoint: faults, throttling and log, then our handlers or moto."""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from io import BytesIO
from threading import Lock, RLock, Thread
from typing import TYPE_CHECKING, Final, final

from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from karpenter_core.provider.kit.simulated.calls import CallLog, LoggedCall
from karpenter_core.provider.kit.simulated.faults import CloudFaultKind, CloudFaults
from karpenter_simulated_aws.denials import denial
from karpenter_simulated_aws.model_checks import model_violation
from karpenter_simulated_aws.protocol import (
    AwsError,
    HttpReply,
    NoAnswerError,
    read_call,
    refuse,
    reply,
)
from karpenter_simulated_aws.throttling import Throttling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from karpenter_core.provider.kit.simulated.faults import CloudFault
    from karpenter_simulated_aws.account import Account
    from karpenter_simulated_aws.protocol import ApiCall

__all__ = ["OWNER_ACCESS_KEY", "Application", "Handlers", "Server", "dry_run_success"]

OWNER_ACCESS_KEY: Final = "AKIASIMULATEDOWNER00"
"""Calls with this access key build the world: no fault, limit or log is for them."""

if TYPE_CHECKING:
    Handler = Callable[..., Mapping[str, object]]
    Handlers = Mapping[str, Handler]
    Environ = dict[str, object]
    StartResponse = Callable[..., object]
    _Connection = socket.socket | tuple[bytes, socket.socket]

_KEPT_ANSWERS: Final = 256
_LONGEST_SILENCE_SECONDS: Final = 300
_STOP_CHECK_SECONDS: Final = 0.05
_PRECONDITION_FAILED: Final = 412
_REFUSED: Final = 400
_SERVER_ERROR: Final = 500
_READS: Final = ("Describe", "Get", "List")
_TAGGING: Final = frozenset({"CreateTags", "DeleteTags"})
_CODE: Final = re.compile(rb'<Code>([^<]*)</Code>|"__type":\s*"([^"]*)"')


@final
class Application:
    """The WSGI application; one for each simulated AWS."""

    def __init__(self, account: Account) -> None:
        from moto.moto_server.werkzeug_app import (  # pyright: ignore[reportMissingTypeStubs] - moto types its backends only
            DomainDispatcherApplication,
            create_backend_app,
        )

        self._account: Final = account
        self._moto: Final = DomainDispatcherApplication(create_backend_app)
        self._answers: Final[dict[tuple[str, bytes], HttpReply]] = {}
        self.handlers: Handlers = {}
        """By service and action; what is not here goes to moto."""
        self.unchanging: frozenset[str] = frozenset()
        """Actions that answer the same call alike until `forget` is told of them."""
        self.checks_dry_runs: frozenset[str] = frozenset()
        """Actions whose handlers say themselves what a dry run comes to."""
        self.state: Final = RLock()
        """Held while a handler reads or changes what the cloud holds."""
        self.changed: Final[set[str]] = set()
        """Services whose state in moto has been changed since somebody emptied this."""
        self.faults: Final = CloudFaults()
        self.throttling: Final = Throttling(account.clock)
        self.calls: Final = CallLog()

    def forget(self, *actions: str) -> None:
        """Write the answers to these unchanging actions anew, because they have changed."""
        for key in [each for each in list(self._answers) if each[0] in actions]:
            self._answers.pop(key, None)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        environ["HTTP_X_MOTO_ACCOUNT_ID"] = self._account.id
        call = read_call(environ)
        if call is None:
            return self._moto(environ, start_response)
        if call.access_key == OWNER_ACCESS_KEY:
            return _send(self._carried_out(call, environ), start_response)
        fault = self.faults.strike(call)
        if fault is not None and fault.kind is not CloudFaultKind.LOST_REPLY:
            return self._struck(call, fault, environ, start_response)
        throttled = self.throttling.refusal(call)
        try:
            answer = refuse(call, throttled) if throttled else self._carried_out(call, environ)
        except NoAnswerError:
            self._log(call, CloudFaultKind.LOST_REPLY)
            return _cut(environ, start_response)
        if fault is not None:
            self._log(call, CloudFaultKind.LOST_REPLY)
            return _cut(environ, start_response)
        self._log(call, _outcome(answer))
        return _send(answer, start_response)

    def _struck(
        self,
        call: ApiCall,
        fault: CloudFault,
        environ: Environ,
        start_response: StartResponse,
    ) -> Iterable[bytes]:
        if fault.kind is CloudFaultKind.REFUSED:
            error = fault.error or denial(call)
            self._log(call, error.code)
            return _send(refuse(call, error), start_response)
        self._log(call, fault.kind)
        if fault.kind is CloudFaultKind.SILENT:
            self.faults.hang(fault, seconds=_LONGEST_SILENCE_SECONDS)
        return _cut(environ, start_response)

    def _carried_out(self, call: ApiCall, environ: Environ) -> HttpReply:
        handler = self.handlers.get(call.name)
        if call.service == "ec2" and handler and (violation := model_violation(call)):
            return refuse(call, violation)
        dry_run = call.service == "ec2" and bool(call.parameters.get("DryRun"))
        if dry_run and call.name not in self.checks_dry_runs:
            return refuse(call, dry_run_success())
        if handler is None or call.action in _TAGGING:
            self._note_change(call)
        if handler is None:
            return self._by_moto(call, environ)
        try:
            key = (call.name, call.body)
            if (kept := self._answers.get(key)) is not None:
                return kept
            with self.state:
                answer = handler(call.parameters)
        except AwsError as error:
            return refuse(call, error)
        written = reply(call, answer)
        if call.name in self.unchanging and len(self._answers) < _KEPT_ANSWERS:
            self._answers[key] = written
        return written

    def _note_change(self, call: ApiCall) -> None:
        """Note that moto's state may change; a received message counts, as it is hidden then."""
        if call.service == "sqs" or not call.action.startswith(_READS):
            self.changed.add(call.service)

    def _by_moto(self, call: ApiCall, environ: Environ) -> HttpReply:
        begun: list[tuple[str, list[tuple[str, str]]]] = []

        def start(status: str, headers: list[tuple[str, str]], *_: object) -> None:
            begun.append((status, headers))

        unknown = AwsError("InvalidAction", f"The action {call.name} is not simulated")
        try:
            body = b"".join(self._moto(environ, start))
        except NotImplementedError:
            return refuse(call, unknown)
        status, headers = begun[0]
        number = int(status.split(" ", 1)[0])
        if number >= _SERVER_ERROR:  # how moto says that it does not know a service
            return refuse(call, unknown)
        kept = tuple((name, value) for name, value in headers if name.lower() != "content-length")
        return HttpReply(status=number, headers=kept, body=body)

    def _log(self, call: ApiCall, outcome: str) -> None:
        self.calls.add(
            LoggedCall(
                service=call.service,
                action=call.action,
                at=self._account.clock(),
                parameters=call.parameters,
                outcome=str(outcome),
            )
        )


def dry_run_success() -> AwsError:
    """Return what a dry run is answered with that would have succeeded."""
    return AwsError(
        "DryRunOperation",
        "Request would have succeeded, but DryRun flag is set.",
        status=_PRECONDITION_FAILED,
    )


def _outcome(answer: HttpReply) -> str:
    if answer.status < _REFUSED:
        return "ok"
    found = _CODE.search(answer.body)
    return (found[1] or found[2]).decode() if found else str(answer.status)


def _send(answer: HttpReply, start_response: StartResponse) -> Iterable[bytes]:
    headers = [*answer.headers, ("Content-Length", str(len(answer.body)))]
    start_response(f"{answer.status} ", headers)
    return [answer.body]


def _cut(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """Break the connection; what is written to it afterwards fails, which werkzeug takes calmly."""
    connection = environ.get("werkzeug.socket")
    if isinstance(connection, socket.socket):
        _shut(connection)
    start_response("500 ", [("Connection", "close"), ("Content-Length", "0")])
    return [b""]


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Listener(ThreadedWSGIServer):
    """Knows the open connections, so that those that clients keep can be cut."""

    def __init__(self, application: Application, port: int) -> None:
        super().__init__("127.0.0.1", port, application, _Quiet)
        self._lock: Final = Lock()
        self._open: Final[set[socket.socket]] = set()

    def process_request(self, request: _Connection, client_address: object) -> None:
        if isinstance(request, socket.socket):
            with self._lock:
                self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: _Connection) -> None:
        if isinstance(request, socket.socket):
            with self._lock:
                self._open.discard(request)
        super().shutdown_request(request)

    def cut_all(self) -> None:
        """Cut the connections that clients keep."""
        with self._lock:
            still_open = list(self._open)
        for connection in still_open:
            _shut(connection)


class _Quiet(WSGIRequestHandler):
    """Serves without a line of log for each request, and keeps connections, as AWS does.

    werkzeug closes each after one request: a connection and a thread for each call take as long as
    the call.
    """

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer is one write

    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 - the name is werkzeug's
        """Say nothing: the call log has it."""

    def finish(self) -> None:
        """Close the connection; a client that is gone already is no fault."""
        with suppress(OSError):
            super().finish()

    def run_wsgi(self) -> None:
        """Answer one request, which is read to its end."""
        environ = self.make_environ()
        length = int(self.headers.get("Content-Length") or 0)
        environ["wsgi.input"] = BytesIO(self.rfile.read(length) if length else b"")
        status, headers, body = self._answer(environ)
        self.send_response(int(status.split()[0]), "")
        for name, value in headers:
            self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _answer(self, environ: Environ) -> tuple[str, list[tuple[str, str]], bytes]:
        begun: list[tuple[str, list[tuple[str, str]]]] = []

        def start(
            status: str, headers: list[tuple[str, str]], *_: object
        ) -> Callable[[bytes], object]:
            begun.append((status, headers))
            return self.wfile.write

        try:
            body = b"".join(self.server.app(environ, start))
            status, headers = begun[-1]
        except Exception:  # a fault of the simulation
            return f"{_SERVER_ERROR} ", [("Connection", "close")], b""
        return status, headers, body


@final
class Server:
    """A thread that serves an application on 127.0.0.1."""

    def __init__(self, application: Application, *, port: int = 0) -> None:
        self._server: Final = _Listener(application, port)
        self._thread: Final = Thread(target=self._serve, name="simulated-aws", daemon=True)

    def _serve(self) -> None:
        self._server.serve_forever(poll_interval=_STOP_CHECK_SECONDS)

    @property
    def endpoint_url(self) -> str:
        """Where it serves."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """End; calls that are open are left to themselves."""
        self._server.shutdown()
        self._thread.join()
        self._server.cut_all()
        self._server.server_close()
