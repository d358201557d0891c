"""The simulated Azure for `karpenter demo --provider azure`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.demo import SimulatedCloudDemo
from karpenter_simulated_azure.cloud import SimulatedAzure
from karpenter_simulated_azure.invariants import leftovers
from karpenter_simulated_azure.throttling import AZURE_RATES
from karpenter_simulated_azure.virtual_machines import VirtualMachine
from karpenter_simulated_azure.world import AzureWorld

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence

    from karpenter_core.provider.kit.demo_cloud import LoggedLaunchCall

__all__ = ["AzureDemo", "simulated_cloud"]

CLUSTER: Final = "karpenter-demo"
"""The name that `karpenter demo` gives the cluster."""


@contextmanager
def simulated_cloud() -> Generator[AzureDemo]:
    """Serve a subscription with an AKS cluster in three zones, where nodes take seconds to boot."""
    # Other clouds of the same process have a cluster of this name too.
    with SimulatedAzure(world=AzureWorld(cluster_name=CLUSTER)) as cloud:
        cloud.behaviour.pending_seconds = 2
        cloud.behaviour.boot_seconds = 2
        cloud.behaviour.terminating_seconds = 1
        cloud.operations.retry_after_seconds = 1
        cloud.throttling.set(AZURE_RATES)
        yield AzureDemo(cloud)


@final
class AzureDemo(SimulatedCloudDemo[VirtualMachine]):
    """One simulated cloud and what a demo does with it."""

    def __init__(self, cloud: SimulatedAzure) -> None:
        super().__init__(cloud)
        self._azure: Final = cloud

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that direct the SDK to the cloud.

        They leave the name of the cluster to the demo: other clouds of the same process need theirs.
        """
        variables = self._azure.environment
        return {name: value for name, value in variables.items() if name != "CLUSTER_NAME"}

    @property
    def node_class_spec(self) -> Mapping[str, object]:
        """Ubuntu; images cannot be pinned."""
        return {"imageFamily": "Ubuntu"}

    @property
    def newer_image(self) -> Mapping[str, object]:
        """Another family, whose image is newer."""
        return {"imageFamily": "AzureLinux"}

    @property
    def requirements(self) -> Sequence[Mapping[str, object]]:
        """Sizes of 16 CPUs in zones."""
        return [
            {"key": "karpenter.azure.com/sku-cpu", "operator": "In", "values": ["16"]},
            # Zone "0" would be one more zone to spread pods over: that of nodes without a zone.
            {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["0"]},
        ]

    def launch_calls(self) -> Sequence[LoggedLaunchCall]:
        """Return the PUTs of virtual machines."""
        return self._azure.launches.all

    def list_resources(self) -> Collection[str]:
        """Return virtual machines, network interfaces and disks."""
        return list(leftovers(self._azure))
