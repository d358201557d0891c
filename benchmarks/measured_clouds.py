"""Opens the simulated cloud of each provider so that its calls are counted."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Protocol

from karpenter_core.provider.contract import ClusterFacts
from karpenter_core.provider.kit.simulated.cloud_time import utc_now
from karpenter_core.provider.markers import hookimpl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    from karpenter_core.api.nodeclass import NodeClass

__all__ = ["CLOUDS", "CPUS", "ClusterTime", "MeasuredCloud"]

CPUS: Final = "2"
LONG_POLL_SECONDS: Final = 20.0
"""Time for which SQS waits for a message."""


class MeasuredCloud(Protocol):
    """A cloud that a controller runs on."""

    @property
    def model(self) -> type[NodeClass]:
        """The kind of NodeClass."""
        ...

    @property
    def cpu_label(self) -> str:
        """Label of the number of CPUs."""
        ...

    @property
    def node_class_spec(self) -> Mapping[str, object]:
        """The `spec` of a NodeClass."""
        ...

    @property
    def arguments(self) -> Sequence[str]:
        """Arguments of `karpenter run`."""
        ...

    @property
    def facts(self) -> ClusterFacts:
        """Facts of the cluster that the controller knows from the start."""
        ...

    def plugins(self) -> Mapping[str, object]:
        """Make the plug-in of a process, by name."""
        ...

    def calls(self) -> Counter[str] | None:
        """Return the number of calls by name since the start; None if there is no cloud."""
        ...

    def nodes(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the Nodes that kubelets register, by provider ID."""
        ...


class ClusterTime:
    """The time of a simulated cloud: that of the cluster, once there is one."""

    def __init__(self) -> None:
        self.now: Callable[[], datetime] = utc_now

    def __call__(self) -> datetime:
        """Return the time."""
        return self.now()


