"""Servers on loopback, kubeconfigs for them, and clocks that a test moves."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager

import pytest
import yaml
from aiohttp import web

from karpenter_core.kube.client import connect
from karpenter_core.kube.transport import ApiRequest
from karpenter_core.operator.clock import SystemClock

GET = ApiRequest(method="GET", path="/api/v1/nodes", query={"limit": "5"})


class HeldClock:
    """A clock on which time passes only when a test says so."""

    def __init__(self):
        self.seconds = 0.0
        self._waiting = []

    def now(self):
        return SystemClock().now()

    def monotonic(self):
        return self.seconds

    async def sleep(self, seconds):
        moment = asyncio.get_running_loop().create_future()
        self._waiting.append((self.seconds + seconds, moment))
        await moment

    def advance(self, seconds):
        self.seconds += seconds
        for due, moment in self._waiting:
            if due <= self.seconds and not moment.done():
                moment.set_result(None)


class MovableClock(SystemClock):
    """The system clock, with a monotonic time that a test moves on."""

    __slots__ = ("ahead",)

    def __init__(self):
        self.ahead = 0.0

    def monotonic(self):
        return super().monotonic() + self.ahead


def kubeconfig(path, server, user=None, **cluster):
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


@asynccontextmanager
async def serving(handler, tls=None):
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"{'https' if tls else 'http'}://{host}:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connected(path, **options):
    transport = await connect(kubeconfig=path, clock=options.pop("clock", SystemClock()), **options)
    try:
        yield transport
    finally:
        await transport.close()


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch, tmp_path):
    """No kubeconfig, pod or proxy of the host that runs the tests."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "REQUEST_METHOD"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


def plugin(tmp_path, **status):
    """Return a credential plug-in whose token counts its calls."""
    script = tmp_path / "plugin.py"
    script.write_text(
        "import json, pathlib\n"
        f"calls = pathlib.Path({str(tmp_path / 'calls')!r})\n"
        "number = int(calls.read_text()) + 1 if calls.exists() else 1\n"
        "calls.write_text(str(number))\n"
        f"status = {status!r} | {{'token': f'token-{{number}}'}}\n"
        "version = 'client.authentication.k8s.io/v1'\n"
        "print(json.dumps({'apiVersion': version, 'kind': 'ExecCredential', 'status': status}))\n"
    )
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": ["-S", "-E", str(script)],
        }
    }
