"""The embedded cluster in a process of its own, as end-to-end tests and the demo run it."""

from __future__ import annotations

import pytest

from karpenter_core.errors import ApiError
from karpenter_core.kube.client import connect
from karpenter_core.kube.resources import NAMESPACES
from karpenter_core.kube.transport import Request
from karpenter_core.sim.virtual_time import LoopClock
from tests.support.beds import EmbeddedBed


async def test_process_serves_restarts_and_ends():
    """Watches break when its API server goes; what it stored is there when it is back."""
    async with EmbeddedBed() as bed:
        transport = await connect(kubeconfig=str(bed.kubeconfig), clock=LoopClock())
        body = b'{"metadata":{"name":"kept"}}'
        await transport.request(Request(method="POST", path=NAMESPACES.path(), body=body))
        watch = Request(method="GET", path="/api/v1/nodes", query={"watch": "1"})
        async with transport.stream(watch) as (_, lines):
            await bed.restart_api_server()
            with pytest.raises((ApiError, StopAsyncIteration)):
                await anext(lines)
        answer = await transport.request(Request(method="GET", path=NAMESPACES.path(name="kept")))
        await transport.close()

    assert answer.status == 200
