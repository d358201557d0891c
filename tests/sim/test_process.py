"""The embedded cluster runs as a process of its own."""

from __future__ import annotations

import pytest

from karpenter_core.errors import ApiError
from karpenter_core.kube.client import connect
from karpenter_core.kube.resources import NAMESPACES
from karpenter_core.kube.transport import ApiRequest
from karpenter_core.sim.virtual_time import LoopClock
from tests.support.local_clusters import EmbeddedLocalCluster


async def test_process_serves_restarts_and_ends():
    """Watches break when its API server goes; what it stored is there when it is back."""
    async with EmbeddedLocalCluster() as local_cluster:
        transport = await connect(kubeconfig=str(local_cluster.kubeconfig), clock=LoopClock())
        body = b'{"metadata":{"name":"kept"}}'
        await transport.request(ApiRequest(method="POST", path=NAMESPACES.path(), body=body))
        watch = ApiRequest(method="GET", path="/api/v1/nodes", query={"watch": "1"})
        async with transport.stream(watch) as (_, lines):
            await local_cluster.restart_api_server()
            with pytest.raises((ApiError, StopAsyncIteration)):
                await anext(lines)
        answer = await transport.request(
            ApiRequest(method="GET", path=NAMESPACES.path(name="kept"))
        )
        await transport.close()

    assert answer.status == 200
