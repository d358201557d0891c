"""The clusters of the end-to-end tests work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.kube.resources import DEPLOYMENTS, NODES, PODS
from karpenter_core.testing.cluster import ClusterClient, ClusterError, ClusterMirror
from karpenter_core.testing.scenarios import ScenarioDeployment
from tests.support.gateway import Gateway, HookMoment, ObservedWrite
from tests.support.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.support.local_clusters import LocalCluster, RealLocalCluster

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "bench", "labels": {"kubernetes.io/hostname": "bench"}},
    "status": {
        "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
        "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
    },
}


def pods_running(mirror: ClusterMirror, count: int) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        phases = [pod["status"]["phase"] for pod in mirror.objects(PODS)]
        return phases.count("Running") == count and len(phases) == count

    return check


async def test_the_control_plane_has_the_requested_version(
    real_local_cluster: RealLocalCluster, kubernetes: str
):
    """Clients must not see v0.0.0."""
    async with ClusterClient(real_local_cluster.kubeconfig) as client:
        version = await client.request("GET", "/version")

    assert f"{version['major']}.{version['minor']}" == kubernetes
    assert version["gitVersion"].startswith(f"v{kubernetes}.")


async def test_pods_of_a_deployment_run_on_a_simulated_node(local_cluster: LocalCluster):
    """A Node becomes Ready by itself, pods are bound and run; deleted ones are gone."""
    async with (
        ClusterClient(local_cluster.kubeconfig) as client,
        ClusterMirror(client, [NODES, PODS]) as mirror,
    ):
        await client.create(NODES, NODE)
        await client.create(DEPLOYMENTS, ScenarioDeployment(name="web", replicas=3).manifest())
        await wait_until(pods_running(mirror, 3), seconds=30)
        await client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 5}})
        await wait_until(pods_running(mirror, 5), seconds=30)

        await client.delete(DEPLOYMENTS, "web")
        await wait_until(pods_running(mirror, 0), seconds=30)
        await client.delete(NODES, "bench")
        assert len(mirror.ever(PODS)) == 5


async def test_a_killed_api_server_restarts_with_its_stored_objects(
    real_local_cluster: RealLocalCluster,
):
    """And the controllers go on where they were."""
    async with (
        ClusterClient(real_local_cluster.kubeconfig) as client,
        ClusterMirror(client, [NODES, PODS]) as mirror,
    ):
        await client.create(NODES, NODE)
        await client.create(DEPLOYMENTS, ScenarioDeployment(name="web", replicas=2).manifest())
        await wait_until(pods_running(mirror, 2), seconds=30)

        await real_local_cluster.restart_api_server()

        await client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 4}})
        await wait_until(pods_running(mirror, 4), seconds=60)
        await client.delete(DEPLOYMENTS, "web")
        await wait_until(pods_running(mirror, 0), seconds=30)
        await client.delete(NODES, "bench")


async def test_an_unauthenticated_client_may_not_list_nodes(real_local_cluster: RealLocalCluster):
    """Authentication and authorisation are on, as in a cluster that matters."""
    async with ClusterClient(real_local_cluster.kubeconfig) as client:
        stranger = real_local_cluster.control_plane.write_kubeconfig(
            "stranger", organization="nobody"
        )
        async with ClusterClient(stranger) as other:
            with pytest.raises(ClusterError) as refused:
                await other.list(NODES)
        assert refused.value.code == 403
        assert await client.list(NODES) == []


async def test_gateway_withholds_the_write_that_the_hook_stops(
    local_cluster: LocalCluster, tmp_path: Path
):
    """Stopped before: the server never sees it. Stopped after: it is done, unknown to the client."""
    stop_at: tuple[int, HookMoment] | None = None

    async def hook(write: ObservedWrite, moment: HookMoment) -> bool:
        return (write.number, moment) != stop_at

    node = {**NODE, "metadata": {"name": "gate"}}
    async with (
        ClusterClient(local_cluster.kubeconfig) as client,
        Gateway(client, tmp_path / "gateway.kubeconfig") as gateway,
        ClusterClient(gateway.kubeconfig) as behind,
    ):
        gateway.watch_writes(hook)
        for moment, exist in ((HookMoment.BEFORE, 0), (HookMoment.AFTER, 1)):
            stop_at = (len(gateway.writes) + 1, moment)
            with pytest.raises(ClusterError, match="502"):
                await behind.create(NODES, node)
            assert len(await client.list(NODES)) == exist

        async with ClusterMirror(behind, [NODES]) as mirror:
            await behind.delete(NODES, "gate")

            async def none_left() -> bool:
                return mirror.objects(NODES) == []

            await wait_until(none_left, seconds=10)
        assert [write.method for write in gateway.writes] == ["POST", "POST", "DELETE"]
