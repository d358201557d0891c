"""The transport over HTTP: the official client's session and credentials, our bytes."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from karpenter_core import __version__
from karpenter_core.errors import ApiError, SettingsError
from karpenter_core.kube.login import find_login
from karpenter_core.kube.transport import (
    LINE_TOO_LONG,
    NO_ANSWER,
    UNREACHABLE,
    Request,
    Response,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    import aiohttp

    from karpenter_core.clock import Clock
    from karpenter_core.kube.login import Login

__all__ = ["HttpTransport", "connect"]

_CONNECT_SECONDS: Final = 10.0
_REQUEST_SECONDS: Final = 60.0  # the API server's own limit for what is not a watch
_LINE_BYTES: Final = 2**23  # etcd's objects end at 1.5 MiB; JSON may say the same at length
_KEEPALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
_UNAUTHORIZED: Final = 401
_BAD_REQUEST: Final = 400


async def connect(
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    clock: Clock,
    user_agent: str = f"karpenter/{__version__}",
) -> HttpTransport:
    """Find a cluster and open a session; nothing is sent yet.

    Raises:
        SettingsError: no cluster is found, or the kubeconfig cannot be used.
    """
    login = await find_login(kubeconfig=kubeconfig, context=context, clock=clock)
    return HttpTransport(login, user_agent=user_agent)


class HttpTransport:
    """Requests to one API server over one session."""

    def __init__(self, login: Login, *, user_agent: str) -> None:
        from kubernetes.aio.client.rest import RESTClientObject

        self._login: Final = login
        configuration = login.configuration
        self.host: Final = str(configuration.host).rstrip("/")
        try:
            self._rest: Final = RESTClientObject(configuration)
        except OSError as error:  # ssl.SSLError is one
            raise SettingsError(f"TLS material for {self.host} cannot be used: {error}") from error
        self._certificate = (configuration.cert_file, configuration.key_file)
        near = login.in_cluster or _is_loopback(self.host)
        self._headers: Final = {
            "User-Agent": user_agent,
            # Compression costs both sides more than a near network does.
            "Accept-Encoding": "identity" if near else "gzip",
        }
        self._session: Final = self._open_session()

    @property
    def ca_pem(self) -> str:
        """The certificates that the API server's is checked against; empty for the system's."""
        configuration = self._login.configuration
        if configuration.ssl_ca_cert:
            return Path(configuration.ssl_ca_cert).read_text()
        data = configuration.ca_cert_data
        return data if isinstance(data, str) else ""

    async def request(self, request: Request) -> Response:
        """Send a request and read the whole answer."""
        response = await self._request_once(request)
        if response.status == _UNAUTHORIZED and await self._login.renew():
            response = await self._request_once(request)
        return response

    @asynccontextmanager
    async def stream(
        self, request: Request
    ) -> AsyncGenerator[tuple[Response, AsyncIterator[bytes]]]:
        """Send a request and iterate over the lines of its answer."""
        import aiohttp

        limits = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
        try:
            answer = await self._send(request, limits)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _no_answer(error, self.host) from error
        try:
            if answer.status == _UNAUTHORIZED:
                await self._login.renew()  # for the next attempt
            response = await self._error_response(answer)
            yield response, _lines(answer)
        finally:
            answer.close()

    async def close(self) -> None:
        """Let go of connections."""
        await self._session.close()

    async def _request_once(self, request: Request) -> Response:
        import aiohttp

        limits = aiohttp.ClientTimeout(total=_REQUEST_SECONDS, sock_connect=_CONNECT_SECONDS)
        try:
            async with await self._send(request, limits) as answer:
                body = await answer.read()
                return Response(status=answer.status, body=body, headers=_headers(answer))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _no_answer(error, self.host) from error

    async def _send(
        self, request: Request, limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        headers = {**self._headers, "Accept": request.accept}
        if request.body:
            headers["Content-Type"] = request.content_type
        if authorization := await self._login.authorization():
            headers["Authorization"] = authorization
        self._follow_certificate()
        configuration = self._login.configuration
        return await self._session.request(
            request.method,
            f"{self.host}{request.path}",
            params=request.query,
            data=request.body or None,
            headers=headers,
            timeout=limits,
            server_hostname=configuration.tls_server_name,
            proxy=configuration.proxy,
            allow_redirects=False,
        )

    async def _error_response(self, answer: aiohttp.ClientResponse) -> Response:
        import aiohttp

        body = b""
        if answer.status >= _BAD_REQUEST:
            try:
                body = await answer.read()
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise _no_answer(error, self.host) from error
        return Response(status=answer.status, body=body, headers=_headers(answer))

    def _follow_certificate(self) -> None:
        """Use a client certificate that a credential plug-in has renewed, from now on."""
        configuration = self._login.configuration
        certificate = (configuration.cert_file, configuration.key_file)
        if certificate != self._certificate and configuration.cert_file:
            self._certificate = certificate
            self._rest.ssl_context.load_cert_chain(
                configuration.cert_file, keyfile=configuration.key_file
            )

    def _open_session(self) -> aiohttp.ClientSession:
        import aiohttp

        connector = aiohttp.TCPConnector(
            limit=0,  # the token bucket is what bounds us; watches hold a connection each
            ssl=self._rest.ssl_context,
            socket_factory=_keepalive_socket,
        )
        return aiohttp.ClientSession(
            connector=connector,
            trust_env=not _is_loopback(self.host),  # no proxy between a machine and itself
            read_bufsize=2**20,
            cookie_jar=aiohttp.DummyCookieJar(),
        )


async def _lines(answer: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    import aiohttp
    from aiohttp.http_exceptions import LineTooLong

    try:
        while line := await answer.content.readline(max_line_length=_LINE_BYTES):
            if not line.endswith(b"\n"):
                return  # cut within an event: it comes again after the reconnect
            if stripped := line.strip():
                yield stripped
    except (LineTooLong, ValueError) as error:
        message = f"a watch event is longer than {_LINE_BYTES} bytes"
        raise ApiError(message, status=0, reason=LINE_TOO_LONG) from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        cut = isinstance(error, aiohttp.ClientPayloadError)  # its own words are about framing
        message = f"the watch broke: {'cut off' if cut else error or type(error).__name__}"
        raise ApiError(message, status=0, reason=NO_ANSWER) from error


def _no_answer(error: Exception, host: str) -> ApiError:
    import aiohttp

    unreachable = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    text = str(error) or type(error).__name__
    return ApiError(
        f"no answer from {host}: {text}",
        status=0,
        reason=UNREACHABLE if unreachable else NO_ANSWER,
    )


def _headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}


def _is_loopback(host: str) -> bool:
    name = urlsplit(host).hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _keepalive_socket(address: Any) -> socket.socket:
    """Open a socket that notices within a minute that the other side is gone for good."""
    family, kind, protocol, _, _ = address
    opened = socket.socket(family=family, type=kind, proto=protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if (option := getattr(socket, name, None)) is not None:
            opened.setsockopt(socket.IPPROTO_TCP, option, value)
    return opened
