"""Tests the requests of launches (cases 12, 56 to 60, 69 and 70)."""

from __future__ import annotations

import json

import pytest

from karpenter_core.api.labels import ARCH, INSTANCE_TYPE
from karpenter_core.errors import (
    InsufficientCapacityError,
    LaunchFailedError,
    NodeClassNotReadyError,
)
from karpenter_core.provider.contract import LaunchedInstance
from providers.alibabacloud.tests.launch.processes import (
    GROUP,
    IMAGES,
    LARGE,
    ON_DEMAND,
    ONLY_LARGE,
    RUN,
    SPOT,
    ZONE_B,
    Process,
    claim_of,
    class_of,
    in_zone,
    node_in,
)


@pytest.mark.parametrize(
    ("wish", "spot", "on_demand"), [(SPOT, "1", "0"), (ON_DEMAND, "0", "1")], ids=["spot", "od"]
)
def test_a_request_is_for_one_capacity_type(process, node_class, wish, spot, on_demand):
    """Case 56."""
    outcome = process.launch_one(claim_of("a", wish), node_class)

    (sent,) = process.sent()
    assert sent["SpotTargetCapacity"] == spot
    assert sent["PayAsYouGoTargetCapacity"] == on_demand
    assert sent["TotalTargetCapacity"] == "1"
    assert sent["AutoProvisioningGroupType"] == "instant"
    assert outcome.capacity_type == process.launched(outcome).pool.capacity_type == wish[1]


def test_each_choice_boots_an_image_of_its_architecture(process, node_class):
    """Case 57: ACK's script is another for each, so each has a call; the cheapest comes first."""
    names = ("ecs.g7.large", "ecs.g8y.large")
    claims = [claim_of("a", ON_DEMAND, (INSTANCE_TYPE, *names))]
    types = process.types(node_class)
    prices = {
        name: min(each.price.amount for each in types[name].offerings if each.available)
        for name in names
    }
    process.cloud.capacity.sell_out(instance_type="ecs.g7.large")
    process.cloud.capacity.sell_out(instance_type="ecs.g8y.large")

    process.launch(*claims, node_class=node_class)

    booted = {
        config["InstanceType"]: config.get("ImageId", sent["LaunchConfiguration"]["ImageId"])
        for sent in process.sent()
        for config in sent["LaunchTemplateConfig"]
    }
    assert booted == {"ecs.g7.large": IMAGES["amd64"], "ecs.g8y.large": IMAGES["arm64"]}
    asked = [{c["InstanceType"] for c in sent["LaunchTemplateConfig"]} for sent in process.sent()]
    assert asked == [{name} for name in sorted(names, key=prices.__getitem__)]


def test_claims_that_differ_by_image_only_share_a_call(process, node_class, monkeypatch):
    """Each choice then names its image; where ECS refuses that, each image has a call."""
    monkeypatch.setattr(
        "karpenter_provider_alibabacloud.bootstrap.user_data_builder.UserDataBuilder.user_data",
        lambda *_args, **_options: "IyEvYmluL3NoCg==",
    )
    wish = (INSTANCE_TYPE, "ecs.g7.large", "ecs.g8y.large")

    outcome = process.launch_one(claim_of("a", ON_DEMAND, wish), node_class)

    (sent,) = process.sent()
    assert {c["ImageId"] for c in sent["LaunchTemplateConfig"]} == set(IMAGES.values())
    assert outcome.image_id == process.launched(outcome).image_id

    process.cloud.fail(
        GROUP,
        code="InvalidParameter.LaunchTemplateConfig",
        message="ImageId is not supported",
        where=lambda asked: "ImageId" in str(asked.get("LaunchTemplateConfig")),
    )
    outcome = process.launch_one(claim_of("b", ON_DEMAND, wish), node_class)

    assert isinstance(outcome, LaunchedInstance)
    assert not any("ImageId" in config for config in process.sent()[-1]["LaunchTemplateConfig"])


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("InvalidParameter.SecurityGroupId", "the security group is not valid"),
        ("InvalidParameter.LaunchTemplateConfig", "VSwitchId is not supported"),
        ("InvalidParameter.ImageId", "ImageId is not valid"),
    ],
)
def test_a_refusal_of_something_else_splits_no_call_by_images(
    process, node_class, monkeypatch, code, message
):
    """Every later launch would take a call for each image, to no use."""
    monkeypatch.setattr(
        "karpenter_provider_alibabacloud.bootstrap.user_data_builder.UserDataBuilder.user_data",
        lambda *_args, **_options: "IyEvYmluL3NoCg==",
    )
    wish = (INSTANCE_TYPE, "ecs.g7.large", "ecs.g8y.large")
    process.cloud.fail(GROUP, code=code, message=message, times=1)

    refused = process.launch_one(claim_of("a", ON_DEMAND, wish), node_class)
    process.launch_one(claim_of("b", ON_DEMAND, wish), node_class)

    assert isinstance(refused, LaunchFailedError)
    assert len(process.sent()) == 2
    configs = process.sent()[-1]["LaunchTemplateConfig"]
    assert {config["ImageId"] for config in configs} == set(IMAGES.values())


