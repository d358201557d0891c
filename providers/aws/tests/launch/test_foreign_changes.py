"""Changes by others to instances, tags and quotas, refusals by EC2, and their consequences."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import INSTANCE_TYPE, ZONE
from karpenter_core.errors import (
    InsufficientCapacityError,
    LaunchFailedError,
    TerminationRefusedError,
)
from karpenter_core.provider.contract import LaunchedInstance, TerminationStatus
from karpenter_core.provider.kit.simulated.pools import InstancePool
from karpenter_provider_aws.described_instances import parse_provider_id
from providers.aws.tests.launch.processes import (
    ON_DEMAND,
    SPOT,
    claim_of,
    launched_claim,
    node_class_of,
    node_of,
)

A, B = "us-east-1a", "us-east-1b"
M5 = (INSTANCE_TYPE, "m5.large")
EKS_NAME = "eks:eks-cluster-name"


def tags(aws, outcome):
    return dict(aws.instance(outcome.provider_id).tags)


def marked(process):
    offerings = process.unavailable_offerings.view(now=process.clock.now()).offerings
    return {(each.instance_type, each.zone, each.capacity_type) for each in offerings}


def test_foreign_tags_are_kept_when_ours_are_added(aws, process, node_class):
    claim = claim_of("web", ON_DEMAND)
    outcome = process.launch_one(claim, node_class)
    aws.tag(outcome.provider_id, {"Name": "theirs", "cost-center": "42"})

    process.tagger.sync(launched_claim(claim, outcome), node_of(outcome))

    found = tags(aws, outcome)
    assert (found["Name"], found["cost-center"]) == ("theirs", "42")
    assert found["karpenter.sh/nodeclaim"] == "web"


def test_a_tag_that_others_remove_is_added_again_once_it_was_read(aws, process, clock, node_class):
    claim = claim_of("web", ON_DEMAND)
    outcome = process.launch_one(claim, node_class)
    for _ in range(2):
        process.tagger.sync(launched_claim(claim, outcome), node_of(outcome))
    aws.untag(outcome.provider_id, "Name")
    clock.forward(seconds=301)

    process.instances.list()
    process.tagger.sync(launched_claim(claim, outcome), node_of(outcome))

    assert tags(aws, outcome)["Name"] == "ip-10-0-0-1"


def test_ownership_survives_removed_claim_tags(aws, process, make_process, node_class):
    """The claim's status names it."""
    claims = [claim_of(f"web-{number}", ON_DEMAND) for number in range(2)]
    outcomes = process.launch(*claims, node_class=node_class)
    for outcome in outcomes:
        gone = [key for key in tags(aws, outcome) if "nodeclaim" in key]
        aws.untag(outcome.provider_id, *gone)
    restarted = make_process()
    for claim, outcome in zip(claims, outcomes, strict=True):
        restarted.write_down(claim, outcome.provider_id)

    listed = {each.provider_id: each.token for each in restarted.instances.list().instances}

    assert listed == {o.provider_id: c.uid for c, o in zip(claims, outcomes, strict=True)}


def test_an_instance_without_the_cluster_tag_is_fetched_but_not_listed(
    aws, process, make_process, node_class
):
    """An instance that is not listed is not collected; the claim still finds what it names."""
    outcome = process.launch_one(claim_of("web", ON_DEMAND), node_class)
    aws.untag(outcome.provider_id, EKS_NAME)
    restarted = make_process()

    assert restarted.instances.list().instances == ()
    (found,) = restarted.instances.fetch([outcome.provider_id])
    assert found.provider_id == outcome.provider_id
    assert restarted.instances.terminate([outcome.provider_id]) == [TerminationStatus.STARTED]


def test_foreign_termination_protection_is_reported_until_removed(
    aws, clients, process, node_class
):
    outcome = process.launch_one(claim_of("kept", ON_DEMAND), node_class)
    _, instance_id = parse_provider_id(outcome.provider_id)
    protect = {"InstanceId": instance_id, "DisableApiTermination": {"Value": True}}
    clients.ec2.modify_instance_attribute(**protect)

    (refused,) = process.instances.terminate([outcome.provider_id])
    assert isinstance(refused, TerminationRefusedError)
    protect["DisableApiTermination"] = {"Value": False}
    clients.ec2.modify_instance_attribute(**protect)

    assert process.instances.terminate([outcome.provider_id]) == [TerminationStatus.STARTED]


