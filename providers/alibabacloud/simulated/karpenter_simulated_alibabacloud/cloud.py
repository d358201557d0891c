"""`SimulatedAlibabaCloud`: Alibaba Cloud on 127.0.0.1, for its SDKs.

    with SimulatedAlibabaCloud() as cloud:
        os.environ.update(cloud.environment)
        cloud.capacity.sell_out(capacity_type="spot", zone="cn-hangzhou-b")
        with cloud.fail("RunInstances", code="InternalError", status=500):
            ...
        assert cloud.calls.count("RunInstances") == 2

Everything is in the process that made it, and is looked at and changed there; a provider may run in
the same process or in any other.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from datetime import timedelta
from time import sleep
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.provider.kit.simulated.cloud import SimulatedCloud
from karpenter_core.provider.kit.simulated.cloud_time import CloudTime, utc_now
from karpenter_core.provider.kit.simulated.server import HttpServer
from karpenter_simulated_alibabacloud.account import Account, region_ids
from karpenter_simulated_alibabacloud.application import Application
from karpenter_simulated_alibabacloud.behaviour import CloudBehaviour
from karpenter_simulated_alibabacloud.events import EventCycle
from karpenter_simulated_alibabacloud.images import X86_64
from karpenter_simulated_alibabacloud.instances import SimulatedInstance
from karpenter_simulated_alibabacloud.parameters import RequestParameters
from karpenter_simulated_alibabacloud.parts import CloudParts
from karpenter_simulated_alibabacloud.remote_control import PREFIX, RemoteControl
from karpenter_simulated_alibabacloud.signatures import ACCESS_KEY_ID, ACCESS_KEY_SECRET
from karpenter_simulated_alibabacloud.world import World, WorldPlan, build_world

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.provider.kit.simulated.faults import CloudFault
    from karpenter_core.provider.kit.simulated.server import HttpReply, HttpRequest
    from karpenter_simulated_alibabacloud.application import Handlers
    from karpenter_simulated_alibabacloud.events import InstanceEvent
    from karpenter_simulated_alibabacloud.types import TypeInfo

__all__ = ["ClusterResources", "SimulatedAlibabaCloud"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterResources:
    """The resources of a cluster in the cloud, by the cloud's own word."""

    instances: Sequence[str]
    """Ids of those that are not gone."""
    groups: Sequence[str]
    """Ids of the provisioning groups that have instances which are not gone."""

    @property
    def all(self) -> Collection[str]:
        """Everything."""
        return (*self.instances, *self.groups)


def _named(parameters: Mapping[str, object], key: str) -> Collection[str]:
    """Return the texts that a call gives under a name, one or a list of them."""
    value = parameters.get(key)
    if isinstance(value, list):
        return [str(each) for each in cast("list[object]", value)]
    return [] if value is None else [str(value)]