@pytest.mark.parametrize(
    ("disk", "level"),
    [
        ({"performanceLevel": "PL1", "categories": ["cloud_essd"]}, "PL1"),
        ({"categories": ["cloud_essd"]}, "PL0"),
    ],
)
def test_the_performance_level_is_sent(process, disk, level):
    """Case 58: what is not said is PL0, not what ECS would take."""
    node_class = class_of(process.cloud, systemDisk=disk)

    outcome = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)

    assert process.launched(outcome).system_disk.performance_level == level


def test_the_size_of_the_system_disk_is_the_newer_fields(process):
    """Case 12."""
    node_class = class_of(process.cloud, systemDisk={"size": 40, "volumeSize": "60Gi"})

    outcome = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)

    assert process.launched(outcome).system_disk.size_gib == 60


@pytest.mark.parametrize("metadata", [{}, {"httpTokens": "required"}], ids=["group", "run"])
def test_disks_are_encrypted_by_both_launch_apis(process, metadata):
    """With the key that was named; a category that has no IOPS to choose is sent none."""
    node_class = class_of(
        process.cloud,
        systemDisk={
            "categories": ["cloud_essd"],
            "encrypted": True,
            "kmsKeyId": "key-1",
            "provisionedIops": 1000,
        },
        dataDisks=[{"encrypted": True, "kmsKeyId": "key-2", "deleteWithInstance": False}],
        **({"metadataOptions": metadata} if metadata else {}),
    )

    outcome = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)

    made = process.launched(outcome)
    (data,) = made.data_disks
    assert (made.system_disk.encrypted, made.system_disk.kms_key_id) == (True, "key-1")
    assert not made.system_disk.provisioned_iops
    assert (data.encrypted, data.kms_key_id, data.deleted_with_instance) == (True, "key-2", False)


def test_balanced_continues_with_the_next_zone(process):
    """The zone with fewest nodes has no stock."""
    zones = sorted(process.cloud.world.vswitches)
    node_class = class_of(process.cloud, vSwitchSelectionPolicy="balanced")
    process.nodes = {
        "1": node_in(zones[0], 1),
        "2": node_in(zones[2], 2),
        "3": node_in(zones[2], 3),
    }
    process.cloud.capacity.sell_out(zone=zones[1])

    outcome = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)

    assert outcome.zone == zones[0]


def test_claims_with_different_max_pods_have_separate_calls(process):
    """User data is the same for all instances of a call."""
    node_class = class_of(process.cloud, kubeletConfiguration={"podsPerCore": 4})
    process.cloud.capacity.sell_out()

    process.launch_one(
        claim_of("a", ON_DEMAND, (INSTANCE_TYPE, "ecs.g7.large", "ecs.g7.xlarge")), node_class
    )

    asked = [{c["InstanceType"] for c in sent["LaunchTemplateConfig"]} for sent in process.sent()]
    assert asked == [{"ecs.g7.large"}, {"ecs.g7.xlarge"}]


