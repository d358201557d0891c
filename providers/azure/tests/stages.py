"""A whole controller over the simulated Azure, both in the simulated time of the cluster."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from karpenter_core.provider.kit.simulated.cloud_time import utc_now
from karpenter_core.testing.provider_cluster import ProviderClusterSpec
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_provider_azure.plugin import AzureProvider
from karpenter_simulated_azure.cloud import SimulatedAzure
from karpenter_simulated_azure.size_table import SIZE_TABLE
from karpenter_simulated_azure.sizes import sku_of
from karpenter_simulated_azure.testing import facts_of, settings_for, simulated_environment
from karpenter_simulated_azure.world import AzureWorld

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from karpenter_core.clock import Clock
    from karpenter_core.testing.provider_cluster import ProviderCluster

RETRIES = RetryPolicy(
    throttled_attempts=2,
    transient_attempts=2,
    first_backoff_seconds=0.001,
    longest_backoff_seconds=0.001,
)
"""Waits inside a call take real time."""


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
            plugins=lambda: {"azure": AzureProvider(retries=RETRIES)},
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