@final
class SimulatedAlibabaCloud(SimulatedCloud[SimulatedInstance]):
    """One simulated cloud, of one account in one region."""

    def __init__(
        self,
        *,
        region: str = "cn-hangzhou",
        plan: WorldPlan | None = None,
        instance_types: Iterable[TypeInfo] | None = None,
        clock: Callable[[], datetime] = utc_now,
        port: int = 0,
    ) -> None:
        """Make it, of types like real ones or of those given, with made-up prices."""
        self._plan: Final = plan or WorldPlan()
        time = CloudTime(clock)
        self.account: Final = Account(region=region, clock=time, ids=region_ids(region))
        self.behaviour: Final = CloudBehaviour()
        self._application: Final = Application(self.account)
        self._server: Final = HttpServer(self._answer, port=port, name="simulated-alibabacloud")
        self.signatures: Final = self._application.signatures
        parts = CloudParts(self.account, self.behaviour, plan=self._plan, types=instance_types)
        super().__init__(time, self._application.endpoint, parts.shared)
        self._parts: Final = parts
        self._remote: Final = RemoteControl(self, parts, reset=self.reset)
        self.capacity: Final = parts.capacity
        self.catalogue: Final = parts.catalogue
        self.clusters: Final = parts.clusters
        self.deployment_sets: Final = parts.deployment_sets
        self.events: Final = parts.events
        self.groups: Final = parts.groups
        self.images: Final = parts.images
        self.instances: Final = parts.instances
        self.kubelets: Final = parts.kubelets
        self.metadata: Final = parts.metadata
        self.networks: Final = parts.networks
        self.prices: Final = parts.prices
        self.reservations: Final = parts.reservations
        self._metadata_server: Final = HttpServer(parts.metadata, name="simulated-metadata")
        self._application.handlers = parts.handlers
        self._world: World | None = None

    def start(self) -> None:
        """Build the world, and serve."""
        self.reset()
        self._server.start()
        self._metadata_server.start()

    def stop(self) -> None:
        """End serving."""
        self.faults.clear()
        self._server.stop()
        self._metadata_server.stop()

    def reset(self) -> None:
        """Make the cloud as it was in the beginning: the ready world and nothing else."""
        self.reset_controls()
        self.signatures.clear()
        self._application.retry_after_ms = 0
        with self._application.endpoint.state:
            self._parts.clear()
            self.images.publish_all()
            self._world = build_world(
                self._plan, self.account, networks=self.networks, clusters=self.clusters
            )
        self.calls.clear()

    def _answer(self, request: HttpRequest) -> HttpReply | None:
        if self.behaviour.latency_seconds > 0:
            sleep(self.behaviour.latency_seconds)
        if request.path.startswith(PREFIX):
            return self._remote(request)
        return self._application.endpoint(request)

    @property
    def endpoint(self) -> str:
        """Address at which it is served: host and port."""
        return self._server.endpoint

    @property
    def handlers(self) -> Handlers:
        """The handlers of calls, by service and action."""
        return self._application.handlers

    @property
    def metadata_endpoint(self) -> str:
        """Metadata service of instances; `metadata.instance_id` names the instance that asks."""
        return f"http://{self._metadata_server.endpoint}"

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that lead the provider here."""
        return {
            "ALIBABA_ENDPOINT_ECS": self.endpoint,
            "ALIBABA_ENDPOINT_VPC": self.endpoint,
            "ALIBABA_ENDPOINT_CS": self.endpoint,
            "ALIBABA_ENDPOINT_PROTOCOL": "http",
            "ALIBABA_CLOUD_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "ALIBABA_CLOUD_ACCESS_KEY_SECRET": ACCESS_KEY_SECRET,
            "REGION_ID": self.account.region,
            "CLUSTER_ID": self._plan.cluster,
        }

    @property
    def world(self) -> World:
        """The world that was built at the start."""
        if self._world is None:
            raise RuntimeError("the simulated Alibaba Cloud is not started")
        return self._world

    def provider_id(self, instance: SimulatedInstance) -> str:
        """Return the provider ID of an instance."""
        return self.instances.provider_id(instance)

    def instance_id(self, named: str) -> str:
        """Return the id of an instance that is named by its id or provider ID."""
        return named.rpartition(".")[2]

    def announce_interruption(
        self, instance: SimulatedInstance, at: datetime, _ends_at: datetime, /
    ) -> None:
        """Lock the instance for recycling."""
        if instance.recycles_at is None:
            instance.recycles_at = at

    def tell_retry_after(self, milliseconds: int) -> None:
        """Let refusals for throttling say how long to wait; 0 for nothing."""
        self._application.retry_after_ms = milliseconds

    # Events in the lives of instances.

    def reclaim_protected(self, named: str) -> datetime:
        """Reclaim a spot instance when the hours of its SpotDuration are over; return when."""
        instance = self.instance(named)
        protected_until = instance.launched_at + timedelta(hours=instance.spot_duration)
        return self.reclaim(named, not_before=protected_until)

    def tag(self, named: str, tags: Mapping[str, str | None]) -> None:
        """Set tags of an instance by somebody else's hand; None takes one away."""
        with self._application.endpoint.state:
            own = self.instance(named).tags
            for key, value in tags.items():
                if value is None:
                    own.pop(key, None)
                else:
                    own[key] = value

    def protect(self, named: str, *, protected: bool = True) -> None:
        """Set or lift the deletion protection of an instance."""
        self.instance(named).deletion_protection = protected

    def deny_about(self, action: str, named: str, *, resources: str = "InstanceId") -> CloudFault:
        """Refuse calls about one instance, as a policy does that looks at the instance's own tags.

        `resources` is the parameter in which the action names instances.
        """
        name = self.instance(named).id
        return self.deny(
            action,
            where=lambda parameters: name in _named(parameters, resources),
        )

    def stop_instance(self, named: str) -> None:
        """Stop an instance by somebody else's hand."""
        self.instance(named).stops_at = self.account.clock()

    def schedule_event(
        self,
        named: str,
        kind: str = "SystemMaintenance.Reboot",
        *,
        not_before: datetime | None = None,
        cycle: EventCycle = EventCycle.Scheduled,
    ) -> InstanceEvent:
        """Let there be a system event of an instance, in a day unless it is said when."""
        return self.events.add(
            self.instance(named).id,
            kind,
            not_before=not_before or self.account.clock() + timedelta(days=1),
            cycle=cycle,
        )

    def launch_foreign(self, *, cluster: str = "other") -> str:
        """Launch an instance of another cluster in this account; returns its provider ID."""
        image = next(each.id for each in self.images.all if each.architecture == X86_64)
        tags = {
            f"kubernetes.io/cluster/{cluster}": "owned",
            "ecs:ecs-cluster-id": cluster,
            "karpenter.sh/nodepool": "default",
            "karpenter.k8s.alibabacloud/ecsnodeclass": "default",
        }
        request = RequestParameters(
            {
                "RegionId": self.account.region,
                "InstanceType": "ecs.g7.large",
                "ImageId": image,
                "VSwitchId": next(iter(self.world.vswitches.values())),
                "SecurityGroupId": self.world.security_group_id,
                "UserData": b64encode(b"#!/bin/sh\n").decode(),
                "Tag": [{"Key": key, "Value": value} for key, value in tags.items()],
            }
        )
        with self._application.endpoint.state:
            self._parts.run(request)
            return self.instances.provider_id(self.instances.all[-1])

    def held(self, cluster: str = "") -> ClusterResources:
        """Return what of a cluster's there is, of the ready world's by default."""
        mark = f"kubernetes.io/cluster/{cluster or self.world.cluster}"
        with self._application.endpoint.state:
            living = [each for each in self.instances.living if mark in each.tags]
            return ClusterResources(
                instances=sorted(each.id for each in living),
                groups=sorted({each.group_id for each in living if each.group_id}),
            )
