"""A token that expires while a watch is open is read again, and no change is lost."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import web

from karpenter_core.kube import resources
from karpenter_core.kube.api import KubeApi
from karpenter_core.kube.client import connect
from karpenter_core.kube.informer import Informer
from karpenter_core.kube.wire.codecs import Codecs
from tests.kube.serving import MovableClock, kubeconfig, serving

UNAUTHORIZED = {"kind": "Status", "apiVersion": "v1", "code": 401, "reason": "Unauthorized"}


def node(name, version):
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": version}}


def line(kind, item):
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


class ExpiringServer:
    """Accepts one token; ends the first watch as its token expires, when a second node appears."""

    def __init__(self, token, clock, *, says_why):
        self.token, self.clock, self.says_why = token, clock, says_why
        self.accepted, self.nodes = "first", [node("a", "10")]
        self.refused = self.watches = 0

    async def answer(self, request):
        if request.headers.get("Authorization") != f"Bearer {self.accepted}":
            self.refused += 1
            return web.json_response(UNAUTHORIZED, status=401)
        if "watch" not in request.query:
            version = self.nodes[-1]["metadata"]["resourceVersion"]
            return web.json_response(
                {"kind": "NodeList", "metadata": {"resourceVersion": version}, "items": self.nodes}
            )
        self.watches += 1
        stream = web.StreamResponse()
        await stream.prepare(request)
        if self.watches == 1:
            self.accepted = "second"
            self.token.write_text("second")
            self.clock.ahead += 30  # less than the period in which the file is read anyway
            self.nodes.append(node("b", "12"))
            if self.says_why:
                await stream.write(line("ERROR", UNAUTHORIZED))
            return stream
        if request.query["resourceVersion"] == "10":
            await stream.write(line("ADDED", self.nodes[1]))
        await asyncio.Event().wait()
        return stream


@pytest.mark.asyncio
@pytest.mark.parametrize("says_why", [True, False], ids=["error event", "stream that ends"])
async def test_a_token_that_expires_within_a_watch_is_read_again(tmp_path, says_why):
    token, clock = tmp_path / "token", MovableClock()
    token.write_text("first")
    server = ExpiringServer(token, clock, says_why=says_why)
    found, complete = [], asyncio.Event()

    def sink(change):
        found.append(change.object.name)
        if "b" in found:
            complete.set()

    async with serving(server.answer) as url:
        path = kubeconfig(tmp_path / "config", url, {"tokenFile": str(token)})
        transport = await connect(kubeconfig=path, clock=clock)
        informer = Informer(
            resources.NODES,
            Codecs().for_kind(resources.NODES),
            KubeApi(transport, clock=clock),
            clock=clock,
            sink=sink,
            watch_list=False,
            on_invalid=None,
            jitter=lambda: 0.0,
        )
        task = asyncio.ensure_future(informer.run())
        try:
            await complete.wait()
        finally:
            task.cancel()
            await asyncio.wait({task})
            await transport.close()

    assert found == ["a", "b"]
    assert server.refused >= 1
