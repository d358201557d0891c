"""Provisioning groups of the simulated Alibaba Cloud: their instances and refusals."""

from __future__ import annotations

import pytest

from karpenter_core.provider.kit.simulated.pools import InstancePool


def test_the_cheapest_pool_provides_the_instance(cloud, launch):
    cloud.prices.set_spot("ecs.g7.large", "cn-hangzhou-g", 0.01)

    group = launch.group("ecs.g7.large", "ecs.c7.large", spot=True, zones="bg")

    assert group.places == {("ecs.g7.large", "g"): 1}
    assert group.results[0]["SpotStrategy"] == "SpotAsPriceGo"


def test_a_sold_out_pool_is_reported_and_the_next_provides_the_instance(cloud, launch):
    cloud.capacity.sell_out(instance_type="ecs.c7.large", zone="cn-hangzhou-b")

    group = launch.group("ecs.c7.large", "ecs.g7.large", zones="b")

    assert group.errors == [("ecs.c7.large", "b", "OperationDenied.NoStock")]
    assert group.places == {("ecs.g7.large", "b"): 1}


def test_insufficient_stock_launches_the_available_instances(cloud, launch):
    cloud.capacity.stock(InstancePool(), 3)

    group = launch.group("ecs.g7.large", count=8, zones="bg")

    assert group.places == {("ecs.g7.large", "b"): 3, ("ecs.g7.large", "g"): 3}
    assert len(group.errors) == 2
    assert launch.group("ecs.g7.large", zones="bg").ids == []


def test_a_group_with_a_minimum_gives_that_or_nothing(cloud, launch):
    cloud.capacity.stock(InstancePool(), 3)

    assert launch.group("ecs.g7.large", count=8, zones="bg", MinTargetCapacity="7").ids == []
    assert len(launch.group("ecs.g7.large", count=8, zones="bg", MinTargetCapacity="6").ids) == 6


def test_a_group_short_of_its_minimum_reports_no_stock_for_the_capacity_it_could_have_had(
    cloud, launch
):
    cloud.capacity.sell_out(capacity_type="on-demand")

    group = launch.group(
        "ecs.g7.large",
        count=3,
        zones="b",
        SpotTargetCapacity="1",
        PayAsYouGoTargetCapacity="2",
        MinTargetCapacity="3",
    )

    assert group.ids == []
    assert [code for _, _, code in group.errors] == ["OperationDenied.NoStock"] * 2


def test_priorities_precede_prices_if_requested(cloud, launch):
    vswitch = cloud.world.vswitches["cn-hangzhou-b"]
    configs = [
        {"InstanceType": "ecs.c7.large", "VSwitchId": vswitch, "Priority": 1},
        {"InstanceType": "ecs.r7.large", "VSwitchId": vswitch, "Priority": 0},
    ]

    cheapest = launch.group(configs=configs)
    first = launch.group(configs=configs, PayAsYouGoAllocationStrategy="prioritized")

    assert cheapest.places == {("ecs.c7.large", "b"): 1}
    assert first.places == {("ecs.r7.large", "b"): 1}


def test_diversified_groups_spread_over_zones(cloud, launch):
    group = launch.group(
        "ecs.g7.large", count=6, spot=True, zones="bg", SpotAllocationStrategy="diversified"
    )

    assert group.places == {("ecs.g7.large", "b"): 3, ("ecs.g7.large", "g"): 3}


def test_capacity_optimized_groups_take_where_there_is_most(cloud, launch):
    cloud.capacity.stock(InstancePool(zone="cn-hangzhou-b"), 5)
    cloud.capacity.stock(InstancePool(zone="cn-hangzhou-g"), 50)

    group = launch.group(
        "ecs.g7.large", spot=True, zones="bg", SpotAllocationStrategy="capacity-optimized"
    )

    assert group.places == {("ecs.g7.large", "g"): 1}


def test_the_image_of_a_configuration_overrides_that_of_the_group(cloud, launch):
    vswitch = cloud.world.vswitches["cn-hangzhou-b"]
    arm = {"InstanceType": "ecs.g8y.large", "VSwitchId": vswitch}

    without = launch.group(configs=[arm])
    with_own = launch.group(configs=[{**arm, "ImageId": launch.image("arm64")}])

    assert without.errors == [("ecs.g8y.large", "b", "ImageNotSupportInstanceType")]
    assert with_own.places == {("ecs.g8y.large", "b"): 1}


def test_the_first_category_that_a_zone_has_is_the_disk(cloud, launch):
    disks = [{"DiskCategory": "cloud_ssd"}, {"DiskCategory": "cloud_auto"}]
    level = {"SystemDiskPerformanceLevel": "PL0"}

    (first,) = launch.group("ecs.g7.large", zones="b", SystemDiskConfig=disks).ids
    (essd,) = launch.group(
        "ecs.g7.large", zones="b", SystemDiskConfig=[{"DiskCategory": "cloud_essd"}], launch=level
    ).ids
    none = launch.group("ecs.g7.large", zones="b", SystemDiskConfig=disks[:1])

    assert cloud.instance(first).system_disk.category == "cloud_auto"
    assert cloud.instance(essd).system_disk.performance_level == "PL0"
    assert none.errors == [("ecs.g7.large", "b", "OperationDenied.ZoneSystemCategoryNotMatch")]


def test_data_disks_take_the_categories_of_the_group(cloud, launch):
    (instance_id,) = launch.group(
        "ecs.g7.large",
        zones="b",
        launch={"DataDisk": [{"Size": 100, "Device": "/dev/xvdb"}]},
        DataDiskConfig=[{"DiskCategory": "cloud_essd"}],
    ).ids

    (disk,) = cloud.instance(instance_id).data_disks
    assert (disk.category, disk.size_gib, disk.device) == ("cloud_essd", 100, "/dev/xvdb")


