"""Clusters for the end-to-end tests; each is started once and shared.

The real one is in `tests.support.shared_clusters`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from karpenter_core.testing.cluster import ClusterClient
from tests.support.local_clusters import EmbeddedLocalCluster
from tests.support.release import ChartRelease

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.local_clusters import LocalCluster, RealLocalCluster
    from tests.support.release import ReleaseAccess

LONGEST = (
    "test_demo_clouds.py",
    "test_crashes.py",
    "test_hanging_api_server.py",
    "test_three_clouds.py",
    "test_charts.py",
    "test_startup.py",
    "test_clock_steps.py",
    "test_name_lookups.py",
)
"""Modules whose tests take a minute and more: begun first, nobody waits for them in the end."""


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def embedded_local_cluster() -> AsyncIterator[LocalCluster]:
    """The embedded cluster, in a process of its own."""
    async with EmbeddedLocalCluster() as local_cluster:
        yield local_cluster


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def release_access(
    real_local_cluster: RealLocalCluster, tmp_path_factory: pytest.TempPathFactory
) -> ReleaseAccess:
    """Access of the chart's pods to the real control plane; the release itself has no pods."""
    folder = tmp_path_factory.mktemp("release")
    values = {
        "provider": "kwok",
        "replicas": 0,
        "controller": {"image": {"registry": "registry.example.com"}},
    }
    async with ClusterClient(real_local_cluster.kubeconfig) as client:
        release = ChartRelease(real_local_cluster.control_plane, client, folder)
        await release.upgrade(values)
        return await release.access()


@pytest.fixture(params=["embedded", "real"])
def local_cluster(request: pytest.FixtureRequest) -> LocalCluster:
    """Each of the clusters, one after the other."""
    return request.getfixturevalue(f"{request.param}_local_cluster")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the real control plane, and bring the tests into an order.

    Those of one cluster follow each other, the longest first.
    """
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if "real_local_cluster" in item.fixturenames or parameters.get("local_cluster") == "real":
            item.add_marker(pytest.mark.real)
    items.sort(key=lambda item: (item.get_closest_marker("real") is not None, _rank(item)))


def _rank(item: pytest.Item) -> int:
    return LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST)
