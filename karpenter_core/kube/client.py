"""Sends requests to an API server over HTTP with the official client."""

from __future__ import annotations

import ipaddress
import os
import socket
from contextlib import asynccontextmanager
from errno import errorcode
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from karpenter_core import __version__
from karpenter_core.errors import ApiError
from karpenter_core.kube.login import find_login
from karpenter_core.kube.pacing import time_limit
from karpenter_core.kube.proxies import checked_proxy, proxy_for
from karpenter_core.kube.tls import TlsFiles
from karpenter_core.kube.transport import (
    LINE_TOO_LONG,
    NO_ANSWER,
    UNREACHABLE,
    ApiRequest,
    ApiResponse,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    import aiohttp

    from karpenter_core.clock import Clock
    from karpenter_core.kube.login import Login

__all__ = ["HttpTransport", "connect"]

_CONNECT_SECONDS: Final = 10.0
_REQUEST_SECONDS: Final = 60.0  # the API server's own limit for what is not a watch
_HEADER_SECONDS: Final = 90.0
"""Time limit for the headers of a watch.

API servers send them at once. Some proxies hold them back until the first event or bookmark, and a
bookmark comes after a minute.
"""
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
        SettingsError: no cluster is found, or the kubeconfig or a proxy cannot be used.
    """
    login = await find_login(kubeconfig=kubeconfig, context=context, clock=clock)
    return HttpTransport(login, user_agent=user_agent)


class HttpTransport:
    """Requests to one API server over one session."""

    def __init__(self, login: Login, *, user_agent: str) -> None:
        self._login: Final = login
        configuration = login.configuration
        self.host: Final = str(configuration.host).rstrip("/")
        self.proxy: Final = _proxy(configuration.proxy, self.host)
        """The proxy that every request goes through; None for a direct connection."""
        # All authorities of the system take 0.8 MiB, which a plain connection has no use for.
        is_plain = not any(_is_https(url) for url in (self.host, self.proxy or ""))
        self._tls: Final = None if is_plain else TlsFiles(configuration, clock=login.clock)
        near = login.in_cluster or _is_loopback(self.host)
        self._headers: Final = (
            ("User-Agent", user_agent),
            # Compression costs both sides more than a near network does.
            ("Accept-Encoding", "identity" if near else "gzip"),
            *login.impersonation,
        )
        self._session: Final = self._open_session()

    @property
    def ca_pem(self) -> str:
        """The certificates that the API server's is checked against; empty for the system's."""
        configuration = self._login.configuration
        if configuration.ssl_ca_cert:
            return Path(configuration.ssl_ca_cert).read_text(encoding="utf-8", errors="replace")
        data = configuration.ca_cert_data
        return data if isinstance(data, str) else ""

    async def request(self, request: ApiRequest) -> ApiResponse:
        """Send a request and read the whole answer."""
        credentials = self._login.credentials
        response = await self._request_once(request)
        if response.status == _UNAUTHORIZED and await self._login.renew(credentials):
            response = await self._request_once(request)
        return response

    @asynccontextmanager
    async def stream(
        self, request: ApiRequest
    ) -> AsyncGenerator[tuple[ApiResponse, AsyncIterator[bytes]]]:
        """Send a request and iterate over the lines of its answer."""
        import aiohttp

        limits = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
        credentials = self._login.credentials
        try:
            async with time_limit(self._login.clock, _HEADER_SECONDS):
                answer = await self._send(request, limits)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ClientError):
                error = TimeoutError(f"no headers within {round(_HEADER_SECONDS)} s")
            raise _no_answer(error, self.host) from error
        try:
            if answer.status == _UNAUTHORIZED:
                await self._login.renew(credentials)  # for the next attempt
            response = await self._error_response(answer)
            yield response, _lines(answer)
        finally:
            answer.close()

    async def close(self) -> None:
        """Let go of connections, and of a credential plug-in that still runs."""
        await self._login.close()
        await self._session.close()

    async def _request_once(self, request: ApiRequest) -> ApiResponse:
        import aiohttp

        limits = aiohttp.ClientTimeout(total=_REQUEST_SECONDS, sock_connect=_CONNECT_SECONDS)
        try:
            async with await self._send(request, limits) as answer:
                body = await answer.read()
                return ApiResponse(status=answer.status, body=body, headers=_headers(answer))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _no_answer(error, self.host) from error

    async def _send(
        self, request: ApiRequest, limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        headers = [*self._headers, ("Accept", request.accept)]
        if request.body:
            headers.append(("Content-Type", request.content_type))
        if authorization := await self._login.authorization():
            headers.append(("Authorization", authorization))
        return await self._session.request(
            request.method,
            f"{self.host}{request.path}",
            params=request.query,
            data=request.body or None,
            headers=headers,
            timeout=limits,
            ssl=True if self._tls is None else self._tls.context(),
            server_hostname=self._login.configuration.tls_server_name,
            proxy=self.proxy,
            allow_redirects=False,
        )

    async def _error_response(self, answer: aiohttp.ClientResponse) -> ApiResponse:
        import aiohttp

        body = b""
        if answer.status >= _BAD_REQUEST:
            try:
                body = await answer.read()
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise _no_answer(error, self.host) from error
        return ApiResponse(status=answer.status, body=body, headers=_headers(answer))

    def _open_session(self) -> aiohttp.ClientSession:
        import aiohttp

        connector = aiohttp.TCPConnector(
            limit=0,  # the token bucket is what bounds us; watches hold a connection each
            socket_factory=_keepalive_socket,
        )
        return aiohttp.ClientSession(
            connector=connector,
            trust_env=False,  # `kube.proxies` reads the environment
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
    return ApiError(
        f"no answer from {host}: {_cause(error)}",
        status=0,
        reason=UNREACHABLE if unreachable else NO_ANSWER,
    )


def _cause(error: Exception) -> str:
    """Return why there is no connection, without the addresses of objects that aiohttp prints."""
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        # The loop writes its own sentence into an error of the system.
        number = cause.errno
        return os.strerror(number) if number is not None and number in errorcode else str(cause)
    return str(error) or type(error).__name__


def _headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}


def _is_https(url: str) -> bool:
    return url.lower().startswith("https:")


def _proxy(named: str | None, host: str) -> str | None:
    """Return the kubeconfig's proxy, which nothing excludes, or else that of the environment."""
    if named:
        return checked_proxy(named, f"proxy-url of {host}")
    return proxy_for(host, os.environ)


def _is_loopback(host: str) -> bool:
    name = urlsplit(host).hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _keepalive_socket(address: tuple[int, int, int, str, object]) -> socket.socket:
    """Open a socket that notices within a minute that the other side is gone for good."""
    family, kind, protocol, _, _ = address
    opened = socket.socket(family=family, type=kind, proto=protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if (option := getattr(socket, name, None)) is not None:
            opened.setsockopt(socket.IPPROTO_TCP, option, value)
    return opened
