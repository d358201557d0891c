"""The simulated cloud for `karpenter demo --provider tinycloud`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.demo_cloud import DemoFeature
from karpenter_core.provider.kit.simulated.demo import SimulatedCloudDemo
from karpenter_core.provider.kit.simulated.rest import RestInstance
from karpenter_provider_tinycloud.simulated import SimulatedTinyCloud

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence

    from karpenter_core.provider.kit.demo_cloud import LoggedLaunchCall

__all__ = ["simulated_cloud"]


@contextmanager
def simulated_cloud() -> Generator[TinyCloudDemo]:
    """Serve a cloud whose VMs take seconds to boot."""
    with SimulatedTinyCloud() as cloud:
        cloud.behaviour.boot_seconds = 2
        yield TinyCloudDemo(cloud)


@final
class TinyCloudDemo(SimulatedCloudDemo[RestInstance]):
    """One simulated cloud and what a demo does with it."""

    def __init__(self, cloud: SimulatedTinyCloud) -> None:
        super().__init__(cloud)
        self._tinycloud: Final = cloud

    @property
    def environment(self) -> Mapping[str, str]:
        """The settings of the provider, and the name that VMs are tagged with."""
        return {**self._tinycloud.environment, "CLUSTER_NAME": "karpenter-demo"}

    @property
    def lacks(self) -> Collection[DemoFeature]:
        """A NodeClass selects the newest version of an image, so no field of it changes."""
        return (DemoFeature.NEWER_IMAGE,)

    @property
    def node_class_spec(self) -> Mapping[str, object]:
        """The defaults."""
        return {}

    def launch_calls(self) -> Sequence[LoggedLaunchCall]:
        """Return the VMs that were created, and the offerings that were sold out."""
        return self._tinycloud.launches.all