def test_data_disks_are_launched_with_and_without_categories(process):
    """Case 59: 10Gi is sent as 20."""
    for options in ({}, {"dataDiskCategories": ["cloud_auto"]}):
        node_class = class_of(
            process.cloud,
            systemDisk={"categories": ["cloud_essd"]},
            dataDisks=[{"volumeSize": "10Gi", "device": "/dev/xvdb", "performanceLevel": "PL1"}],
            **options,
        )
        name = "with" if options else "without"
        outcome = process.launch_one(claim_of(name, ON_DEMAND, ONLY_LARGE), node_class)
        (disk,) = process.launched(outcome).data_disks
        sent = process.sent()[-1]

        assert [each["Size"] for each in sent["LaunchConfiguration"]["DataDisk"]] == ["20"]
        assert sent["DataDiskConfig"] == [{"DiskCategory": disk.category}]
        assert disk.size_gib == 20
        assert disk.device == "/dev/xvdb"
        assert disk.category == ("cloud_auto" if options else "cloud_essd")
        assert disk.performance_level == ("" if options else "PL1")


def test_an_instance_has_the_users_tags_and_ours(process):
    """Case 60: and those that name its claim."""
    node_class = class_of(process.cloud, tags={"team": "web"})

    outcome = process.launch_one(claim_of("a", ON_DEMAND), node_class)

    cluster = process.cloud.world.cluster
    tags = dict(process.launched(outcome).tags)
    assert tags.pop("karpenter.k8s.alibabacloud/nodeclaims").startswith("-a:")
    assert tags == {
        "team": "web",
        "ecs:ecs-cluster-id": cluster,
        f"kubernetes.io/cluster/{cluster}": "owned",
        "karpenter.k8s.alibabacloud/ecsnodeclass": "default",
        "karpenter.sh/nodepool": "web",
        "karpenter.sh/nodeclaim": "web-a",
    }
    assert process.sent()[0]["Tag"] == [
        {"Key": "karpenter.k8s.alibabacloud/autoprovisiongroup", "Value": "true"}
    ]


def test_an_instance_joins_with_the_labels_and_taints_of_its_claim(process, node_class):
    """The kubelet registers the labels and taints of the claim."""
    outcome = process.launch_one(claim_of("a", SPOT), node_class)

    node = process.cloud.node(outcome.provider_id)

    assert node["spec"]["providerID"] == outcome.provider_id
    assert node["metadata"]["labels"]["karpenter.sh/capacity-type"] == "spot"
    assert node["metadata"]["labels"]["karpenter.sh/nodepool"] == "web"


def test_options_of_the_node_class_reach_the_instance(process):
    """As ECS names them; what is not set is not sent."""
    node_class = class_of(
        process.cloud,
        ramRoleName="nodes",
        keyPairName="admins",
        resourceGroupId="rg-1",
        internetMaxBandwidthOut=5,
        spot={"priceLimit": 9.5, "durationHours": 0, "allocationStrategy": "capacity-optimized"},
    )

    outcome = process.launch_one(claim_of("a", SPOT), node_class)

    made, (sent,) = process.launched(outcome), process.sent()
    assert (made.ram_role, made.key_pair, made.resource_group_id) == ("nodes", "admins", "rg-1")
    assert (made.public, made.spot_duration, made.spot_price_limit) == (True, 0, 9.5)
    assert sent["SpotAllocationStrategy"] == "capacity-optimized"
    assert sent["SpotInstanceInterruptionBehavior"] == "terminate"
    assert {"Password", "PasswordInherit", "DeploymentSetId"}.isdisjoint(
        sent["LaunchConfiguration"]
    )


def test_options_of_spot_instances_are_not_sent_for_others(process):
    spot = {"priceLimit": 9.5, "durationHours": 0, "allocationStrategy": "capacity-optimized"}
    process.launch_one(claim_of("a", ON_DEMAND), class_of(process.cloud, spot=spot))

    (sent,) = process.sent()
    assert "9.5" not in json.dumps(sent, default=str)


def test_metadata_options_are_launched_by_run_instances(process):
    """A provisioning group cannot carry them."""
    node_class = class_of(process.cloud, metadataOptions={"httpTokens": "required"})

    outcome = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)

    assert process.launched(outcome).http_tokens == "required"
    assert not process.sent(GROUP)
    (sent,) = process.sent(RUN)
    assert sent["SpotStrategy"] == "NoSpot"
    assert sent["InstanceChargeType"] == "PostPaid"


@pytest.fixture
def running(cloud, clients, tmp_path):
    """A process that launches by RunInstances."""
    return Process(cloud, clients, tmp_path, launch_api=RUN)


