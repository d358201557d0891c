"""The simulated clouds on which chaos runs: what differs between them.

The SDKs are the real ones and talk to a server in this process. The cloud's time is the simulated time
of the cluster.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_core.provider.kit.simulated.instances import InstancePhase
from karpenter_core.testing.provider_cluster import ProviderClusterSpec
from tests.support.cloud_scenarios import ClusterTime

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.provider.kit.simulated.cloud import SimulatedCloud
    from karpenter_core.testing.provider_cluster import ProviderCluster

__all__ = ["STAGES", "ChaosStage"]

RETRIES: Final = RetryPolicy(
    throttled_attempts=2,
    transient_attempts=2,
    in_progress_attempts=2,
    in_progress_seconds=0.001,
    first_backoff_seconds=0.001,
    longest_backoff_seconds=0.001,
)
"""Waits inside a call take real time."""


class ChaosStage(Protocol):
    """One simulated cloud with its provider."""

    cloud: SimulatedCloud[Any]
    model: type[NodeClass]
    launches: Sequence[str]
    """Names of the calls that launch."""
    terminations: Sequence[str]
    writes: Sequence[str]
    """Further calls that change something."""
    reads: Sequence[str]
    throttled: CloudError
    ends_failed: bool
    """Whether the cloud ends an instance whose launch fails late; else it waits to be terminated."""
    gone_visible_seconds: Sequence[float]
    """Times for which an instance may still be described after its end."""

    def open(self) -> AbstractContextManager[object]:
        """Serve the cloud and lead the SDK of this process to it."""
        ...

    def play(self, folder: Path, story: Callable[[ProviderCluster], Awaitable[None]]) -> None:
        """Run a whole controller on it."""
        ...

    def node_class(self) -> dict[str, Any]:
        """Return a NodeClass that fits."""
        ...

    def disturb(self, rng: random.Random) -> None:
        """Send a message that is nonsense, or about nothing of the cluster's."""
        ...

    def launch_foreign(self, number: int) -> None:
        """Launch an instance of another cluster."""
        ...

    def left(self) -> Collection[str]:
        """Return the ids of instances and of what belongs to them."""
        ...


class AwsStage:
    """The provider for AWS."""

    launches = ("CreateFleet",)
    terminations = ("TerminateInstances",)
    writes = ("CreateLaunchTemplate", "CreateTags", "sqs:*")
    reads = ("DescribeInstances", "DescribeSubnets", "ec2:Describe*", "ssm:*", "iam:*", "pricing:*")
    throttled = CloudError("RequestLimitExceeded", "simulated", status=503)
    ends_failed = True
    gone_visible_seconds = (0, 60, 3600)

    def __init__(self) -> None:
        """Sell six types."""
        from karpenter_provider_aws.api.nodeclass import EC2NodeClass
        from karpenter_simulated_aws.cloud import SimulatedAws

        self.model = EC2NodeClass
        self._time = ClusterTime()
        types = {
            "m5.metal",
            "m5.large",
            "m5.xlarge",
            "m5.2xlarge",
            "c5.large",
            "c5.xlarge",
            "t3.large",
        }
        self.cloud = SimulatedAws(instance_types=types, clock=self._time)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Serve, with announcements of states."""
        from karpenter_simulated_aws.testing import simulated_environment

        with self.cloud, simulated_environment(self.cloud):
            yield

    def play(self, folder: Path, story: Callable[[ProviderCluster], Awaitable[None]]) -> None:
        """Run a whole controller."""
        from karpenter_provider_aws.plugin import AwsProvider
        from karpenter_provider_aws.sdk import ClientLimits

        # The queue is not waited for: a wait inside a call takes real time.
        limits = ClientLimits(connect_seconds=10, read_seconds=5, retries=RETRIES)

        async def in_its_time(cluster: ProviderCluster) -> None:
            with self._time.of(cluster.harness.cluster.clock):
                await story(cluster)

        ProviderClusterSpec(
            plugins=lambda: {"aws": AwsProvider(limits=limits)},
            model=self.model,
            arguments=(
                f"--cluster-name={self.cloud.world.cluster}",
                "--cluster-endpoint=https://api.simulated",
                f"--interruption-queue={self.cloud.world.queue}",
            ),
        ).run(folder, in_its_time)

    def node_class(self) -> dict[str, Any]:
        """Return an EC2NodeClass."""
        from karpenter_simulated_aws.testing import node_class_for

        written = node_class_for(self.cloud).model_dump(mode="json", exclude_unset=True)
        return {
            "apiVersion": self.model.resource.api_version,
            "kind": self.model.resource.kind,
            "metadata": {"name": "default"},
            "spec": written["spec"],
        }

    def disturb(self, rng: random.Random) -> None:
        """Send nonsense, a foreign event, or news of an instance that nobody knows."""
        messages = self.cloud.messages
        unknown = {"instance-id": "i-0123456789abcdef0", "instance-action": "terminate"}
        kind = "EC2 Spot Instance Interruption Warning"
        rng.choice(
            [
                lambda: messages.send_text("{not json"),
                lambda: messages.send_text("[]"),
                lambda: messages.send(source="aws.s3", kind="Object Created", detail={}),
                lambda: messages.send(source="aws.ec2", kind=kind, detail=unknown),
                lambda: messages.send(source="aws.ec2", kind=kind, detail={}),
            ]
        )()

    def launch_foreign(self, number: int) -> None:
        """Launch an instance of another cluster."""
        del number
        self.cloud.launch_foreign()

    def left(self) -> Collection[str]:
        """Return the instances that are not terminated."""
        mark = f"kubernetes.io/cluster/{self.cloud.world.cluster}"
        return [
            each.id
            for each in self.cloud.living()
            if mark in each.tags and self.cloud.instances.phase_of(each) is not InstancePhase.FAILED
        ]


class _StageOfProviderTests:
    """A stage of a provider's own tests, on which chaos plays too."""

    def __init__(self, stage: Any, model: type[NodeClass]) -> None:
        """`stage` is a `CloudStage` of the provider's tests."""
        self._stage = stage
        self.cloud = stage.cloud
        self.model = model

    def open(self) -> AbstractContextManager[object]:
        """Serve."""
        return self._stage.open()

    def play(self, folder: Path, story: Callable[[ProviderCluster], Awaitable[None]]) -> None:
        """Run a whole controller."""
        self._stage.play(folder, story)

    def node_class(self) -> dict[str, Any]:
        """Return a NodeClass of the provider."""
        return self._stage.node_class()