class _SimulatedCloud:
    """The properties that simulated clouds share."""

    facts = ClusterFacts()

    def __init__(self, cloud: Any) -> None:
        self.cloud: Final = cloud

    @property
    def node_class_spec(self) -> Mapping[str, object]:
        """Everything by the tag of the cluster, and the newest images."""
        discovery = [{"tags": dict(self.cloud.world.discovery)}]
        return {"securityGroupSelectorTerms": discovery, **self.fields(discovery)}

    def fields(self, discovery: object) -> Mapping[str, object]:
        """Return further fields of the NodeClass."""
        raise NotImplementedError

    def calls(self) -> Counter[str]:
        """Return the log, by action; dry runs apart."""
        return Counter(
            f"{each.action} (dry run)" if each.dry_run else each.action
            for each in self.cloud.calls.all
        )

    def nodes(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the Nodes that kubelets register."""
        return self.cloud.nodes()


class _Aws(_SimulatedCloud):
    cpu_label = "karpenter.k8s.aws/instance-cpu"

    @property
    def model(self) -> type[NodeClass]:
        from karpenter_provider_aws.api.nodeclass import EC2NodeClass

        return EC2NodeClass

    @property
    def arguments(self) -> Sequence[str]:
        """Return the settings of the usual installation on EKS."""
        world = self.cloud.world
        return (f"--cluster-name={world.cluster}", f"--interruption-queue={world.queue}")

    def fields(self, discovery: object) -> Mapping[str, object]:
        return {
            "role": self.cloud.world.role,
            "subnetSelectorTerms": discovery,
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
        }

    def plugins(self) -> Mapping[str, object]:
        from karpenter_provider_aws.plugin import AwsProvider
        from karpenter_provider_aws.sdk import ClientLimits

        # With so few seconds to read, the queue is not waited for: that would take real time.
        plugin = AwsProvider(limits=ClientLimits(connect_seconds=1, read_seconds=5))
        poll = plugin.karpenter_poll_interruptions

        @hookimpl
        @wraps(poll)
        async def long_poll() -> object:
            found = poll()
            if not found:
                await asyncio.sleep(LONG_POLL_SECONDS)
            return found

        vars(plugin)["karpenter_poll_interruptions"] = long_poll
        return {"aws": plugin}


class _AlibabaCloud(_SimulatedCloud):
    cpu_label = "karpenter.k8s.alibabacloud/instance-cpu"

    @property
    def model(self) -> type[NodeClass]:
        from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass

        return ECSNodeClass

    @property
    def arguments(self) -> Sequence[str]:
        cloud = self.cloud
        endpoints = [f"--alibaba-endpoint-{name}={cloud.endpoint}" for name in ("ecs", "vpc", "cs")]
        return (
            f"--cluster-id={cloud.world.cluster}",
            f"--region-id={cloud.account.region}",
            "--alibaba-endpoint-protocol=http",
            "--currency=CNY",
            *endpoints,
        )

    def fields(self, discovery: object) -> Mapping[str, object]:
        return {
            "vSwitchSelectorTerms": discovery,
            "imageSelectorTerms": [{"alias": "ContainerOS"}],
        }

    def plugins(self) -> Mapping[str, object]:
        from karpenter_provider_alibabacloud.plugin import AlibabaCloudProvider
        from karpenter_provider_alibabacloud.sdk import ClientLimits

        # Waits for the rate of price calls would take real time.
        limits = ClientLimits(connect_seconds=1, read_seconds=30, price_calls_per_second=100_000)
        return {"alibabacloud": AlibabaCloudProvider(limits=limits)}


class _Azure(_SimulatedCloud):
    facts = ClusterFacts(version="v1.34.1", dns_ip="10.0.0.10")
    cpu_label = "karpenter.azure.com/sku-cpu"
    node_class_spec: Mapping[str, object] = {}

    @property
    def model(self) -> type[NodeClass]:
        from karpenter_provider_azure.api.nodeclass import AKSNodeClass

        return AKSNodeClass

    @property
    def arguments(self) -> Sequence[str]:
        from karpenter_simulated_azure.testing import settings_for

        settings = {"cluster-name": self.cloud.world.cluster_name, **settings_for(self.cloud)}
        return [f"--{flag}={value}" for flag, value in settings.items()]

    def plugins(self) -> Mapping[str, object]:
        from karpenter_provider_azure.plugin import AzureProvider

        return {"azure": AzureProvider()}


class _Kwok:
    facts = ClusterFacts()
    cpu_label = "karpenter.kwok.sh/instance-cpu"
    arguments: Sequence[str] = ()
    node_class_spec: Mapping[str, object] = {}

    @property
    def model(self) -> type[NodeClass]:
        from karpenter_provider_kwok.api import KWOKNodeClass

        return KWOKNodeClass

    def plugins(self) -> Mapping[str, object]:
        from karpenter_provider_kwok.plugin import KwokProvider

        return {"kwok": KwokProvider()}

    def calls(self) -> None:
        return None

    def nodes(self) -> Mapping[str, Mapping[str, Any]]:
        """Return none: the provider registers Nodes itself."""
        return {}


@contextmanager
def open_aws(clock: Callable[[], datetime], types: Sequence[str]) -> Iterator[MeasuredCloud]:
    """Start a simulated AWS of all instance types, or of those named."""
    from karpenter_simulated_aws.cloud import SimulatedAws
    from karpenter_simulated_aws.testing import simulated_environment

    cloud = SimulatedAws(instance_types=frozenset(types) or None, clock=clock)
    with cloud, simulated_environment(cloud):
        cloud.behaviour.announce_states = True
        yield _Aws(cloud)


@contextmanager
def open_alibabacloud(
    clock: Callable[[], datetime], types: Sequence[str]
) -> Iterator[MeasuredCloud]:
    """Start a simulated Alibaba Cloud of all instance types, or of those named."""
    from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud
    from karpenter_simulated_alibabacloud.testing import simulated_environment
    from karpenter_simulated_alibabacloud.types import realistic_types
    from karpenter_simulated_alibabacloud.world import WorldPlan

    sold = [each for each in realistic_types() if not types or each.name in types]
    # The usual prefix leaves too few addresses for the pods of a thousand nodes.
    plan = WorldPlan(vswitch_prefix=16)
    cloud = SimulatedAlibabaCloud(instance_types=sold, plan=plan, clock=clock)
    with cloud, simulated_environment(cloud):
        yield _AlibabaCloud(cloud)


@contextmanager
def open_azure(clock: Callable[[], datetime], types: Sequence[str]) -> Iterator[MeasuredCloud]:
    """Start a simulated Azure of all VM sizes, or of those named."""
    from karpenter_simulated_azure.cloud import SimulatedAzure
    from karpenter_simulated_azure.size_table import SIZE_TABLE
    from karpenter_simulated_azure.sizes import sku_of
    from karpenter_simulated_azure.testing import simulated_environment
    from karpenter_simulated_azure.world import AzureWorld

    world = AzureWorld()
    skus = [sku_of(each, world) for each in SIZE_TABLE if not types or each.name in types]
    cloud = SimulatedAzure(world=world, skus=skus, clock=clock)
    with cloud, simulated_environment(cloud):
        yield _Azure(cloud)


@contextmanager
def open_kwok(_clock: Callable[[], datetime], _types: Sequence[str]) -> Iterator[MeasuredCloud]:
    """Use kwok, with its whole catalogue."""
    yield _Kwok()


CLOUDS: Final[
    Mapping[
        str,
        Callable[
            [Callable[[], datetime], Sequence[str]],
            AbstractContextManager[MeasuredCloud],
        ],
    ]
] = {"kwok": open_kwok, "aws": open_aws, "alibabacloud": open_alibabacloud, "azure": open_azure}
"""Start the cloud of a provider on a clock, with instance types by name (all if none is given)."""
