"""A controller with a dashboard, on the embedded cluster with the objects of the demo."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console

from karpenter_core.cli.demo.demo_cluster import DemoCluster
from karpenter_core.cli.demo.demo_manifests import DEPLOYMENT, NAME, DemoManifests
from karpenter_core.cli.demo.processes import controller, embedded_cluster, free_port
from karpenter_core.cli.demo.view import choose_view
from karpenter_core.kube.api import KubeApi
from karpenter_core.kube.client import connect
from karpenter_core.kube.resources import PODS
from karpenter_core.operator.clock import SystemClock
from karpenter_provider_kwok.api import KWOKNodeClass

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

__all__ = ["DashboardRun", "running_dashboard"]


@dataclass(frozen=True)
class DashboardRun:
    """The address of the dashboard, and the cluster that it shows."""

    url: str
    kubeconfig: Path
    api: KubeApi
    cluster: DemoCluster

    async def add_pod(self, name: str, *, cpu: str) -> None:
        """Create a pod that only nodes of the demo can run."""
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAME, "labels": {"app": DEPLOYMENT}},
            "spec": {
                "nodeSelector": {"karpenter.sh/nodepool": NAME},
                "tolerations": [{"key": NAME, "operator": "Exists"}],
                "containers": [
                    {"name": "main", "image": "nginx", "resources": {"requests": {"cpu": cpu}}}
                ],
            },
        }
        await self.api.create(PODS, pod, namespace=NAME)


@asynccontextmanager
async def running_dashboard(folder: Path) -> AsyncGenerator[DashboardRun]:
    """Run the cluster and the controller; yield once the dashboard is served."""
    clock = SystemClock()
    port = free_port()
    requirements = [{"key": f"{KWOKNodeClass.resource.group}/instance-cpu",
                     "operator": "Gt", "values": ["7"]}]  # fmt: skip
    manifests = DemoManifests(
        node_class=KWOKNodeClass,
        capacity_types=("spot", "on-demand"),
        requirements=requirements,
    )
    async with embedded_cluster(folder) as kubeconfig:
        api = KubeApi(await connect(kubeconfig=str(kubeconfig), clock=clock), clock=clock)
        view = choose_view(Console(quiet=True), clock, "USD")
        cluster = DemoCluster(api, manifests, view)
        try:
            await cluster.set_up()
            async with controller(
                kubeconfig,
                folder,
                provider="kwok",
                environment={"CLUSTER_NAME": "production"},
                dashboard_port=port,
            ):
                yield DashboardRun(f"http://127.0.0.1:{port}/", kubeconfig, api, cluster)
        finally:
            await api.close()
