"""API servers for the tests of semantics: embedded, and real if available."""

from __future__ import annotations

import asyncio

import pytest
import pytest_asyncio

from karpenter_core.kube.client import connect
from karpenter_core.sim.cluster import EmbeddedCluster
from karpenter_core.sim.kubelets import KubeletTimes
from karpenter_core.sim.virtual_time import LoopClock
from tests.sim.api_client import DEFINITIONS, WIDGET_DEFINITION, WIDGETS, Api
from tests.support.controlplane import BinariesMissingError, ControlPlane, find_binaries

FAST = KubeletTimes(node_boot_seconds=0.01, pod_start_seconds=0.01, pod_stop_seconds=0.3)


async def _install(api: Api) -> Api:
    await api.create(DEFINITIONS, WIDGET_DEFINITION)
    async with asyncio.timeout(20):
        while (await api.send("GET", WIDGETS)).status != 200:  # noqa: ASYNC110 - a real server
            await asyncio.sleep(0.05)
    return api


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


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real_api(request: pytest.FixtureRequest):
    minor = str(request.config.getoption("--kubernetes", default="1.36"))
    try:
        plane = ControlPlane(find_binaries(minor))
    except BinariesMissingError as error:
        pytest.skip(str(error))
    async with plane:
        transport = await connect(kubeconfig=str(plane.kubeconfig), clock=LoopClock())
        yield await _install(Api(transport))
        await transport.close()


REAL = pytest.param("real", marks=[pytest.mark.e2e, pytest.mark.real])


@pytest.fixture(params=["direct", "http", REAL])
def api(request: pytest.FixtureRequest) -> Api:
    """Every API server in turn."""
    return request.getfixturevalue(f"{request.param}_api")
