"""A whole controller over the simulated Alibaba Cloud, both in the simulated time of the cluster."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from karpenter_core.kube.resources import NODES
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from karpenter_core.provider.kit.simulated.cloud_time import utc_now
from karpenter_core.testing.provider_cluster import ProviderClusterSpec
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_provider_alibabacloud.plugin import AlibabaCloudProvider
from karpenter_provider_alibabacloud.sdk import ClientLimits
from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud
from karpenter_simulated_alibabacloud.testing import node_class_for, simulated_environment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from karpenter_core.clock import Clock
    from karpenter_core.testing.harness import ControllerHarness
    from karpenter_core.testing.provider_cluster import ProviderCluster
    from karpenter_simulated_alibabacloud.types import TypeInfo
    from karpenter_simulated_alibabacloud.world import WorldPlan

RETRIES = RetryPolicy(
    throttled_attempts=2,
    transient_attempts=2,
    first_backoff_seconds=0.001,
    longest_backoff_seconds=0.001,
)
"""Waits inside a call take real time."""
LIMITS = ClientLimits(
    connect_seconds=10,
    read_seconds=5,
    launch_read_seconds=5,
    retries=RETRIES,
    price_calls_per_second=1000,
)


class ClusterTime:
    """The simulated time of a scenario, and the real one between scenarios."""

    def __init__(self) -> None:
        self._now: Callable[[], datetime] = utc_now

    def __call__(self) -> datetime:
        return self._now()

    @contextmanager
    def of(self, clock: Clock) -> Iterator[None]:
        """Go by a clock while the context is open."""
        self._now = clock.now
        try:
            yield
        finally:
            self._now = utc_now


class CloudStage:
    """One simulated cloud, and the scenarios that run on it."""

    def __init__(self, types: Iterable[TypeInfo], plan: WorldPlan | None = None) -> None:
        self._time = ClusterTime()
        self.cloud = SimulatedAlibabaCloud(instance_types=types, plan=plan, clock=self._time)

    @contextmanager
    def open(self) -> Iterator[CloudStage]:
        """Serve the cloud, and let the environment lead to it."""
        with self.cloud, simulated_environment(self.cloud):
            yield self

    def play(
        self,
        folder: Path,
        scenario: Callable[[ProviderCluster], Awaitable[None]],
        *,
        cluster_id: str = "",
        arguments: Iterable[str] = (),
    ) -> None:
        """Run a scenario to its end; `cluster_id` is the one of the ready world unless it is given."""

        async def in_its_time(stage: ProviderCluster) -> None:
            with self._time.of(stage.harness.cluster.clock):
                await scenario(stage)

        cloud = self.cloud
        ProviderClusterSpec(
            plugins=lambda: {"alibabacloud": AlibabaCloudProvider(limits=LIMITS)},
            model=ECSNodeClass,
            arguments=(
                f"--cluster-id={cluster_id or cloud.world.cluster}",
                f"--region-id={cloud.account.region}",
                f"--alibaba-endpoint-ecs={cloud.endpoint}",
                f"--alibaba-endpoint-vpc={cloud.endpoint}",
                f"--alibaba-endpoint-cs={cloud.endpoint}",
                "--alibaba-endpoint-protocol=http",
                *arguments,
            ),
        ).run(folder, in_its_time)

    def node_class(self, name: str = "default", **spec: Any) -> dict[str, Any]:
        """Return an ECSNodeClass that fits the ready world; `spec` as in YAML comes on top."""
        written = node_class_for(self.cloud, **spec)
        return {
            "apiVersion": ECSNodeClass.resource.api_version,
            "kind": ECSNodeClass.resource.kind,
            "metadata": {"name": name},
            "spec": written.model_dump(mode="json", by_alias=True, exclude_unset=True)["spec"],
        }


def pod_manifest(name: str, *, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    """Return a pod; `spec` are further fields."""
    container = {"name": "web", "image": "web", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **spec},
    }


def in_pool(name: str) -> Mapping[str, Any]:
    """Return what binds a pod to a NodePool."""
    return {"nodeSelector": {"karpenter.sh/nodepool": name}}


class InstanceRegistrar:
    """Registers instances as kubelets do, and deletes Nodes whose instance is gone."""

    def __init__(self, cloud: SimulatedAlibabaCloud, harness: ControllerHarness) -> None:
        self._cloud = cloud
        self._harness = harness
        self._names: dict[str, str] = {}
        """Of the Nodes, by id of the instance."""

    async def run(self) -> None:
        """Follow the cloud until cancelled."""
        while True:
            living = {each.id for each in self._cloud.living()}
            for instance_id in sorted(living - self._names.keys()):
                node = self._cloud.node(instance_id)
                if node is not None:
                    self._harness.cluster.apply([node])
                    self._names[instance_id] = cast("dict[str, Any]", node["metadata"])["name"]
            for instance_id in self._names.keys() - living:
                name = self._names.pop(instance_id)
                if self._harness.cluster.find(NODES, name) is not None:
                    self._harness.cluster.delete(NODES, name)
            await self._harness.cluster.clock.sleep(1)


@asynccontextmanager
async def joining(cloud_stage: CloudStage, stage: ProviderCluster) -> AsyncIterator[None]:
    """Register instances while the context is open."""
    task = asyncio.create_task(InstanceRegistrar(cloud_stage.cloud, stage.harness).run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
