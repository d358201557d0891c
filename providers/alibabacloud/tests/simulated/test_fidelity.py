"""All answers of the simulated cloud fit the SDK models. Case 101."""

from __future__ import annotations

import pytest

from karpenter_simulated_alibabacloud.clusters import AckNodePool
from karpenter_simulated_alibabacloud.fidelity import departures
from karpenter_simulated_alibabacloud.parameters import RequestParameters

REGION = {"RegionId": "cn-hangzhou"}


@pytest.fixture
def calls(cloud, launch):
    """Call every relevant action; each has a result."""
    (mine, stopped, started, gone) = launch.run(
        Amount=4, SpotStrategy="SpotAsPriceGo", Tag=[launch.owned]
    )
    group = launch.group("ecs.gn7i-c8g1.2xlarge", "ecs.i3.xlarge", count=2, zones="b")
    cloud.reclaim(mine)
    cloud.schedule_event(mine)
    event = cloud.schedule_event(mine, "SystemFailure.Reboot")
    cloud.events.finish(event)
    cloud.reservations.add(
        "mine",
        instance_type="ecs.g7.large",
        zone="cn-hangzhou-b",
        total=2,
        ends_at=cloud.time(),
        tags={"a": "b"},
    )
    cloud.deployment_sets.add("spread")
    cloud.images.add("own", family="mine", tags={"a": "b"})
    cluster = cloud.clusters.get(cloud.world.cluster)
    cluster.node_pools.append(
        AckNodePool(
            id="np1", name="gone", taints=[{"key": "a", "value": "b", "effect": "NoSchedule"}]
        )
    )
    cloud.stop_instance(started)
    at = {"ClusterId": cloud.world.cluster}
    group_id = group.answer["AutoProvisioningGroupId"]
    tag = [{"Key": "a", "Value": "b"}]
    kind = {"ResourceType": "instance"}
    return {
        "cs:DescribeClusterAttachScripts": at,
        "cs:DescribeClusterDetail": at,
        "cs:DescribeClusterNodePools": at,
        "cs:DescribeKubernetesVersionMetadata": {"Region": "cn-hangzhou"},
        "ecs:AddTags": {**REGION, **kind, "ResourceId": mine, "Tag": tag},
        "ecs:DeleteAutoProvisioningGroup": {**REGION, "AutoProvisioningGroupId": group_id},
        "ecs:DeleteInstance": {"InstanceId": gone, "Force": "true"},
        "ecs:DeleteInstances": {**REGION, "InstanceId": [mine], "Force": "true"},
        "ecs:DescribeAutoProvisioningGroups": REGION,
        "ecs:DescribeAvailableResource": {**REGION, "DestinationResource": "SystemDisk"},
        "ecs:DescribeCapacityReservations": {**REGION, "Status": "All"},
        "ecs:DescribeDeploymentSets": REGION,
        "ecs:DescribeImages": REGION,
        "ecs:DescribeInstanceHistoryEvents": REGION,
        "ecs:DescribeInstanceStatus": REGION,
        "ecs:DescribeInstanceTypeFamilies": REGION,
        "ecs:DescribeInstanceTypes": {},
        "ecs:DescribeInstances": {**REGION, "MaxResults": "100"},
        "ecs:DescribePrice": {
            **REGION,
            "InstanceType": "ecs.g7.large",
            "SystemDisk": {"Size": "40"},
        },
        "ecs:DescribeRegions": {},
        "ecs:DescribeSecurityGroups": REGION,
        "ecs:DescribeSpotAdvice": REGION,
        "ecs:DescribeSpotPriceHistory": {
            **REGION,
            "InstanceType": "ecs.g7.large",
            "NetworkType": "vpc",
        },
        "ecs:DescribeZones": REGION,
        "ecs:ListTagResources": {**REGION, **kind, "ResourceId": [mine]},
        "ecs:StartInstance": {"InstanceId": started},
        "ecs:StopInstance": {"InstanceId": stopped},
        "ecs:StopInstances": {**REGION, "InstanceId": [started]},
        "ecs:StartInstances": {**REGION, "InstanceId": [started]},
        "ecs:TagResources": {**REGION, **kind, "ResourceId": [mine], "Tag": tag},
        "ecs:UntagResources": {**REGION, **kind, "ResourceId": [mine], "TagKey": ["a"]},
        "vpc:DescribeVSwitches": REGION,
        "vpc:DescribeVpcs": REGION,
    }


_LAST = ("ecs:DeleteInstance", "ecs:DeleteInstances", "ecs:DeleteAutoProvisioningGroup")
_LAUNCHES = {"ecs:CreateAutoProvisioningGroup", "ecs:RunInstances"}


def test_every_answer_is_one_that_the_sdk_knows(cloud, calls, launch):
    cloud.capacity.sell_out(zone="cn-hangzhou-g")
    launched = {
        "ecs:CreateAutoProvisioningGroup": launch.group("ecs.g7.large", count=2, zones="g").answer,
        "ecs:RunInstances": {"InstanceIdSets": {"InstanceIdSet": launch.run()}},
    }
    found = {name: departures(*name.split(":"), answer) for name, answer in launched.items()}
    order = [name for name in calls if name not in _LAST] + list(_LAST)
    for name in order:
        answer = cloud.handlers[name](RequestParameters(calls[name]))
        found[name] = departures(*name.split(":"), answer)

    assert {name: each for name, each in found.items() if each} == {}
    assert found.keys() == cloud.handlers.keys()


def test_an_invented_name_is_detected():
    answer = {"Instances": {"Instance": [{"InstanceId": "i-1", "Colour": "blue"}]}}

    assert departures("ecs", "DescribeInstances", answer) == [
        ".Instances.Instance[0].Colour is unknown"
    ]


def test_a_value_of_another_type_is_detected():
    answer = {"Instances": {"Instance": [{"Cpu": "4", "InstanceId": "i-1"}]}}

    assert departures("ecs", "DescribeInstances", answer) == [
        ".instances.instance.cpu is '4', which is no int"
    ]


def test_all_three_services_answer_their_unmodified_sdks(cloud):
    from alibabacloud_cs20151215.client import Client as Ack
    from alibabacloud_ecs20140526 import models as ecs_models
    from alibabacloud_ecs20140526.client import Client as Ecs
    from alibabacloud_tea_openapi.utils_models import Config
    from alibabacloud_vpc20160428 import models as vpc_models
    from alibabacloud_vpc20160428.client import Client as Vpc

    def config():
        return Config(
            access_key_id=cloud.environment["ALIBABA_CLOUD_ACCESS_KEY_ID"],
            access_key_secret=cloud.environment["ALIBABA_CLOUD_ACCESS_KEY_SECRET"],
            region_id="cn-hangzhou",
            endpoint=cloud.endpoint,
            protocol="http",
        )

    types = Ecs(config()).describe_instance_types(ecs_models.DescribeInstanceTypesRequest())
    vswitches = Vpc(config()).describe_vswitches(
        vpc_models.DescribeVSwitchesRequest(region_id="cn-hangzhou")
    )
    detail = Ack(config()).describe_cluster_detail(cloud.world.cluster)

    assert len(types.body.instance_types.instance_type) == len(cloud.catalogue.types)
    assert vswitches.body.total_count == 3
    assert detail.body.cluster_id == cloud.world.cluster
