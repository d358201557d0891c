"""A launch template that works, and fleets made of it, as a provider would ask for them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from karpenter_provider_aws.sdk import CloudClients
from karpenter_simulated_aws.cloud import SimulatedAws

TEMPLATE = "karpenter.k8s.aws/nodes"
OWNED = {"Key": "kubernetes.io/cluster/test", "Value": "owned"}


@dataclass
class Fleet:
    """Result of a fleet, in short."""

    answer: dict

    @property
    def ids(self):
        return [i for each in self.answer["Instances"] for i in each["InstanceIds"]]

    @property
    def places(self):
        """Types and zones in the order of the answer."""
        return [
            (
                each["InstanceType"],
                each["LaunchTemplateAndOverrides"]["Overrides"]["AvailabilityZone"],
            )
            for each in self.answer["Instances"]
        ]

    @property
    def errors(self):
        """Types, zones and codes of what failed."""
        return [
            (
                each["LaunchTemplateAndOverrides"]["Overrides"]["InstanceType"],
                each["LaunchTemplateAndOverrides"]["Overrides"]["AvailabilityZone"],
                each["ErrorCode"],
            )
            for each in self.answer["Errors"]
        ]


@dataclass
class Launch:
    """Makes templates and fleets."""

    aws: SimulatedAws
    clients: CloudClients

    def image(self, *, variant="standard", architecture="x86_64"):
        name = f"/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/{architecture}/{variant}"
        found = self.clients.ssm.get_parameter(Name=f"{name}/recommended/image_id")
        return found["Parameter"]["Value"]

    def profile(self, name="nodes"):
        self.clients.iam.create_instance_profile(
            InstanceProfileName=name, Path="/karpenter/us-east-1/test/"
        )
        self.clients.iam.add_role_to_instance_profile(
            InstanceProfileName=name, RoleName=self.aws.world.role
        )
        return name

    def template(self, name=TEMPLATE, **data):
        self.clients.ec2.create_launch_template(
            LaunchTemplateName=name,
            LaunchTemplateData={"ImageId": self.image(), **data},
            TagSpecifications=[{"ResourceType": "launch-template", "Tags": [OWNED]}],
        )
        return name

    def fleet(
        self,
        *types,
        count=1,
        target="on-demand",
        zones=None,
        template=TEMPLATE,
        tags=(),
        overrides=None,
        **more,
    ):
        if template == TEMPLATE and TEMPLATE not in {each.name for each in self.aws.templates.all}:
            self.template()
        wanted = overrides or [
            {"InstanceType": kind, "SubnetId": subnet, "AvailabilityZone": zone}
            for kind in types
            for zone, subnet in sorted(self.aws.world.subnets.items())
            if zones is None or zone in zones
        ]
        answer = self.clients.ec2.create_fleet(
            Type="instant",
            LaunchTemplateConfigs=[
                {
                    "LaunchTemplateSpecification": {
                        "LaunchTemplateName": template,
                        "Version": "$Latest",
                    },
                    "Overrides": wanted,
                }
            ],
            TargetCapacitySpecification={
                "TotalTargetCapacity": count,
                "DefaultTargetCapacityType": target,
            },
            TagSpecifications=[{"ResourceType": "instance", "Tags": [OWNED, *tags]}],
            **more,
        )
        return Fleet(answer)

    def described(self, *ids):
        answer = self.clients.ec2.describe_instances(InstanceIds=list(ids))
        return [each for one in answer["Reservations"] for each in one["Instances"]]


@pytest.fixture
def launch(aws, clients):
    return Launch(aws, clients)


@pytest.fixture
def code():
    """The code with which a call is refused."""
    from botocore.exceptions import ClientError

    def refused(call, **arguments):
        with pytest.raises(ClientError) as caught:
            call(**arguments)
        return caught.value.response["Error"]["Code"]

    return refused
