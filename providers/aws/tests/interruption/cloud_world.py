"""A cluster's instances in the simulated AWS, and a clock that is the cloud's."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, REGISTERED, ZONE
from karpenter_core.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClassRef
from karpenter_core.api.records import NodeView
from karpenter_core.provider.kit.unavailable_offerings import (
    UnavailableOffering,
    UnavailableOfferings,
)
from karpenter_provider_aws.described_instances import InstanceReader
from karpenter_provider_aws.discovery.reservations import ReservationReader
from karpenter_provider_aws.interruption.sources import InterruptionSources
from karpenter_provider_aws.labels import GROUP
from karpenter_provider_aws.settings import AwsSettings

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.provider.contract import Interruption
    from karpenter_provider_aws.sdk import CloudClients
    from karpenter_simulated_aws.cloud import SimulatedAws

ZONE_A = "us-east-1a"


@dataclass
class CloudClock:
    """The time in the cloud."""

    aws: SimulatedAws

    def now(self) -> datetime:
        return self.aws.account.clock()

    def monotonic(self) -> float:
        return self.now().timestamp()

    async def sleep(self, seconds: float) -> None:
        self.forward(seconds)

    def forward(self, seconds: float) -> None:
        self.aws.time.advance(seconds)


@dataclass
class World:
    """The simulated cloud and the parts under test."""

    aws: SimulatedAws
    clients: CloudClients
    queue_name: str | None = None
    nodes: dict[str, NodeView] = field(default_factory=dict[str, NodeView])
    claims: dict[str, NodeClaim] = field(default_factory=dict[str, NodeClaim])
    unhealthy: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.clock = CloudClock(self.aws)
        self.offerings = UnavailableOfferings()
        self.reservations = ReservationReader(self.clients, self.clock)
        self.instance_reader = InstanceReader(self.clients, cluster=self.aws.world.cluster)
        self.interruption_sources = self.restarted()

    def restarted(self) -> InterruptionSources:
        """Return what a new process starts with."""
        name = self.aws.world.queue if self.queue_name is None else self.queue_name
        return InterruptionSources(
            self.clients,
            self.clock,
            settings=AwsSettings(cluster_name=self.aws.world.cluster, interruption_queue=name),
            reader=self.instance_reader,
            read_nodes=lambda: MappingProxyType(self.nodes),
            read_claims=lambda: MappingProxyType(self.claims),
            reservations=self.reservations,
            offerings=self.offerings,
            count_unhealthy=self.unhealthy.append,
        )

    def launch(
        self, *, spot: bool = False, reservation: str = "", market: str = "", count: int = 1
    ) -> list[str]:
        """Launch instances of the cluster; return their provider IDs."""
        tags = {
            "kubernetes.io/cluster/test": "owned",
            "eks:eks-cluster-name": self.aws.world.cluster,
            "karpenter.sh/nodepool": "default",
            "karpenter.k8s.aws/ec2nodeclass": "default",
        }
        request: dict[str, object] = {}
        if spot or market:
            request["InstanceMarketOptions"] = {"MarketType": "spot" if spot else market}
        if reservation:
            request["CapacityReservationSpecification"] = {
                "CapacityReservationTarget": {"CapacityReservationId": reservation},
                **(
                    {}
                    if market
                    else {"CapacityReservationPreference": "capacity-reservations-only"}
                ),
            }
        answer = self.clients.ec2.run_instances(
            ImageId=min(each.id for each in self.aws.images.all if each.architecture == "x86_64"),
            InstanceType="m5.large",
            SubnetId=self.aws.world.subnets[ZONE_A],
            MinCount=count,
            MaxCount=count,
            TagSpecifications=[
                {
                    "ResourceType": "instance",
                    "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
                }
            ],
            **request,
        )
        ids = [item["InstanceId"] for item in answer["Instances"]]
        ref = NodeClassRef(group=GROUP, kind="EC2NodeClass", name="default")
        claim = NodeClaim(spec=NodeClaimSpec(node_class_ref=ref))
        self.claims |= dict.fromkeys(ids, claim)
        return [f"aws:///{ZONE_A}/{name}" for name in ids]

    def join(self, provider_id: str, **labels: str) -> NodeView:
        """Have an instance's Node registered."""
        name = provider_id.rpartition("/")[2]
        known = {
            NODE_POOL: "default",
            INSTANCE_TYPE: "m5.large",
            ZONE: ZONE_A,
            CAPACITY_TYPE: "on-demand",
            REGISTERED: "true",
        }
        self.nodes[name] = NodeView(
            uid=name, name=name, provider_id=provider_id, labels={**known, **labels}
        )
        return self.nodes[name]

    def poll(self) -> tuple[Interruption, ...]:
        """Ask what is announced, without waiting for it."""
        queue = self.interruption_sources.queue
        said = () if queue is None else queue.poll(wait=False)
        self.interruption_sources.status.run()
        self.interruption_sources.blocks.run()
        return (*self.interruption_sources.standing(), *said)

    def acknowledge(self, *said: Interruption) -> None:
        """Acknowledge announcements."""
        self.interruption_sources.acknowledge([each.id for each in said])

    def is_marked(self, capacity_type: str) -> bool:
        """Whether instances of a capacity type are marked as sold out."""
        mark = UnavailableOffering("m5.large", ZONE_A, capacity_type)
        return mark in self.offerings.view(now=self.clock.now()).offerings

    def make_visible(self) -> None:
        """Let the queue bring again what was received and not deleted, as it does after a while."""
        from moto.backends import get_backend

        account = self.aws.account
        queues = get_backend("sqs")[account.id][account.region].queues
        for message in queues[self.aws.world.queue]._messages:
            message.change_visibility(0)
        for queue in queues.values():
            queue.pending_messages.clear()

    def left_in_queue(self) -> int:
        """Return how many messages the queue has, those being handled included."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self.clients.sqs.get_queue_attributes(
            QueueUrl=self.aws.world.queue_url, AttributeNames=names
        )
        return sum(int(answer["Attributes"][name]) for name in names)


def in_minutes(clock: CloudClock, minutes: float) -> datetime:
    return clock.now() + timedelta(minutes=minutes)