def test_a_price_limit_below_the_price_gets_nothing(cloud, launch):
    vswitch = cloud.world.vswitches["cn-hangzhou-b"]
    config = {"InstanceType": "ecs.g7.large", "VSwitchId": vswitch, "MaxPrice": 0.001}

    group = launch.group(configs=[config], spot=True)

    assert [each[2] for each in group.errors] == ["InvalidSpotPriceLimit.LowerThanPublicPrice"]


def test_the_same_call_again_makes_nothing_new(cloud, launch, code):
    first = launch.group("ecs.g7.large", ClientToken="token-1")
    again = launch.group("ecs.g7.large", ClientToken="token-1")
    other = code(launch.group, "ecs.g7.xlarge", ClientToken="token-1")
    cloud.time.advance(25 * 3600)
    later = launch.group("ecs.g7.large", ClientToken="token-1")

    assert first.answer["AutoProvisioningGroupId"] == again.answer["AutoProvisioningGroupId"]
    assert first.ids == again.ids != later.ids
    assert other == "IdempotentParameterMismatch"
    assert len(cloud.living()) == 2


def test_a_lost_reply_is_of_a_group_that_was_made(cloud, launch):
    with cloud.lose_replies("CreateAutoProvisioningGroup"):
        group = launch.group("ecs.g7.large", ClientToken="token-1")

    assert [each.id for each in cloud.living()] == group.ids
    assert [each.outcome for each in cloud.calls.of("CreateAutoProvisioningGroup")] == [
        "lost-reply",
        "ok",
    ]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"launch": {"ImageId": "m-none"}}, "InvalidImageId.NotFound"),
        ({"launch": {"SecurityGroupIds": ["sg-none"]}}, "InvalidSecurityGroupId.NotFound"),
        ({"launch": {"UserData": "no base64!"}}, "InvalidUserData.Base64FormatInvalid"),
        ({"launch": {"UserData": "YWFh" * 11000}}, "InvalidUserData.SizeExceeded"),
        (
            {"launch": {"Tag": [{"Key": f"k{n}", "Value": "v"} for n in range(21)]}},
            "InvalidParameter.TagCount",
        ),
        ({"launch": {"Tag": [{"Key": "acs:x", "Value": "v"}]}}, "InvalidTagKey.Malformed"),
        ({"ClientToken": "x" * 65}, "InvalidClientToken.ValueNotSupported"),
        ({"SpotAllocationStrategy": "random", "spot": True},
         "InvalidSpotAllocationStrategy.ValueNotSupported"),
        ({"TotalTargetCapacity": None}, "MissingParameter.TotalTargetCapacity"),
        ({"configs": [{"InstanceType": "ecs.g7.large"}]},
         "MissingParameter.LaunchTemplateConfig.1.VSwitchId"),
    ],
)  # fmt: skip
def test_an_invalid_call_is_refused_and_creates_nothing(cloud, launch, code, more, expected):
    assert code(launch.group, "ecs.g7.large", **more) == expected
    assert cloud.living() == []


def test_a_group_takes_twenty_configs_and_no_more(cloud, launch, code):
    vswitch = cloud.world.vswitches["cn-hangzhou-b"]
    config = {"InstanceType": "ecs.g7.large", "VSwitchId": vswitch}

    assert launch.group(configs=[config] * 20).ids
    assert code(launch.group, configs=[config] * 21) == "InvalidLaunchTemplateConfigs.SizeExceed"


def test_errors_can_be_put_into_results(cloud, launch):
    cloud.fail_pools(code="NoInstanceStock", zone="cn-hangzhou-b", times=1)

    assert launch.group("ecs.g7.large", zones="b").errors == [
        ("ecs.g7.large", "b", "NoInstanceStock")
    ]
    assert launch.group("ecs.g7.large", zones="b").ids


def test_a_private_pool_gives_before_the_public_one_does(cloud, launch, clients):
    cloud.capacity.sell_out()
    pool = cloud.reservations.add(
        "mine", instance_type="ecs.g7.large", zone="cn-hangzhou-b", total=2
    )
    options = {"PrivatePoolIds": [pool.id], "Strategy": "PrivatePoolOnly"}

    group = launch.group("ecs.g7.large", count=3, zones="b", ResourcePoolOptions=options)
    answer = clients.ecs.call("DescribeCapacityReservations", {"RegionId": "cn-hangzhou"})

    assert len(group.ids) == 2
    (item,) = answer["CapacityReservationSet"]["CapacityReservationItem"]
    (resource,) = item["AllocatedResources"]["AllocatedResource"]
    assert (resource["UsedAmount"], resource["AvailableAmount"]) == (2, 0)
    (described, _) = launch.described()
    assert described["EcsCapacityReservationAttr"]["CapacityReservationId"] == pool.id


def test_groups_can_be_described_and_deleted_with_their_instances(cloud, launch, clients):
    group = launch.group("ecs.g7.large", count=2, Tag=[{"Key": "made", "Value": "here"}])
    group_id = group.answer["AutoProvisioningGroupId"]

    answer = clients.ecs.call(
        "DescribeAutoProvisioningGroups", {"RegionId": "cn-hangzhou", "Tag": [{"Key": "made"}]}
    )
    clients.ecs.call(
        "DeleteAutoProvisioningGroup",
        {
            "RegionId": "cn-hangzhou",
            "AutoProvisioningGroupId": group_id,
            "TerminateInstances": True,
        },
    )

    (described_group,) = answer["AutoProvisioningGroups"]["AutoProvisioningGroup"]
    assert described_group["AutoProvisioningGroupId"] == group_id
    assert described_group["CapacitySpecification"]["TotalCapacity"] == 2
    assert cloud.living() == []
