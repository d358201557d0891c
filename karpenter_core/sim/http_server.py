"""Serves the embedded API server over HTTP on loopback, with a kubeconfig."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from karpenter_core.kube.transport import ApiRequest
from karpenter_core.sim.apiserver import is_watch
from karpenter_core.sim.faults import ConnectionLostError

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp import web

    from karpenter_core.sim.frontend import ServerFrontend

__all__ = ["ApiHttpServer", "kubeconfig_for", "write_kubeconfig"]

_HOST: Final = "127.0.0.1"
_MAX_BODY_BYTES: Final = 3 * 1024 * 1024  # upstream's limit of a request


def kubeconfig_for(url: str) -> dict[str, object]:
    """Return a kubeconfig that needs neither certificate nor token."""
    name = "embedded"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": url}}],
        "users": [{"name": name, "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }


def write_kubeconfig(path: Path, url: str) -> None:
    """Write a kubeconfig for an embedded server (JSON, which is YAML too)."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kubeconfig_for(url))))


class ApiHttpServer:
    """Serves one frontend on a port of its own."""

    def __init__(self, frontend: ServerFrontend) -> None:
        self._front: Final = frontend
        self._runner: web.AppRunner | None = None
        self.url: str = ""

    async def start(self, port: int = 0) -> str:
        """Listen, on a free port by default; returns the URL."""
        from aiohttp import web

        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, _HOST, port).start()
        host, bound = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{bound}"
        return self.url

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _serve(self, incoming: web.Request) -> web.StreamResponse:
        from aiohttp import web

        request = ApiRequest(
            method=incoming.method,
            path=incoming.path,
            query=dict(incoming.query),
            body=await incoming.read(),
            content_type=incoming.headers.get("content-type", ""),
            accept=incoming.headers.get("accept", ""),
        )
        if is_watch(request):
            return await self._stream(request, incoming)
        try:
            response = await self._front.respond(request)
        except ConnectionLostError:
            return _hang_up(incoming, web.Response())
        return web.Response(status=response.status, body=response.body, headers=response.headers)

    async def _stream(self, request: ApiRequest, incoming: web.Request) -> web.StreamResponse:
        from aiohttp import web

        try:
            response, batches = await self._front.watch(request)
        except ConnectionLostError:
            return _hang_up(incoming, web.Response())
        headers = response.headers
        if batches is None:
            return web.Response(status=response.status, body=response.body, headers=headers)
        outgoing = web.StreamResponse(status=response.status, headers=headers)
        outgoing.enable_chunked_encoding()
        await outgoing.prepare(incoming)
        try:
            async for batch in batches:
                await outgoing.write(b"".join(batch))
        except ConnectionLostError:
            return _hang_up(incoming, outgoing)
        except ConnectionResetError:
            return outgoing  # the client hung up
        await outgoing.write_eof()
        return outgoing


def _hang_up(incoming: web.Request, outgoing: web.StreamResponse) -> web.StreamResponse:
    """Cut the connection; the returned response cannot reach the client any more."""
    if incoming.transport is not None:
        incoming.transport.abort()
    return outgoing
