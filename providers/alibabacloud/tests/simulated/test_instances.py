"""Instances of the simulated Alibaba Cloud: launched, described, tagged, stopped, deleted."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from karpenter_core.api.labels import SPOT

REGION = {"RegionId": "cn-hangzhou"}


def free(cloud, zone="cn-hangzhou-b"):
    return cloud.networks.free_addresses(cloud.networks.vswitch(cloud.world.vswitches[zone]))


def test_an_instance_is_described_as_it_was_launched(cloud, launch):
    (instance_id,) = launch.run(
        Tag=[{"Key": "team", "Value": "blue"}],
        SpotStrategy="SpotAsPriceGo",
        HttpTokens="required",
        KeyPairName="mine",
    )

    (described_item,) = launch.described(InstanceIds=json.dumps([instance_id]))

    assert described_item["InstanceType"] == "ecs.g7.large"
    assert described_item["ZoneId"] == "cn-hangzhou-b"
    assert described_item["SpotStrategy"] == "SpotAsPriceGo"
    assert described_item["VpcAttributes"]["VSwitchId"] == cloud.world.vswitches["cn-hangzhou-b"]
    assert described_item["SecurityGroupIds"]["SecurityGroupId"] == [cloud.world.security_group_id]
    assert described_item["Tags"]["Tag"] == [{"TagKey": "team", "TagValue": "blue"}]
    assert described_item["MetadataOptions"]["HttpTokens"] == "required"
    assert len(described_item["CreationTime"]) == len("2026-01-01T00:00Z")


def test_an_instance_takes_its_time_to_run_and_cannot_be_deleted_before(
    cloud, launch, clients, code
):
    cloud.behaviour.pending_seconds = 2
    cloud.behaviour.starting_seconds = 3
    (instance_id,) = launch.run()
    deletion = {"InstanceId": instance_id, "Force": True}
    seen = []
    for _ in range(3):
        seen.append(launch.described()[0]["Status"])
        if seen[-1] != "Running":
            refused = code(clients.ecs.call, "DeleteInstance", deletion)
            assert refused == "IncorrectInstanceStatus.Initializing"
        cloud.time.advance(2.5)

    clients.ecs.call("DeleteInstance", deletion)

    assert seen == ["Pending", "Starting", "Running"]
    assert launch.described() == []


def test_a_running_instance_is_deleted_by_force_only(cloud, launch, clients, code):
    (instance_id,) = launch.run()

    refused = code(clients.ecs.call, "DeleteInstance", {"InstanceId": instance_id})
    clients.ecs.call("DeleteInstance", {"InstanceId": instance_id, "Force": True})
    again = code(clients.ecs.call, "DeleteInstance", {"InstanceId": instance_id, "Force": True})

    assert refused == "IncorrectInstanceStatus"
    assert again == "InvalidInstanceId.NotFound"


def test_a_batch_of_deletions_with_one_that_is_unknown_deletes_nothing(
    cloud, launch, clients, code
):
    ids = launch.run(Amount=3)

    refused = code(
        clients.ecs.call,
        "DeleteInstances",
        {**REGION, "InstanceId": [*ids, "i-none"], "Force": True},
    )
    assert refused == "InvalidInstanceId.NotFound"
    assert len(cloud.living()) == 3
    clients.ecs.call("DeleteInstances", {**REGION, "InstanceId": ids, "Force": True})
    assert cloud.living() == []


def test_an_instance_under_release_is_stopping_and_holds_its_address(cloud, launch, clients):
    cloud.behaviour.terminating_seconds = 30
    before = free(cloud)
    (instance_id,) = launch.run()
    clients.ecs.call("DeleteInstance", {"InstanceId": instance_id, "Force": True})

    assert [each["Status"] for each in launch.described()] == ["Stopping"]
    assert free(cloud) == before - 1
    cloud.time.advance(30)
    assert launch.described() == []
    assert free(cloud) == before


def test_a_new_instance_may_not_be_seen_at_first(cloud, launch):
    cloud.behaviour.invisible_seconds = 10
    (instance_id,) = launch.run()

    assert launch.described(InstanceIds=json.dumps([instance_id])) == []
    cloud.time.advance(10)
    assert len(launch.described(InstanceIds=json.dumps([instance_id]))) == 1


def test_a_stopped_instance_starts_again(cloud, launch, clients):
    (instance_id,) = launch.run()
    one = {"InstanceId": instance_id}

    clients.ecs.call("StopInstance", one)
    stopped = launch.described()[0]["Status"]
    clients.ecs.call("StartInstances", {**REGION, "InstanceId": [instance_id]})

    assert (stopped, launch.described()[0]["Status"]) == ("Stopped", "Running")


def test_pages_hold_ten_by_default_and_a_hundred_at_most(cloud, launch, clients):
    for _ in range(2):
        launch.run(Amount=60)

    def sizes(**more):
        answer = clients.ecs.call("DescribeInstances", {**REGION, **more})
        return len(answer["Instances"]["Instance"])

    assert sizes() == 10
    assert sizes(MaxResults=1) == 10
    assert sizes(MaxResults=500) == 100
    assert len(launch.described()) == 120


def test_tags_alone_find_a_thousand_at_most_and_lists_of_tags_find_all(cloud, launch, clients):
    for _ in range(11):
        launch.run(Amount=100)
    key = launch.owned["Key"]

    by_tag = launch.described(Tag=[{"Key": key}])
    rows = list(
        clients.ecs.pages(
            "ListTagResources",
            {**REGION, "ResourceType": "instance", "Tag": [{"Key": key}]},
            items="TagResources.TagResource",
        )
    )

    assert len(by_tag) == 1000
    assert len({row["ResourceId"] for row in rows}) == 1100


def test_a_page_is_complete_when_an_instance_ends_between_pages(cloud, launch, clients):
    ids = launch.run(Amount=30)
    first = clients.ecs.call("DescribeInstances", {**REGION, "MaxResults": 10})
    cloud.terminate(ids[9])
    cloud.terminate(ids[3])

    rest = clients.ecs.call(
        "DescribeInstances", {**REGION, "MaxResults": 100, "NextToken": first["NextToken"]}
    )

    shown = {each["InstanceId"] for each in rest["Instances"]["Instance"]}
    assert shown >= set(ids[10:])


def test_tags_are_set_and_taken_away_for_fifty_resources_at_most(cloud, launch, clients, code):
    ids = launch.run(Amount=51)
    tag = {**REGION, "ResourceType": "instance", "Tag": [{"Key": "Name", "Value": "node"}]}

    refused = code(clients.ecs.call, "TagResources", {**tag, "ResourceId": ids})
    clients.ecs.call("TagResources", {**tag, "ResourceId": ids[:50]})
    clients.ecs.call(
        "UntagResources",
        {**REGION, "ResourceType": "instance", "ResourceId": ids[:1], "TagKey": ["Name"]},
    )

    assert refused == "InvalidParameter.ResourceId"
    assert len(launch.described(Tag=[{"Key": "Name", "Value": "node"}])) == 49


def test_no_resource_has_more_than_twenty_tags(cloud, launch, clients, code):
    ids = launch.run(Tag=[{"Key": f"k{n}", "Value": "v"} for n in range(20)])

    refused = code(
        clients.ecs.call,
        "TagResources",
        {
            **REGION,
            "ResourceType": "instance",
            "ResourceId": ids,
            "Tag": [{"Key": "one-more", "Value": ""}],
        },
    )

    assert refused == "InvalidParameter.TagCount"


def test_a_vswitch_without_addresses_takes_no_instance(cloud, launch, code):
    cloud.networks.leave_addresses(cloud.world.vswitches["cn-hangzhou-b"], 2)

    assert len(launch.run(Amount=2)) == 2
    assert code(launch.run) == "InvalidVSwitchId.IpNotEnough"
    assert launch.run(zone="cn-hangzhou-g")


def test_pods_take_addresses_when_configured(cloud, launch):
    before = free(cloud)
    cloud.behaviour.addresses_per_instance = None

    launch.run("ecs.g7.large")

    assert free(cloud) == before - 13


def test_a_quota_is_for_one_capacity_type(cloud, launch, code):
    cloud.capacity.limit_vcpus(4)

    assert len(launch.run(Amount=2)) == 2
    assert code(launch.run) == "QuotaExceed.ElasticQuota"
    assert launch.run(SpotStrategy="SpotAsPriceGo")
    cloud.capacity.limit_vcpus(2, capacity_type=SPOT)
    assert code(launch.run, SpotStrategy="SpotAsPriceGo") == "QuotaExceed.ElasticQuota"


def test_a_run_gives_all_or_the_minimum_that_is_asked_for(cloud, launch, code):
    from karpenter_core.provider.kit.simulated.pools import InstancePool

    cloud.capacity.stock(InstancePool(), 3)

    assert code(launch.run, Amount=5) == "OperationDenied.NoStock"
    assert len(launch.run(Amount=5, MinAmount=2)) == 3


def test_a_dry_run_creates_nothing_and_reports_errors(cloud, launch, code):
    assert code(launch.run, DryRun=True) == "DryRunOperation"
    assert code(launch.run, DryRun=True, ImageId="m-none") == "InvalidImageId.NotFound"
    assert cloud.living() == []
    assert [call.dry_run for call in cloud.calls.of("RunInstances")] == [True, True]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"instance_type": "ecs.none.large"}, "InvalidInstanceType.ValueNotSupported"),
        ({"VSwitchId": "vsw-none"}, "InvalidVSwitchId.NotFound"),
        ({"SecurityGroupId": "sg-1"}, "InvalidParameter.Conflict"),
        ({"zone": "cn-hangzhou-h", "SpotStrategy": "SpotAsPriceGo"},
         "InvalidResourceType.NotSupported"),
        ({"SystemDisk": {"Size": "10"}}, "InvalidSystemDiskSize.LessThanImageSize"),
        ({"SystemDisk": {"Category": "cloud_ssd"}}, "OperationDenied.ZoneSystemCategoryNotMatch"),
        ({"PrivatePoolOptions": {"MatchCriteria": "Target", "Id": "crp-1"}},
         "Invalid.PrivatePoolOptions.NoStock"),
        ({"DeploymentSetId": "ds-1"}, "InvalidDeploymentSetId.NotFound"),
    ],
)  # fmt: skip
def test_an_invalid_run_is_refused(cloud, launch, code, more, expected):
    assert code(launch.run, **more) == expected
    assert cloud.living() == []


def test_a_deployment_set_takes_so_many_in_a_zone(cloud, launch, clients, code):
    wanted = cloud.deployment_sets.add("spread", in_a_zone=2)

    launch.run(Amount=2, DeploymentSetId=wanted.id)
    refused = code(launch.run, DeploymentSetId=wanted.id)
    launch.run(zone="cn-hangzhou-g", DeploymentSetId=wanted.id)
    answer = clients.ecs.call("DescribeDeploymentSets", REGION)

    assert refused == "DeploymentSet.InstanceLimitExceed"
    (described_item,) = answer["DeploymentSets"]["DeploymentSet"]
    assert [each["AvailableAmount"] for each in described_item["Capacities"]["Capacity"]] == [
        0,
        1,
        2,
    ]


def test_a_reclaimed_instance_is_locked_and_ends_after_its_notice(cloud, launch):
    (instance_id,) = launch.run(SpotStrategy="SpotAsPriceGo")
    cloud.reclaim(f"cn-hangzhou.{instance_id}")

    (described_item,) = launch.described(LockReason="Recycling")
    assert described_item["OperationLocks"]["LockReason"][0]["LockReason"] == "Recycling"
    cloud.time.advance(301)
    assert launch.described() == []


def test_a_protected_instance_is_not_taken_in_its_first_hour(cloud, launch):
    launched = cloud.time()
    protected, unprotected = (
        launch.run(SpotStrategy="SpotAsPriceGo", SpotDuration=hours)[0] for hours in (1, 0)
    )

    assert cloud.reclaim_protected(protected) - launched >= timedelta(hours=1)
    assert launch.described(LockReason="Recycling") == []
    cloud.time.advance(3400)
    assert len(launch.described(LockReason="Recycling")) == 1
    cloud.time.reset()
    assert cloud.reclaim_protected(unprotected) - launched < timedelta(minutes=6)


def test_system_events_are_selected_by_type_and_progress(cloud, launch, clients):
    (instance_id,) = launch.run()
    event = cloud.schedule_event(instance_id)

    def found(**more):
        answer = clients.ecs.call("DescribeInstanceHistoryEvents", {**REGION, **more})
        return [
            (each["EventType"]["Name"], each["EventCycleStatus"]["Name"])
            for each in answer["InstanceSystemEventSet"]["InstanceSystemEventType"]
        ]

    scheduled = [("SystemMaintenance.Reboot", "Scheduled")]
    assert found(InstanceEventCycleStatus=["Scheduled", "Executing"]) == scheduled
    assert found(InstanceEventType=["SystemFailure.Reboot"]) == []
    soon = f"{cloud.time() + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    assert found(NotBefore={"End": soon}) == []
    assert found(NotBefore={"Start": soon}) == scheduled
    cloud.events.finish(event)
    assert found(InstanceEventCycleStatus=["Scheduled", "Executing"]) == []


def test_instances_of_other_clusters_are_not_held(cloud, launch):
    (mine,) = launch.group("ecs.g7.large").ids
    foreign = cloud.launch_foreign()

    assert cloud.held().instances == [mine]
    assert len(cloud.held().groups) == 1
    assert cloud.held("other").instances == [foreign.rpartition(".")[2]]


def test_the_largest_user_data_fits_into_a_request(cloud, launch):
    from base64 import b64encode
    from random import Random

    data = Random(1).randbytes(32 * 1024)

    (instance_id,) = launch.run(UserData=b64encode(data).decode())

    assert cloud.instance(instance_id).user_data == data


def test_pages_can_be_smaller_than_requested_or_empty(cloud, launch, clients):
    launch.run(Amount=3)
    asked = {**REGION, "MaxResults": 100}

    cloud.behaviour.instances_per_page = 2
    assert len([*clients.ecs.pages("DescribeInstances", asked, items="Instances.Instance")]) == 3
    assert cloud.calls.count("DescribeInstances") == 2

    cloud.behaviour.instances_per_page = 0
    answer = clients.ecs.call("DescribeInstances", asked)
    assert answer["Instances"]["Instance"] == []
    assert answer["NextToken"]
