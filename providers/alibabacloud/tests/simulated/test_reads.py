"""Tests reads of the simulated Alibaba Cloud through the SDKs."""

from __future__ import annotations

import json


def test_a_region_has_types_of_all_sorts(cloud, clients):
    found = list(
        clients.ecs.pages(
            "DescribeInstanceTypes", {"MaxResults": 10}, items="InstanceTypes.InstanceType"
        )
    )

    assert len(found) == len(cloud.catalogue.types) >= 60
    assert cloud.calls.count("DescribeInstanceTypes") == -(-len(found) // 10)
    assert {each["CpuArchitecture"] for each in found} == {"X86", "ARM"}
    (g7,) = [each for each in found if each["InstanceTypeId"] == "ecs.g7.large"]
    assert (g7["CpuCoreCount"], g7["MemorySize"]) == (2, 8)
    assert (g7["EniQuantity"], g7["EniPrivateIpAddressQuantity"]) == (3, 6)


def test_one_zone_of_the_region_has_no_spot(cloud, clients):
    def zones(**more):
        answer = clients.ecs.call(
            "DescribeAvailableResource",
            {"RegionId": "cn-hangzhou", "DestinationResource": "InstanceType", **more},
        )
        return [each["ZoneId"] for each in answer["AvailableZones"]["AvailableZone"]]

    assert zones() == list(cloud.world.zones)
    assert zones(SpotStrategy="SpotAsPriceGo") == ["cn-hangzhou-b", "cn-hangzhou-g"]


def test_stock_is_reported_as_configured(cloud, clients):
    cloud.catalogue.set_reported_stock(
        "ClosedWithStock", instance_type="ecs.g7.*", zone="cn-hangzhou-b"
    )
    cloud.catalogue.set_reported_stock(
        "WithoutStock", instance_type="ecs.g7.large", zone="cn-hangzhou-b"
    )
    cloud.catalogue.withdraw(instance_type="ecs.g7.xlarge", zone="cn-hangzhou-b")

    answer = clients.ecs.call(
        "DescribeAvailableResource",
        {
            "RegionId": "cn-hangzhou",
            "DestinationResource": "InstanceType",
            "ZoneId": "cn-hangzhou-b",
        },
    )

    (zone,) = answer["AvailableZones"]["AvailableZone"]
    (resource,) = zone["AvailableResources"]["AvailableResource"]
    stock_by_type = {
        each["Value"]: (each["Status"], each["StatusCategory"])
        for each in resource["SupportedResources"]["SupportedResource"]
    }
    assert stock_by_type["ecs.g7.large"] == ("SoldOut", "WithoutStock")
    assert stock_by_type["ecs.g7.2xlarge"] == ("Available", "ClosedWithStock")
    assert stock_by_type["ecs.c7.large"] == ("Available", "WithStock")
    assert "ecs.g7.xlarge" not in stock_by_type


def test_a_type_has_its_own_kinds_of_disks(cloud, clients):
    def disks(instance_type):
        answer = clients.ecs.call(
            "DescribeAvailableResource",
            {
                "RegionId": "cn-hangzhou",
                "DestinationResource": "SystemDisk",
                "InstanceType": instance_type,
                "ZoneId": "cn-hangzhou-g",
            },
        )
        (zone,) = answer["AvailableZones"]["AvailableZone"]
        (resource,) = zone["AvailableResources"]["AvailableResource"]
        return [each["Value"] for each in resource["SupportedResources"]["SupportedResource"]]

    assert disks("ecs.g7.large") == ["cloud_essd", "cloud_auto"]
    assert disks("ecs.g6.large") == ["cloud_efficiency", "cloud_ssd", "cloud_essd"]
    cloud.catalogue.offer_disks(["cloud_auto"], instance_type="ecs.g7.*", zone="cn-hangzhou-g")
    assert disks("ecs.g7.large") == ["cloud_auto"]


def test_vswitches_come_in_pages_of_fifty_at_most(cloud, clients):
    for _ in range(117):
        cloud.networks.add_vswitch(
            cloud.world.vpc_id,
            zone="cn-hangzhou-b",
            cidr="10.9.0.0/24",
            tags=cloud.world.discovery,
        )
    tag = [{"Key": "karpenter.sh/discovery", "Value": cloud.world.cluster}]

    pages = list(
        clients.vpc.pages(
            "DescribeVSwitches",
            {"RegionId": "cn-hangzhou", "PageSize": 50, "Tag": tag},
            items="VSwitches.VSwitch",
        )
    )
    first = clients.vpc.call("DescribeVSwitches", {"RegionId": "cn-hangzhou", "PageSize": 500})

    assert len({each["VSwitchId"] for each in pages}) == 120
    assert cloud.calls.count("DescribeVSwitches") == 4
    assert (first["TotalCount"], len(first["VSwitches"]["VSwitch"])) == (120, 50)


def test_a_tag_filter_without_a_value_matches_any_value(cloud, clients):
    cloud.networks.add_security_group(cloud.world.vpc_id, name="bare")

    def found(**tag):
        answer = clients.ecs.call(
            "DescribeSecurityGroups", {"RegionId": "cn-hangzhou", "MaxResults": 100, "Tag": [tag]}
        )
        return [each["SecurityGroupId"] for each in answer["SecurityGroups"]["SecurityGroup"]]

    mine = [cloud.world.security_group_id]
    assert found(Key="karpenter.sh/discovery") == mine
    assert found(Key="karpenter.sh/discovery", Value=cloud.world.cluster) == mine
    assert found(Key="karpenter.sh/discovery", Value="another") == []


def test_a_page_token_is_valid_for_the_same_filters_only(cloud, clients):
    from karpenter_provider_alibabacloud.codes import ApiError

    for number in range(12):
        cloud.networks.add_security_group(cloud.world.vpc_id, name=f"group-{number}")
    first = clients.ecs.call(
        "DescribeSecurityGroups", {"RegionId": "cn-hangzhou", "MaxResults": 10}
    )
    assert len(first["SecurityGroups"]["SecurityGroup"]) == 10

    try:
        clients.ecs.call(
            "DescribeSecurityGroups",
            {
                "RegionId": "cn-hangzhou",
                "MaxResults": 10,
                "NextToken": first["NextToken"],
                "SecurityGroupName": "group-3",
            },
        )
        code = ""
    except ApiError as error:
        code = error.code

    assert code == "InvalidParameter.TokenInvalid"


def test_the_cluster_answer_has_network_runtime_and_images(cloud, clients):
    cluster = {"ClusterId": cloud.world.cluster}
    detail = clients.ack.call("DescribeClusterDetail", cluster)
    pools = clients.ack.call("DescribeClusterNodePools", cluster)["nodepools"]
    versions = clients.ack.call(
        "DescribeKubernetesVersionMetadata",
        {
            "Region": "cn-hangzhou",
            "ClusterType": "ManagedKubernetes",
            "KubernetesVersion": detail["current_version"],
        },
    )["body"]

    assert json.loads(detail["meta_data"])["Capabilities"]["Network"] == "terway-eniip"
    assert [each["nodepool_info"]["is_default"] for each in pools] == [True]
    assert {each["architecture"] for each in versions[0]["images"]} == {"x86_64", "arm64"}


def test_each_attach_script_has_a_token_of_its_own(cloud, clients):
    def script(**more):
        return clients.ack.call(
            "DescribeClusterAttachScripts", {"ClusterId": cloud.world.cluster, **more}
        )["body"]

    first, second = script(keep_instance_name=True), script(format_disk=True)

    assert first != second
    assert " --runtime containerd --runtime-version 1.6.39" in first
    assert "--auto-fdisk true" in second
