"""The simulated AWS for `karpenter demo --provider aws`."""

from __future__ import annotations

import base64
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.demo import SimulatedCloudDemo
from karpenter_simulated_aws.cloud import SimulatedAws
from karpenter_simulated_aws.instances import SimulatedInstance
from karpenter_simulated_aws.world import WorldPlan

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence

    from karpenter_core.provider.kit.demo_cloud import LoggedLaunchCall

__all__ = ["simulated_cloud"]

_CLUSTER: Final = "karpenter-demo"
_OLDER, _NEWER = "al2023@v20260112", "al2023@v20260608"
_NO_CERTIFICATE: Final = base64.b64encode(b"simulated").decode()


@contextmanager
def simulated_cloud() -> Generator[AwsDemo]:
    """Serve an account with a network, a node role and a queue, where instances take seconds to boot."""
    with SimulatedAws(plan=WorldPlan(cluster=_CLUSTER)) as aws:
        aws.behaviour.pending_seconds = 1
        aws.behaviour.boot_seconds = 3
        aws.behaviour.terminating_seconds = 1
        aws.behaviour.announce_states = True
        yield AwsDemo(aws)


@final
class AwsDemo(SimulatedCloudDemo[SimulatedInstance]):
    """One simulated AWS and what a demo does with it."""

    def __init__(self, aws: SimulatedAws) -> None:
        super().__init__(aws)
        self._aws: Final = aws

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of boto3, and the settings without which no node joins."""
        return {
            **self._aws.environment,
            "CLUSTER_NAME": self._aws.world.cluster,
            "CLUSTER_ENDPOINT": "https://api.simulated",
            "CLUSTER_CA_BUNDLE": _NO_CERTIFICATE,
            "INTERRUPTION_QUEUE": self._aws.world.queue,
        }

    @property
    def node_class_spec(self) -> Mapping[str, object]:
        """Everything by the tag of the cluster, and a pinned release of Amazon Linux."""
        selector = [{"tags": dict(self._aws.world.discovery)}]
        return {
            "role": self._aws.world.role,
            "subnetSelectorTerms": selector,
            "securityGroupSelectorTerms": selector,
            **_images(_OLDER),
        }

    @property
    def requirements(self) -> Sequence[Mapping[str, object]]:
        """Instances of 16 CPUs."""
        return [{"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["16"]}]

    @property
    def newer_image(self) -> Mapping[str, object]:
        """The pin, moved to a newer release."""
        return _images(_NEWER)

    def launch_calls(self) -> Sequence[LoggedLaunchCall]:
        """Return the fleets that were made."""
        return self._aws.fleets.launches.all

    def list_resources(self) -> Collection[str]:
        """Return instances, launch templates and instance profiles of the cluster."""
        return self._aws.held().all


def _images(alias: str) -> Mapping[str, object]:
    return {"amiSelectorTerms": [{"alias": alias}]}