def test_run_instances_continues_with_the_next_choice(running, node_class):
    """A choice without stock is marked, and the claim gets the next one."""
    running.cloud.capacity.sell_out(zone=ZONE_B)

    outcome = running.launch_one(claim_of("a", SPOT, ONLY_LARGE), node_class)

    assert outcome.zone != ZONE_B
    assert len(running.sent(RUN)) == 1 + (outcome.zone != ZONE_B)
    shortages = running.unavailable_offerings.view(now=running.clock.now())
    assert {(mark.instance_type, mark.zone) for mark in shortages.offerings} == {(LARGE, ZONE_B)}


def test_run_instances_takes_a_disk_that_the_type_boots_from(running):
    """The first of the categories that the zone has for it; after a refusal, the next one."""
    categories = ["cloud_ssd", "cloud_auto", "cloud_essd"]
    node_class = class_of(running.cloud, systemDisk={"categories": categories})
    offered = running.cloud.catalogue.disks(LARGE, ZONE_B)

    outcome = running.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE, in_zone(ZONE_B)), node_class)

    there = [category for category in categories if category in offered]
    assert running.launched(outcome).system_disk.category == there[0]

    running.cloud.fail(RUN, code="OperationDenied.ZoneSystemCategoryNotMatch", status=403)
    outcome = running.launch_one(claim_of("b", ON_DEMAND, ONLY_LARGE, in_zone(ZONE_B)), node_class)

    assert running.launched(outcome).system_disk.category == there[1]


def test_run_instances_requests_no_type_in_a_zone_without_its_disk(running, node_class):
    """The NodeClass takes every kind of disk; RunInstances needs one that is there."""
    running.cloud.catalogue.offer_disks((), instance_type=LARGE, zone=ZONE_B)

    outcome = running.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE, in_zone(ZONE_B)), node_class)

    assert isinstance(outcome, InsufficientCapacityError)
    assert not running.sent(RUN)
    assert running.launch_one(claim_of("b", ON_DEMAND, ONLY_LARGE), node_class).zone != ZONE_B


def test_a_hundred_claims_are_few_calls_of_run_instances(running, node_class):
    """Each claim has an instance of its own."""
    claims = [claim_of(f"n{number}", ON_DEMAND, ONLY_LARGE) for number in range(60)]

    outcomes = running.launch(*claims, node_class=node_class)

    assert len({outcome.provider_id for outcome in outcomes}) == 60
    assert len(running.sent(RUN)) == 2


def test_a_type_without_a_disk_of_the_categories_is_not_requested(process):
    """ECS would refuse it."""
    node_class = class_of(process.cloud, systemDisk={"categories": ["cloud_ssd"]})

    outcome = process.launch_one(
        claim_of("a", ON_DEMAND, (INSTANCE_TYPE, "ecs.g8i.large")), node_class
    )

    assert isinstance(outcome, InsufficientCapacityError)
    assert "cloud_ssd" in str(outcome)
    assert not process.sent()


def test_balanced_prefers_the_zone_with_the_fewest_nodes(process):
    """Case 51: nodes and what is to become one both count."""
    zones = sorted(process.cloud.world.vswitches)
    node_class = class_of(process.cloud, vSwitchSelectionPolicy="balanced")
    process.nodes = {
        str(number): node_in(zone, number)
        for number, zone in enumerate([zones[0], zones[0], zones[0], zones[1], zones[2], zones[2]])
    }

    first = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE), node_class)
    more = process.launch(
        *(claim_of(f"n{number}", ON_DEMAND, ONLY_LARGE) for number in range(4)),
        node_class=node_class,
    )

    assert first.zone == zones[1]
    launched = [first.zone, *(outcome.zone for outcome in more)]
    counts = [before + launched.count(zone) for before, zone in zip((3, 1, 2), zones, strict=True)]
    assert sum(counts) == 11
    assert max(counts) - min(counts) == 1


