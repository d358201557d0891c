"""API servers for the tests of semantics: embedded, and real if available."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from karpenter_core.kube.client import connect
from karpenter_core.sim.cluster import EmbeddedCluster
from karpenter_core.sim.kubelets import KubeletTimes
from karpenter_core.sim.virtual_time import LoopClock
from tests.sim.api_client import (
    BUDGETS,
    DEFINITIONS,
    NODES,
    PODS,
    REPLICA_SETS,
    WIDGET_DEFINITION,
    WIDGETS,
    Api,
)

if TYPE_CHECKING:
    from tests.support.local_clusters import RealLocalCluster

WIDGET_NAME = f"{DEFINITIONS}/{WIDGET_DEFINITION['metadata']['name']}"
LEFT = (WIDGETS, REPLICA_SETS, BUDGETS, PODS, NODES)
"""Lists of objects that tests leave behind, owners first."""

FAST = KubeletTimes(node_boot_seconds=0.01, pod_start_seconds=0.01, pod_stop_seconds=0.3)


async def _install(api: Api) -> Api:
    await api.create(DEFINITIONS, WIDGET_DEFINITION)
    async with asyncio.timeout(20):
        while (await api.send("GET", WIDGETS)).status != 200:  # noqa: ASYNC110 - a real server
            await asyncio.sleep(0.05)
    return api


async def _empty(api: Api) -> None:
    """Remove the objects that the tests have left, and wait until they are gone."""
    for path in LEFT:
        await api.send("DELETE", path, gracePeriodSeconds="0", propagationPolicy="Background")
    async with asyncio.timeout(60):
        for path in LEFT:
            while (found := await api.send("GET", path)).status == 200 and found.body["items"]:  # noqa: ASYNC110 - a real server
                await asyncio.sleep(0.1)
    await api.send("DELETE", WIDGET_NAME)
    await api.until(WIDGET_NAME, lambda found: found is None)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def direct_api():
    async with EmbeddedCluster(times=FAST) as cluster:
        yield await _install(Api(cluster.transport(), compact=cluster.server.compact))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def http_api():
    async with EmbeddedCluster(times=FAST, http=True) as cluster:
        transport = await connect(kubeconfig=str(cluster.kubeconfig_path), clock=LoopClock())
        yield await _install(Api(transport, compact=cluster.server.compact))
        await transport.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def real_api(real_local_cluster: RealLocalCluster):
    """The control plane of the end-to-end tests, which find it as empty as before."""
    transport = await connect(kubeconfig=str(real_local_cluster.kubeconfig), clock=LoopClock())
    api = await _install(Api(transport))
    yield api
    await _empty(api)
    await transport.close()


REAL = pytest.param("real", marks=[pytest.mark.e2e, pytest.mark.real])


@pytest.fixture(params=["direct", "http", REAL])
def api(request: pytest.FixtureRequest) -> Api:
    """Every API server in turn."""
    return request.getfixturevalue(f"{request.param}_api")
