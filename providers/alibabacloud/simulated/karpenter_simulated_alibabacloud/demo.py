"""The simulated Alibaba Cloud for `karpenter demo --provider alibabacloud`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.demo import SimulatedCloudDemo
from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud
from karpenter_simulated_alibabacloud.instances import SimulatedInstance
from karpenter_simulated_alibabacloud.world import WorldPlan

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence

    from karpenter_core.provider.kit.demo_cloud import LoggedLaunchCall

__all__ = ["simulated_cloud"]

_OLDER, _NEWER = "ContainerOS@20250117", "ContainerOS@20250629"


@contextmanager
def simulated_cloud() -> Generator[AlibabaCloudDemo]:
    """Serve an account with an ACK cluster in three zones, where instances take seconds to boot."""
    # In all zones there is spot, so that what is sold out in one can be had in the next.
    plan = WorldPlan(zones_without_spot=())
    with SimulatedAlibabaCloud(plan=plan) as cloud:
        cloud.behaviour.pending_seconds = 1
        cloud.behaviour.starting_seconds = 1
        cloud.behaviour.boot_seconds = 2
        cloud.behaviour.terminating_seconds = 1
        yield AlibabaCloudDemo(cloud)


@final
class AlibabaCloudDemo(SimulatedCloudDemo[SimulatedInstance]):
    """One simulated cloud and what a demo does with it."""

    def __init__(self, cloud: SimulatedAlibabaCloud) -> None:
        super().__init__(cloud)
        self._alibabacloud: Final = cloud

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that lead the provider here, and let it look for interruptions often."""
        return {**self._alibabacloud.environment, "INTERRUPTION_POLL_INTERVAL": "2s"}

    @property
    def currency(self) -> str:
        """Currency of accounts of the Chinese site."""
        return "CNY"

    @property
    def node_class_spec(self) -> Mapping[str, object]:
        """Everything by the tag of the cluster, and a pinned release of ContainerOS."""
        selector = [{"tags": dict(self._alibabacloud.world.discovery)}]
        return {
            "securityGroupSelectorTerms": selector,
            "vSwitchSelectorTerms": selector,
            **_images(_OLDER),
        }

    @property
    def requirements(self) -> Sequence[Mapping[str, object]]:
        """Instances of 16 CPUs."""
        return [
            {"key": "karpenter.k8s.alibabacloud/instance-cpu", "operator": "In", "values": ["16"]}
        ]

    @property
    def newer_image(self) -> Mapping[str, object]:
        """The pin, moved to a newer release."""
        return _images(_NEWER)

    def launch_calls(self) -> Sequence[LoggedLaunchCall]:
        """Return the provisioning groups that were made."""
        return self._alibabacloud.groups.launches.all

    def list_resources(self) -> Collection[str]:
        """Return instances of the cluster, and the provisioning groups that have some."""
        return self._alibabacloud.held().all


def _images(alias: str) -> Mapping[str, object]:
    return {"imageSelectorTerms": [{"alias": alias}]}