def test_user_data_too_large_launches_nothing(process):
    """Case 69: the claim fails with the field's name."""
    node_class = class_of(process.cloud, userData="#" * 33 * 1024)

    outcome = process.launch_one(claim_of("a"), node_class)

    assert isinstance(outcome, LaunchFailedError)
    assert "spec.userData" in str(outcome)
    assert not process.sent()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"condition": {"status": "False", "reason": "vSwitchesNotFound"}}, "vSwitchesNotFound"),
        ({"condition": {"observedGeneration": 1}, "generation": 2}, "has changed"),
        ({"tags": {"karpenter.sh/nodepool": "mine"}}, "karpenter.sh/nodepool"),
        ({"tags": {f"k{number}": "v" for number in range(14)}}, "14 keys"),
    ],
)
def test_a_class_that_is_not_ready_launches_nothing(process, options, said):
    """Case 70."""
    outcome = process.launch_one(claim_of("a"), class_of(process.cloud, **options))

    assert isinstance(outcome, NodeClassNotReadyError)
    assert said in str(outcome)
    assert not process.sent()


def test_an_unresolved_class_is_retried(process):
    """Ready Unknown is no verdict."""
    node_class = class_of(process.cloud, condition={"status": "Unknown"})

    outcome = process.launch_one(claim_of("a"), node_class)

    assert isinstance(outcome, LaunchFailedError)
    assert outcome.reason == "NodeClassReadinessUnknown"


def test_the_architecture_decides_the_image(process, node_class):
    """And the outcome names it."""
    outcome = process.launch_one(claim_of("a", ON_DEMAND, (ARCH, "arm64")), node_class)

    assert outcome.image_id == IMAGES["arm64"]
    assert process.launched(outcome).architecture == "arm64"


def test_calls_are_held_back_beyond_the_burst(cloud, clients, tmp_path, node_class):
    """Two calls a second, after one at once."""
    process = Process(cloud, clients, tmp_path, rate_per_second=2, burst=1)

    for name in ("a", "b", "c"):
        process.launch_one(claim_of(name, ON_DEMAND, ONLY_LARGE), node_class)

    assert process.waited == [0.5, 1.0]


def test_claims_that_saw_another_version_of_a_node_class_have_calls_of_their_own(process):
    """Each is launched as the NodeClass was when the core handed the claim over."""
    old, new = (class_of(process.cloud, tags={"team": team}) for team in ("red", "blue"))
    new = new.model_copy(
        update={"metadata": new.metadata.model_copy(update={"resource_version": "2"})}
    )
    wish = (ON_DEMAND, ONLY_LARGE)

    outcomes = process.launcher.launch(
        [
            *process.requests(claim_of("a", *wish), node_class=old),
            *process.requests(claim_of("b", *wish), node_class=new),
        ]
    )

    assert [process.launched(each).tags["team"] for each in outcomes] == ["red", "blue"]


def test_a_launched_instance_and_its_node_count_once_for_balance(process):
    zones = sorted(process.cloud.world.vswitches)
    node_class = class_of(process.cloud, vSwitchSelectionPolicy="balanced")
    first = process.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE, in_zone(zones[1])), node_class)
    process.nodes = {
        "1": node_in(first.zone, first.provider_id.removeprefix("cn-hangzhou.i-")),
        **{
            f"{zone}-{number}": node_in(zone, f"{zone}-{number}")
            for zone in zones
            if zone != first.zone
            for number in range(2)
        },
    }

    second = process.launch_one(claim_of("b", ON_DEMAND, ONLY_LARGE), node_class)

    assert second.zone == first.zone


def test_an_on_demand_claim_takes_nothing_of_an_open_private_pool(running, node_class):
    """It is kept for what asks for it, and counted there."""
    pool = running.cloud.reservations.add(
        "kept", instance_type=LARGE, zone=ZONE_B, total=1, criteria="Open"
    )

    outcome = running.launch_one(claim_of("a", ON_DEMAND, ONLY_LARGE, in_zone(ZONE_B)), node_class)

    assert running.launched(outcome).reservation_id == ""
    assert running.cloud.reservations.left(pool) == 1


@pytest.mark.parametrize("wish", [SPOT, ON_DEMAND], ids=["spot", "on-demand"])
def test_a_spot_instance_is_terminated_when_it_is_taken_back(process, running, node_class, wish):
    """A stopped one would be paid for and never come back as a node."""
    for each in (process, running):
        each.launch_one(claim_of("group" if each is process else "run", wish), node_class)

    (group,), (run,) = process.sent(), running.sent(RUN)
    for sent in (group["LaunchConfiguration"], run):
        assert sent.get("SpotInterruptionBehavior") == ("Terminate" if wish is SPOT else None)
