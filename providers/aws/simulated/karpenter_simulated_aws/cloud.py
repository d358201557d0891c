"""`SimulatedAws`: AWS on 127.0.0.1, for boto3.

    with SimulatedAws() as aws:
        os.environ.update(aws.environment)
        aws.capacity.sell_out(capacity_type="spot", zone="us-east-1a")
        with aws.fail("CreateFleet", code="InternalError", status=500):
            ...
        assert aws.calls.count("CreateFleet") == 2

Everything is in the process that made it, and is looked at and changed there; a provider may run in
the same process or in any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.cloud import SimulatedCloud
from karpenter_core.provider.kit.simulated.cloud_time import CloudTime, utc_now
from karpenter_core.provider.kit.simulated.server import HttpServer
from karpenter_simulated_aws.account import Account
from karpenter_simulated_aws.behaviour import CloudBehaviour
from karpenter_simulated_aws.instances import STATES, SimulatedInstance, SimulatedInstanceState
from karpenter_simulated_aws.moto_state import fresh_backends
from karpenter_simulated_aws.owner import OwnerClients
from karpenter_simulated_aws.parts import CloudParts
from karpenter_simulated_aws.server import Application
from karpenter_simulated_aws.world import (
    World,
    WorldPlan,
    build_network,
    build_queue,
    build_role,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.provider.kit.simulated.instances import InstancePhase
    from karpenter_simulated_aws.selection import Tag

__all__ = ["ClusterResources", "SimulatedAws"]

_IN_MOTO: Final = ("ec2", "iam", "sqs")
_LONGEST_DELAY: Final = 900  # seconds; of SQS


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterResources:
    """The resources of a cluster in the cloud, by the cloud's own word."""

    instances: Sequence[str]
    """Ids of those that are not terminated."""
    launch_templates: Sequence[str]
    """Names."""
    instance_profiles: Sequence[str]
    """Names."""
    fleets: Sequence[str]
    """Ids of those that have instances which are not terminated."""

    @property
    def all(self) -> Collection[str]:
        """Everything."""
        return (
            *self.instances,
            *self.launch_templates,
            *self.instance_profiles,
            *self.fleets,
        )