class AzureStage(_StageOfProviderTests):
    """The provider for Azure."""

    launches = ("virtualMachines:put",)
    terminations = ("virtualMachines:delete",)
    writes = (
        "networkInterfaces:put",
        "networkInterfaces:delete",
        "disks:delete",
        "virtualMachines:patch",
    )
    reads = (
        "virtualMachines:list",
        "virtualMachines:get",
        "networkInterfaces:list",
        "disks:list",
        "skus:list",
    )
    throttled = CloudError("OperationNotAllowed", "simulated", status=429, retry_after_seconds=1)
    ends_failed = False
    gone_visible_seconds = (0,)

    def __init__(self) -> None:
        """Sell four sizes."""
        from providers.azure.tests.stages import CloudStage

        sizes = {"Standard_D2s_v5", "Standard_D4s_v5", "Standard_D8s_v5", "Standard_F4s_v2"}
        super().__init__(CloudStage(sizes), _azure_model())

    def disturb(self, rng: random.Random) -> None:
        """Leave a network interface of another cluster behind: Azure sends no messages."""
        del rng

    def launch_foreign(self, number: int) -> None:
        """Create a virtual machine of another cluster."""
        self.cloud.create_foreign_vm(f"aks-other-{number}")

    def left(self) -> Collection[str]:
        """Return virtual machines, network interfaces and disks."""
        from karpenter_simulated_azure.invariants import leftovers

        return tuple(leftovers(self.cloud))


def _azure_model() -> type[NodeClass]:
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass

    return AKSNodeClass


class AlibabaCloudStage(_StageOfProviderTests):
    """The provider for Alibaba Cloud."""

    launches = ("CreateAutoProvisioningGroup", "RunInstances")
    terminations = ("DeleteInstances", "DeleteInstance")
    writes = ("TagResources", "CreateLaunchTemplate", "ModifyInstance*")
    reads = ("DescribeInstances", "DescribeVSwitches", "Describe*", "DescribeSpotPriceHistory")
    throttled = CloudError("Throttling.User", "simulated")
    ends_failed = False
    gone_visible_seconds = (0, 60)

    def __init__(self) -> None:
        """Sell five types."""
        from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
        from karpenter_simulated_alibabacloud.types import realistic_types
        from providers.alibabacloud.tests.stages import CloudStage

        names = {"ecs.c7.large", "ecs.g7.large", "ecs.g7.xlarge", "ecs.g7.2xlarge", "ecs.c7.xlarge"}
        types = [it for it in realistic_types() if it.name in names]
        super().__init__(CloudStage(types), ECSNodeClass)

    def disturb(self, rng: random.Random) -> None:
        """Schedule maintenance of an instance of another cluster."""
        foreign = [each for each in self.cloud.living() if "ecs:ecs-cluster-id" in each.tags]
        others = [each for each in foreign if each.tags["ecs:ecs-cluster-id"] == "other"]
        if others:
            self.cloud.schedule_event(rng.choice(others).id)

    def launch_foreign(self, number: int) -> None:
        """Launch an instance of another cluster."""
        del number
        self.cloud.launch_foreign()

    def left(self) -> Collection[str]:
        """Return instances and provisioning groups."""
        return self.cloud.held().all


STAGES: Final[dict[str, Callable[[], ChaosStage]]] = {
    "alibabacloud": AlibabaCloudStage,
    "aws": AwsStage,
    "azure": AzureStage,
}
