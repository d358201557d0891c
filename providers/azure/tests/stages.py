"""A whole controller over the simulated Azure, both in the simulated time of the cluster."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from karpenter_core.testing.provider_cluster import ProviderClusterSpec
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_provider_azure.plugin import AzureProvider
from karpenter_simulated_azure.cloud import SimulatedAzure
from karpenter_simulated_azure.size_table import SIZE_TABLE
from karpenter_simulated_azure.sizes import sku_of
from karpenter_simulated_azure.testing import facts_of, settings_for, simulated_environment
from karpenter_simulated_azure.world import AzureWorld
from tests.support.cloud_scenarios import FAST_RETRIES, ClusterTime

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator
    from pathlib import Path

    from karpenter_core.testing.provider_cluster import ProviderCluster


class CloudStage:
    """One simulated cloud that sells a few sizes, and the scenarios that run on it."""

    def __init__(self, sizes: Collection[str], world: AzureWorld | None = None) -> None:
        self._time = ClusterTime()
        world = world or AzureWorld()
        skus = [sku_of(each, world) for each in SIZE_TABLE if each.name in sizes]
        self.cloud = SimulatedAzure(world=world, skus=skus, clock=self._time)

    @contextmanager
    def open(self) -> Iterator[CloudStage]:
        """Serve the cloud, and let the environment lead to it."""
        with self.cloud, simulated_environment(self.cloud):
            yield self

    def play(
        self,
        folder: Path,
        scenario: Callable[[ProviderCluster], Awaitable[None]],
        **settings: str,
    ) -> None:
        """Run a scenario to its end; `settings` replace those of the ready world."""

        async def in_its_time(stage: ProviderCluster) -> None:
            with self._time.of(stage.harness.cluster.clock):
                await scenario(stage)

        changed = {name.replace("_", "-"): value for name, value in settings.items()}
        flags = {**settings_for(self.cloud), **changed}
        ProviderClusterSpec(
            plugins=lambda: {"azure": AzureProvider(retries=FAST_RETRIES)},
            model=AKSNodeClass,
            facts=facts_of(self.cloud),
            arguments=(
                f"--cluster-name={self.cloud.world.cluster_name}",
                *(f"--{flag}={value}" for flag, value in flags.items()),
            ),
        ).run(folder, in_its_time)

    def node_class(self, name: str = "default", **spec: Any) -> dict[str, Any]:
        """Return an AKSNodeClass; `spec` as in YAML."""
        return {
            "apiVersion": AKSNodeClass.resource.api_version,
            "kind": AKSNodeClass.resource.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
