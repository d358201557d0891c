"""Launches that work, as a provider would ask for them."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass

import pytest

from karpenter_provider_alibabacloud.codes import ApiError
from karpenter_provider_alibabacloud.sdk import CloudClients
from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud

REGION = {"RegionId": "cn-hangzhou"}


@dataclass
class Group:
    """Result of a provisioning group, in short."""

    answer: dict

    @property
    def results(self):
        return self.answer["LaunchResults"]["LaunchResult"]

    @property
    def ids(self):
        return [i for each in self.results for i in each["InstanceIds"]["InstanceId"]]

    @property
    def places(self):
        """Types and zones of the instances, and how many."""
        return {
            (each["InstanceType"], each["ZoneId"][-1]): each["Amount"]
            for each in self.results
            if each["Amount"]
        }

    @property
    def errors(self):
        """Types, zones and codes of what failed."""
        return [
            (each["InstanceType"], each["ZoneId"][-1], each["ErrorCode"])
            for each in self.results
            if "ErrorCode" in each
        ]


@dataclass
class Launch:
    """Makes instances."""

    cloud: SimulatedAlibabaCloud
    clients: CloudClients

    @property
    def owned(self):
        return {"Key": f"kubernetes.io/cluster/{self.cloud.world.cluster}", "Value": "owned"}

    def script(self, arguments="", **more):
        answer = self.clients.ack.call(
            "DescribeClusterAttachScripts", {"ClusterId": self.cloud.world.cluster, **more}
        )
        return f"#!/bin/bash\n\n{answer['body'].strip()} {arguments}\n\n"

    def image(self, architecture="x86_64"):
        return next(each.id for each in self.cloud.images.all if each.architecture == architecture)

    def configuration(self, **more):
        return {
            "ImageId": self.image(),
            "SecurityGroupIds": [self.cloud.world.security_group_id],
            "SystemDiskSize": 40,
            "UserData": b64encode(b"#!/bin/sh\n").decode(),
            "Tag": [self.owned],
            **more,
        }

    def group(self, *types, count=1, spot=False, zones="bgh", configs=None, launch=None, **more):
        wanted = configs or [
            {"InstanceType": kind, "VSwitchId": vswitch, "WeightedCapacity": 1}
            for kind in types
            for zone, vswitch in sorted(self.cloud.world.vswitches.items())
            if zone[-1] in zones
        ]
        answer = self.clients.ecs.call(
            "CreateAutoProvisioningGroup",
            {
                **REGION,
                "AutoProvisioningGroupType": "instant",
                "TotalTargetCapacity": str(count),
                "SpotTargetCapacity": str(count if spot else 0),
                "PayAsYouGoTargetCapacity": str(0 if spot else count),
                "LaunchTemplateConfig": wanted,
                "LaunchConfiguration": self.configuration(**(launch or {})),
                **more,
            },
        )
        return Group(answer)

    def run(self, instance_type="ecs.g7.large", *, zone="cn-hangzhou-b", **more):
        answer = self.clients.ecs.call(
            "RunInstances",
            {
                **REGION,
                "InstanceType": instance_type,
                "ImageId": self.image(),
                "VSwitchId": self.cloud.world.vswitches[zone],
                "SecurityGroupIds": [self.cloud.world.security_group_id],
                "Tag": [self.owned],
                **more,
            },
        )
        return answer["InstanceIdSets"]["InstanceIdSet"]

    def described(self, **more):
        return list(
            self.clients.ecs.pages(
                "DescribeInstances",
                {**REGION, "MaxResults": 100, **more},
                items="Instances.Instance",
            )
        )


@pytest.fixture
def launch(cloud, clients):
    return Launch(cloud, clients)


@pytest.fixture
def code():
    """The code with which a call is refused."""

    def refused(call, *arguments, **named):
        with pytest.raises(ApiError) as caught:
            call(*arguments, **named)
        return caught.value.code

    return refused
