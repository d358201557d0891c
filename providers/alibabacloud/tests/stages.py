"""A whole controller over the simulated Alibaba Cloud, both in the simulated time of the cluster."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from karpenter_core.testing.provider_cluster import ProviderClusterSpec
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_provider_alibabacloud.plugin import AlibabaCloudProvider
from karpenter_provider_alibabacloud.sdk import ClientLimits
from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud
from karpenter_simulated_alibabacloud.testing import node_class_for, simulated_environment
from tests.support.cloud_scenarios import FAST_RETRIES, ClusterTime

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator
    from pathlib import Path

    from karpenter_core.testing.provider_cluster import ProviderCluster
    from karpenter_simulated_alibabacloud.types import TypeInfo
    from karpenter_simulated_alibabacloud.world import WorldPlan

LIMITS = ClientLimits(
    connect_seconds=10,
    read_seconds=5,
    launch_read_seconds=5,
    retries=FAST_RETRIES,
    price_calls_per_second=1000,
)


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