@pytest.mark.parametrize(
    "wanted",
    [
        InstancePool(instance_type="m5.large", zone=A),
        InstancePool(zone=A),
        InstancePool(instance_type="m5.large"),
    ],
)
def test_a_shortage_of_one_type_or_zone_leaves_the_others_available(
    aws, process, node_class, wanted
):
    aws.capacity.limit(wanted, 0, code="InsufficientInstanceCapacity")
    both = (INSTANCE_TYPE, "m5.large", "m5.xlarge"), (ZONE, A, B)

    outcome = process.launch_one(claim_of("web", ON_DEMAND, *both), node_class)

    assert isinstance(outcome, LaunchedInstance)
    assert not wanted.holds(
        InstancePool(
            capacity_type="on-demand", instance_type=outcome.instance_type, zone=outcome.zone
        )
    )
    assert all(
        wanted.holds(InstancePool(instance_type=name, zone=zone))
        for name, zone, _ in marked(process)
    )
    assert {capacity_type for *_, capacity_type in marked(process)} == {"on-demand"}


def test_an_exhausted_spot_vcpu_quota_masks_spot_and_launches_on_demand(aws, process, node_class):
    aws.capacity.limit_spot_vcpus(1)

    refused = process.launch_one(claim_of("spot", SPOT, M5), node_class)

    assert isinstance(refused, InsufficientCapacityError)
    assert {key.capacity_type for key in refused.offerings} == {"spot"}
    assert isinstance(
        process.launch_one(claim_of("od", ON_DEMAND, M5), node_class), LaunchedInstance
    )


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"associatePublicIPAddress": True},
        {
            "networkInterfaces": [
                {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
            ]
        },
        {"ipPrefixCount": 2},
        {"amiFamily": "AL2"},
        {"amiFamily": "Bottlerocket"},
        {"amiFamily": "Windows2022"},
        {"amiFamily": "Custom", "userData": "#!/bin/bash"},
        {"instanceStorePolicy": "RAID0", "detailedMonitoring": True},
        {
            "blockDeviceMappings": [
                {
                    "deviceName": "/dev/xvda",
                    "ebs": {
                        "volumeType": "gp3",
                        "volumeSize": "100Gi",
                        "iops": 4000,
                        "throughput": 500,
                    },
                }
            ]
        },
    ],
)
def test_ec2_accepts_the_templates_of_a_node_class(aws, clients, process, spec):
    """Groups stand in the interfaces alone; volumes, devices and options are within the limits."""
    outcome = process.launch_one(
        claim_of("web", ON_DEMAND, M5), node_class_of(aws, clients, **spec)
    )

    assert isinstance(outcome, LaunchedInstance), outcome
    (call,) = aws.calls.of("CreateLaunchTemplate")
    data = call.parameters["LaunchTemplateData"]
    assert "SecurityGroupIds" not in data
    assert data["NetworkInterfaces"][0]["Groups"] == [aws.world.security_group_id]


@pytest.mark.parametrize(
    ("ebs", "said"),
    [
        ({"volumeType": "gp3", "volumeSize": "20Gi", "iops": 100_000}, "iops"),
        ({"volumeType": "gp2", "volumeSize": "20Gi", "throughput": 200}, "throughput"),
        ({"volumeType": "io2", "volumeSize": "20Gi"}, "iops must be specified"),
        ({"volumeType": "st1", "volumeSize": "20Gi"}, "volume size"),
    ],
)
def test_a_volume_that_ec2_refuses_fails_the_claim_and_marks_nothing(
    aws, clients, process, ebs, said
):
    devices = [{"deviceName": "/dev/xvda", "ebs": ebs}]

    outcome = process.launch_one(
        claim_of("web", ON_DEMAND, M5), node_class_of(aws, clients, blockDeviceMappings=devices)
    )

    assert isinstance(outcome, LaunchFailedError)
    assert said in str(outcome)
    assert marked(process) == set()
    assert aws.living() == []
