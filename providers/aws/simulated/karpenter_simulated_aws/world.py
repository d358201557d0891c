"""Builds a world that is ready for a cluster."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from types_boto3_ec2.client import EC2Client
    from types_boto3_iam.client import IAMClient
    from types_boto3_sqs.client import SQSClient

__all__ = [
    "DISCOVERY_TAG",
    "Network",
    "World",
    "WorldPlan",
    "build_network",
    "build_queue",
    "build_role",
]

DISCOVERY_TAG: Final = "karpenter.sh/discovery"
"""The tag by which subnets and security groups are found; its value is the cluster's name."""

_TRUST: Final = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "ec2.amazonaws.com"},
                "Action": "sts:AssumeRole",
            }
        ],
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldPlan:
    """The plan of the ready world."""

    cluster: str = "test"
    kubernetes: str = "1.34"
    zones: tuple[str, ...] = ("a", "b", "c")
    """Letters of the zones that have a subnet."""
    subnet_prefix: int = 20
    """Length of the subnets' CIDR prefix: 20 leaves 4,091 addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A VPC with what nodes need in it."""

    vpc_id: str
    subnets: Mapping[str, str]
    """Ids by zone."""
    security_group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The resources of the ready world."""

    cluster: str
    network: Network
    role: str
    """The name of the nodes' role."""
    queue_url: str

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self.queue_url.rpartition("/")[2]

    @property
    def vpc_id(self) -> str:
        """The VPC."""
        return self.network.vpc_id

    @property
    def subnets(self) -> Mapping[str, str]:
        """Ids of the subnets, by zone."""
        return self.network.subnets

    @property
    def security_group_id(self) -> str:
        """The security group of the nodes."""
        return self.network.security_group_id

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones that have a subnet."""
        return tuple(sorted(self.subnets))

    @property
    def discovery(self) -> Mapping[str, str]:
        """The tags by which subnets and security groups are found."""
        return {DISCOVERY_TAG: self.cluster}


def build_network(plan: WorldPlan, *, region: str, ec2: EC2Client) -> Network:
    """Make the VPC, a subnet in each zone and the security group."""
    vpc_id = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"].get("VpcId", "")
    subnets: dict[str, str] = {}
    size = max(2 ** (32 - plan.subnet_prefix), 16)
    for number, letter in enumerate(plan.zones):
        zone = f"{region}{letter}"
        first = number * size
        subnet = ec2.create_subnet(
            VpcId=vpc_id,
            CidrBlock=f"10.0.{first // 256}.{first % 256}/{plan.subnet_prefix}",
            AvailabilityZone=zone,
            TagSpecifications=[
                {
                    "ResourceType": "subnet",
                    "Tags": [
                        {"Key": "Name", "Value": f"{plan.cluster}-{zone}"},
                        {"Key": DISCOVERY_TAG, "Value": plan.cluster},
                    ],
                }
            ],
        )
        subnets[zone] = subnet["Subnet"].get("SubnetId", "")
    group = ec2.create_security_group(
        GroupName=f"{plan.cluster}-node",
        Description="nodes",
        VpcId=vpc_id,
        TagSpecifications=[
            {
                "ResourceType": "security-group",
                "Tags": [{"Key": DISCOVERY_TAG, "Value": plan.cluster}],
            }
        ],
    )
    return Network(vpc_id=vpc_id, subnets=subnets, security_group_id=group["GroupId"])


def build_role(plan: WorldPlan, *, iam: IAMClient) -> str:
    """Make the role of the nodes; returns its name."""
    role = f"KarpenterNodeRole-{plan.cluster}"
    iam.create_role(RoleName=role, AssumeRolePolicyDocument=_TRUST)
    return role


def build_queue(plan: WorldPlan, *, sqs: SQSClient) -> str:
    """Make the queue of interruptions; returns its URL."""
    return sqs.create_queue(QueueName=plan.cluster, Attributes={"MessageRetentionPeriod": "300"})[
        "QueueUrl"
    ]
