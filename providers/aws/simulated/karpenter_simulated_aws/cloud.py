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
from typing import TYPE_CHECKING, Final, Self, final

from karpenter_core.provider.kit.simulated.cloud_time import CloudTime, utc_now
from karpenter_core.provider.kit.simulated.faults import CloudFault, CloudFaultKind
from karpenter_simulated_aws.account import Account
from karpenter_simulated_aws.behaviour import CloudBehaviour
from karpenter_simulated_aws.capacity import InstancePool
from karpenter_simulated_aws.fleets import PoolFault
from karpenter_simulated_aws.moto_state import fresh_backends
from karpenter_simulated_aws.owner import OwnerClients
from karpenter_simulated_aws.parts import CloudParts
from karpenter_simulated_aws.protocol import AwsError
from karpenter_simulated_aws.server import Application, Server
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

    from karpenter_simulated_aws.instances import SimulatedInstance, SimulatedInstanceState
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
class SimulatedAws:
    """One simulated cloud, of one account in one region."""

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
        self.time: Final = CloudTime(clock)
        self.account: Final = Account(region=region, clock=self.time)
        self.behaviour: Final = CloudBehaviour()
        self._application: Final = Application(self.account)
        self._server: Final = Server(self._application, port=port)
        self.faults: Final = self._application.faults
        self.throttling: Final = self._application.throttling
        self.calls: Final = self._application.calls
        parts = CloudParts(
            self.account,
            self.behaviour,
            instance_types=instance_types,
            prices=prices,
            send=self._send,
        )
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
        parts.instances.state_changed = self._announce
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

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def reset(self) -> None:
        """Make the cloud as it was in the beginning: the ready world and nothing else."""
        self.faults.clear()
        self.throttling.set({})
        self.behaviour.reset()
        self.time.reset()
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
        """Where it is served."""
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

    # What goes wrong.

    def fail(
        self,
        action: str,
        *,
        code: str,
        message: str = "simulated",
        status: int = 400,
        times: int | None = 1,
        where: Callable[[Mapping[str, object]], bool] | None = None,
    ) -> CloudFault:
        """Refuse calls of an action (`CreateFleet`, `ec2:Describe*`); nothing of them is done."""
        error = AwsError(code, message, status=status)
        return self._fault(CloudFaultKind.REFUSED, action, error=error, times=times, where=where)

    def deny(self, action: str, *, times: int | None = None) -> CloudFault:
        """Refuse calls as no policy permits them."""
        return self._fault(CloudFaultKind.REFUSED, action, times=times)

    def lose_replies(self, action: str, *, times: int | None = 1) -> CloudFault:
        """Carry calls out, and cut the connection before the answer."""
        return self._fault(CloudFaultKind.LOST_REPLY, action, times=times)

    def fall_silent(self, action: str = "*", *, times: int | None = None) -> CloudFault:
        """Take calls, do nothing and never answer."""
        return self._fault(CloudFaultKind.SILENT, action, times=times)

    def cut_off(self, action: str = "*", *, times: int | None = None) -> CloudFault:
        """Be unreachable: connections are cut, nothing is done."""
        return self._fault(CloudFaultKind.UNREACHABLE, action, times=times)

    def fail_overrides(
        self,
        *,
        code: str,
        message: str = "simulated",
        capacity_type: str = "*",
        instance_type: str = "*",
        zone: str = "*",
        times: int | None = None,
    ) -> PoolFault:
        """Put an error into the `Errors` of fleets, for the overrides that match."""
        pool = InstancePool(capacity_type=capacity_type, instance_type=instance_type, zone=zone)
        return self.fleets.fault(PoolFault(pool=pool, error=AwsError(code, message), times=times))

    def _fault(
        self,
        kind: CloudFaultKind,
        action: str,
        *,
        error: AwsError | None = None,
        times: int | None,
        where: Callable[[Mapping[str, object]], bool] | None = None,
    ) -> CloudFault:
        return self.faults.add(
            CloudFault(kind=kind, action=action, error=error, times=times, where=where)
        )

    # What happens to instances.

    def instance(self, named: str) -> SimulatedInstance:
        """Return an instance by its id or provider id."""
        found = self.instances.get(named.rpartition("/")[2])
        if found is None:
            raise LookupError(f"there is no instance {named}")
        return found

    def reclaim_spot(self, named: str, *, notice_seconds: float | None = None) -> None:
        """Warn that a spot instance is taken away, and take it when the notice has passed."""
        instance = self.instance(named)
        notice = self.behaviour.spot_notice_seconds if notice_seconds is None else notice_seconds
        self.messages.spot_interruption(instance)
        self.instances.end(
            instance,
            reason="Server.SpotInstanceTermination",
            at=self.account.clock() + timedelta(seconds=notice),
        )

    def terminate(self, named: str) -> None:
        """Terminate an instance by somebody else's hand."""
        self.instances.end(self.instance(named), reason="Client.UserInitiatedShutdown")

    def protect(self, named: str, *, protected: bool = True) -> None:
        """Set or clear termination protection (the attribute `disableApiTermination`)."""
        self.instance(named).is_protected = protected

    def forbid_termination(self, named: str, *, forbidden: bool = True) -> None:
        """Permit the termination of an instance no longer, as a change of its tags may."""
        self.instance(named).is_forbidden = forbidden

    def tag(self, resource: str, tags: Mapping[str, str]) -> None:
        """Add or change tags by somebody else's hand; `resource` may be a provider id."""
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
        """Launch an instance of another cluster in this account; returns its provider id."""
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

    def living(self) -> Sequence[SimulatedInstance]:
        """Return every instance that is not terminated."""
        with self._application.state:
            return list(self.instances.living)

    def node(self, named: str) -> Mapping[str, object] | None:
        """Return the Node that the kubelet of an instance registers; None when it does not join.

        `kubelets.boot_failure` tells why not.
        """
        with self._application.state:
            return self.kubelets.node(self.instance(named))

    def nodes(self) -> Mapping[str, Mapping[str, object]]:
        """Return every Node that is registered by now, by provider id."""
        with self._application.state:
            found = {each.provider_id: self.kubelets.node(each) for each in self.instances.living}
        return {provider_id: node for provider_id, node in found.items() if node is not None}

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

    def _announce(
        self, instance: SimulatedInstance, state: SimulatedInstanceState, seconds: float
    ) -> None:
        if self.behaviour.announce_states:
            self.messages.state_change(instance, state, delay_seconds=seconds)

    def _send(self, text: str, delay_seconds: int) -> None:
        self._owner_clients.sqs.send_message(
            QueueUrl=self.world.queue_url,
            MessageBody=text,
            DelaySeconds=min(max(delay_seconds, 0), _LONGEST_DELAY),
        )