@final
class SimulatedAws(SimulatedCloud[SimulatedInstance]):
    """One simulated cloud, of one account in one region."""

    termination_reason = "Client.UserInitiatedShutdown"
    interruption_reason = "Server.SpotInstanceTermination"

    def __init__(
        self,
        *,
        region: str = "us-east-1",
        plan: WorldPlan | None = None,
        instance_types: Collection[str] | None = None,
        prices: Mapping[str, float] | None = None,
        clock: Callable[[], datetime] = utc_now,
        port: int = 0,
    ) -> None:
        """Make it, of all instance types or of those named, with made-up prices or those given."""
        self._plan: Final = plan or WorldPlan()
        time = CloudTime(clock)
        self.account: Final = Account(region=region, clock=time)
        self.behaviour: Final = CloudBehaviour()
        self._application: Final = Application(self.account)
        endpoint = self._application.endpoint
        self._server: Final = HttpServer(endpoint, name="simulated-aws", port=port)
        parts = CloudParts(
            self.account,
            self.behaviour,
            instance_types=instance_types,
            prices=prices,
            send=self._send,
        )
        super().__init__(time, endpoint, parts.shared)
        self._parts: Final = parts
        self.capacity: Final = parts.capacity
        self.catalogue: Final = parts.catalogue
        self.clusters: Final = parts.clusters
        self.fleets: Final = parts.fleets
        self.images: Final = parts.images
        self.instances: Final = parts.instances
        self.kubelets: Final = parts.kubelets
        self.messages: Final = parts.messages
        self.parameters: Final = parts.parameters
        self.placement_groups: Final = parts.placement_groups
        self.prices: Final = parts.prices
        self.profiles: Final = parts.profiles
        self.releases: Final = parts.releases
        self.reservations: Final = parts.reservations
        self.templates: Final = parts.templates
        self.zonal_shifts: Final = parts.zonal_shifts
        self._application.handlers = parts.handlers
        self._application.unchanging = parts.unchanging
        self._application.checks_dry_runs = parts.checks_dry_runs
        parts.on_change(self._application.forget)
        parts.instances.phase_changed = self._announce
        self._owner_clients: Final = OwnerClients(region)
        self._world: World | None = None

    def start(self) -> None:
        """Serve, and build the world."""
        self._server.start()
        self._owner_clients.endpoint_url = self.endpoint_url
        self.reset()

    def stop(self) -> None:
        """End serving."""
        self.faults.clear()
        self._owner_clients.close()
        self._server.stop()

    def reset(self) -> None:
        """Make the cloud as it was in the beginning: the ready world and nothing else."""
        self.reset_controls()
        with self._application.state:
            self._parts.clear()
            self._parts.build(self._plan)
        self._world = self._rebuilt_world()
        self._application.changed.clear()
        self.calls.clear()

    def _rebuilt_world(self) -> World:
        """Build what moto keeps; what nobody has changed since the last time stays."""
        before = self._world
        changed = set(self._application.changed)
        if before is None or not self._parts.networks.subnets().keys() >= set(
            before.subnets.values()
        ):
            changed = set(_IN_MOTO)  # also when somebody in this process made moto forget
        fresh_backends(self.account, changed)
        clients, plan = self._owner_clients, self._plan
        return World(
            cluster=plan.cluster,
            network=build_network(plan, region=self.account.region, ec2=clients.ec2)
            if before is None or "ec2" in changed
            else before.network,
            role=build_role(plan, iam=clients.iam)
            if before is None or "iam" in changed
            else before.role,
            queue_url=build_queue(plan, sqs=clients.sqs)
            if before is None or "sqs" in changed
            else before.queue_url,
        )

    @property
    def endpoint_url(self) -> str:
        """Address at which it is served."""
        return self._server.endpoint_url

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that lead boto3 here."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_REGION": self.account.region,
            "AWS_DEFAULT_REGION": self.account.region,
            "AWS_ACCESS_KEY_ID": "AKIASIMULATEDKARPENT",
            "AWS_SECRET_ACCESS_KEY": "simulated",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def world(self) -> World:
        """The world that was built at the start."""
        if self._world is None:
            raise RuntimeError("the simulated AWS is not started")
        return self._world

    def provider_id(self, instance: SimulatedInstance) -> str:
        """Return the provider ID of an instance."""
        return instance.provider_id

    def announce_interruption(
        self, instance: SimulatedInstance, _at: datetime, _ends_at: datetime, /
    ) -> None:
        """Warn by the queue."""
        self.messages.spot_interruption(instance)

    def protect(self, named: str, *, protected: bool = True) -> None:
        """Set or clear termination protection (the attribute `disableApiTermination`)."""
        self.instance(named).is_protected = protected

    def forbid_termination(self, named: str, *, forbidden: bool = True) -> None:
        """Permit the termination of an instance no longer, as a change of its tags may."""
        self.instance(named).is_forbidden = forbidden

    def tag(self, resource: str, tags: Mapping[str, str]) -> None:
        """Add or change tags by somebody else's hand; `resource` may be a provider ID."""
        pairs: list[Tag] = [{"Key": key, "Value": value} for key, value in tags.items()]
        with self._application.state:
            self._parts.tags.create({"Resources": [resource.rpartition("/")[2]], "Tags": pairs})

    def untag(self, resource: str, *keys: str) -> None:
        """Remove tags by somebody else's hand."""
        pairs: list[Tag] = [{"Key": key} for key in keys]
        with self._application.state:
            self._parts.tags.delete({"Resources": [resource.rpartition("/")[2]], "Tags": pairs})

    def impair(self, named: str, check: str = "instance", *, since: datetime | None = None) -> None:
        """Let a status check fail: `instance`, `system` or `ebs`."""
        self.instance(named).impaired[check] = since or self.account.clock()

    def recover(self, named: str) -> None:
        """Let all status checks pass, and call off scheduled events."""
        instance = self.instance(named)
        instance.impaired.clear()
        instance.events.clear()

    def stop_instance(self, named: str) -> None:
        """Stop an instance by somebody else's hand, without a message."""
        self.instance(named).stopped = SimulatedInstanceState.STOPPED

    def schedule_event(self, named: str, code: str, *, not_before: datetime | None = None) -> None:
        """Schedule an event (`instance-retirement`) for an instance."""
        instance = self.instance(named)
        instance.events.append(
            {
                "InstanceEventId": self.account.ids.new("instance-event"),
                "Code": code,
                "Description": f"simulated {code}",
                "NotBefore": not_before or self.account.clock() + timedelta(days=1),
            }
        )

    def launch_foreign(self, *, cluster: str = "other") -> str:
        """Launch an instance of another cluster in this account; returns its provider ID."""
        image = next(each.id for each in self.images.all if each.architecture == "x86_64")
        answer = self._owner_clients.ec2.run_instances(
            ImageId=image,
            InstanceType="m5.large",
            SubnetId=next(iter(self.world.subnets.values())),
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[
                {
                    "ResourceType": "instance",
                    "Tags": [
                        {"Key": f"kubernetes.io/cluster/{cluster}", "Value": "owned"},
                        {"Key": "eks:eks-cluster-name", "Value": cluster},
                        {"Key": "karpenter.sh/nodepool", "Value": "default"},
                        {"Key": "karpenter.k8s.aws/ec2nodeclass", "Value": "default"},
                    ],
                }
            ],
        )
        return self.instance(answer["Instances"][0].get("InstanceId", "")).provider_id

    def held(self, cluster: str = "") -> ClusterResources:
        """Return what of a cluster's there is, of the ready world's by default."""
        cluster = cluster or self.world.cluster
        mark = f"kubernetes.io/cluster/{cluster}"
        with self._application.state:
            living = [each for each in self.instances.living if mark in each.tags]
            return ClusterResources(
                instances=sorted(each.id for each in living),
                launch_templates=sorted(
                    each.name for each in self.templates.all if mark in each.tags
                ),
                instance_profiles=sorted(
                    each.name
                    for each in self.profiles.all().values()
                    if any(tag.get("Key") == mark for tag in each.tags)
                ),
                fleets=sorted({each.fleet_id for each in living if each.fleet_id}),
            )

    def _announce(self, instance: SimulatedInstance, phase: InstancePhase, seconds: float) -> None:
        if self.behaviour.announce_states:
            self.messages.state_change(instance, STATES[phase], delay_seconds=seconds)

    def _send(self, text: str, delay_seconds: int) -> None:
        self._owner_clients.sqs.send_message(
            QueueUrl=self.world.queue_url,
            MessageBody=text,
            DelaySeconds=min(max(delay_seconds, 0), _LONGEST_DELAY),
        )
