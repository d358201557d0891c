"""Instances of the simulated AWS: states over time, listings, tags, checks, messages, the dump."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from karpenter_simulated_aws.instances import SimulatedInstanceState


def _states(launch, *ids):
    return [each["State"]["Name"] for each in launch.described(*ids)]


def test_an_instance_is_pending_then_running_then_shutting_down_then_terminated(
    aws, launch, clients
):
    aws.behaviour.pending_seconds = 20
    aws.behaviour.terminating_seconds = 30
    (instance_id,) = launch.fleet("m5.large").ids
    seen = _states(launch, instance_id)
    aws.time.advance(21)
    seen += _states(launch, instance_id)
    clients.ec2.terminate_instances(InstanceIds=[instance_id])
    seen += _states(launch, instance_id)
    aws.time.advance(31)
    seen += _states(launch, instance_id)

    assert seen == ["pending", "running", "shutting-down", "terminated"]


def test_a_terminated_instance_is_forgotten_after_an_hour(aws, launch, clients, code):
    (instance_id,) = launch.fleet("m5.large").ids
    clients.ec2.terminate_instances(InstanceIds=[instance_id])
    aws.time.advance(3601)

    refused = code(clients.ec2.describe_instances, InstanceIds=[instance_id])

    assert refused == "InvalidInstanceID.NotFound"


def test_a_new_instance_is_not_described_at_once_where_consistency_is_eventual(
    aws, launch, clients, code
):
    aws.behaviour.invisible_seconds = 5
    (instance_id,) = launch.fleet("m5.large").ids
    assert clients.ec2.describe_instances()["Reservations"] == []

    aws.time.advance(6)

    assert _states(launch, instance_id) == ["running"]


def test_one_unknown_id_terminates_nothing(aws, launch, clients, code):
    (instance_id,) = launch.fleet("m5.large").ids

    refused = code(
        clients.ec2.terminate_instances, InstanceIds=[instance_id, "i-00000000000000000"]
    )

    assert refused == "InvalidInstanceID.NotFound"
    assert _states(launch, instance_id) == ["running"]


def test_instances_are_listed_in_pages(launch, clients):
    ids = launch.fleet("m5.large", count=12).ids
    pages = list(
        clients.ec2.get_paginator("describe_instances").paginate(
            Filters=[{"Name": "tag-key", "Values": ["kubernetes.io/cluster/*"]}],
            PaginationConfig={"PageSize": 5},
        )
    )
    listed = [i["InstanceId"] for p in pages for r in p["Reservations"] for i in r["Instances"]]

    assert len(pages) == 3
    assert sorted(listed) == sorted(ids)


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("tag:team", "we*", 1),
        ("tag:team", "none", 0),
        ("tag:team", "*ebsit*", 1),
        ("instance-state-name", "running", 2),
        ("instance-state-name", "terminated", 0),
        ("instance-type", "c5.*", 1),
    ],
)
def test_filters_take_wildcards(launch, clients, name, value, found):
    launch.fleet("m5.large", tags=[{"Key": "team", "Value": "website"}])
    launch.fleet("c5.large")
    answer = clients.ec2.describe_instances(Filters=[{"Name": name, "Values": [value]}])

    assert sum(len(each["Instances"]) for each in answer["Reservations"]) == found


@pytest.mark.parametrize("name", ["colour", "tag-value"])
def test_a_filter_that_is_not_documented_is_refused(launch, clients, code, name):
    launch.fleet("m5.large")
    refused = code(clients.ec2.describe_instances, Filters=[{"Name": name, "Values": ["red"]}])

    assert refused == "InvalidParameterValue"


def test_tags_are_put_on_and_taken_off(launch, clients):
    (instance_id,) = launch.fleet("m5.large").ids
    clients.ec2.create_tags(Resources=[instance_id], Tags=[{"Key": "Name", "Value": "node"}])
    tags = {tag["Key"]: tag["Value"] for tag in launch.described(instance_id)[0]["Tags"]}
    clients.ec2.delete_tags(Resources=[instance_id], Tags=[{"Key": "Name"}])
    left = {tag["Key"] for tag in launch.described(instance_id)[0]["Tags"]}

    assert tags["Name"] == "node"
    assert "Name" not in left


def test_tagging_an_instance_that_is_not_there_is_refused(clients, code):
    refused = code(
        clients.ec2.create_tags,
        Resources=["i-00000000000000000"],
        Tags=[{"Key": "Name", "Value": "node"}],
    )

    assert refused == "InvalidInstanceID.NotFound"


def test_status_is_filtered_by_checks_and_events(aws, launch, clients):
    sound, impaired, retired = launch.fleet("m5.large", count=3).ids
    aws.impair(impaired, "system", since=datetime(2026, 1, 1, tzinfo=UTC))
    aws.schedule_event(retired, "instance-retirement")

    def found(name, value):
        answer = clients.ec2.describe_instance_status(Filters=[{"Name": name, "Values": [value]}])
        return [each["InstanceId"] for each in answer["InstanceStatuses"]]

    assert found("system-status.status", "impaired") == [impaired]
    assert found("instance-status.status", "impaired") == []
    assert found("event.code", "instance-retirement") == [retired]
    assert sound in found("system-status.status", "ok")


def _messages(aws, clients):
    answer = clients.sqs.receive_message(
        QueueUrl=aws.world.queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=0
    )
    return [json.loads(each["Body"]) for each in answer.get("Messages", ())]


def test_reclaiming_a_spot_instance_warns_first_and_takes_it_after_the_notice(aws, launch, clients):
    (instance_id,) = launch.fleet("m5.large", target="spot").ids
    aws.reclaim(instance_id)
    (message,) = _messages(aws, clients)
    before = _states(launch, instance_id)
    aws.time.advance(121)

    assert (message["source"], message["detail-type"], message["version"]) == (
        "aws.ec2",
        "EC2 Spot Instance Interruption Warning",
        "0",
    )
    assert message["detail"]["instance-id"] == instance_id
    assert before == ["running"]
    assert _states(launch, instance_id) == ["terminated"]


def test_changes_of_state_are_announced_where_that_is_switched_on(aws, launch, clients):
    (quiet,) = launch.fleet("m5.large").ids
    aws.behaviour.announce_states = True
    clients.ec2.terminate_instances(InstanceIds=[quiet])

    states = [each["detail"]["state"] for each in _messages(aws, clients)]

    assert sorted(states) == ["shutting-down", "terminated"]


def test_health_rebalance_and_reservation_events_have_their_own_shapes(aws, launch, clients):
    (instance_id,) = launch.fleet("m5.large", target="spot").ids
    instance = aws.instance(instance_id)
    aws.messages.rebalance(instance)
    aws.messages.reservation_interruption(instance)
    aws.messages.state_change(instance, SimulatedInstanceState.STOPPING)
    aws.messages.scheduled_change([instance], starts_at=datetime(2026, 1, 1, tzinfo=UTC))
    messages = {each["detail-type"]: each for each in _messages(aws, clients)}

    assert set(messages) == {
        "EC2 Instance Rebalance Recommendation",
        "EC2 Capacity Reservation Instance Interruption Warning",
        "EC2 Instance State-change Notification",
        "AWS Health Event",
    }
    health = messages["AWS Health Event"]
    assert health["source"] == "aws.health"
    assert health["detail"]["affectedEntities"] == [{"entityValue": instance_id}]


def test_the_dump_holds_resources_of_this_cluster_only(aws, launch, clients):
    profile = "nodes"
    clients.iam.create_instance_profile(
        InstanceProfileName=profile,
        Tags=[{"Key": "kubernetes.io/cluster/test", "Value": "owned"}],
    )
    fleet = launch.fleet("m5.large")
    foreign = aws.launch_foreign()
    held = aws.held()

    assert held.instances == fleet.ids
    assert held.launch_templates == ["karpenter.k8s.aws/nodes"]
    assert held.instance_profiles == [profile]
    assert held.fleets == [fleet.answer["FleetId"]]
    assert foreign.rpartition("/")[2] in aws.held("other").instances

    clients.ec2.terminate_instances(InstanceIds=fleet.ids)
    clients.ec2.delete_launch_template(LaunchTemplateName="karpenter.k8s.aws/nodes")
    clients.iam.delete_instance_profile(InstanceProfileName=profile)

    assert aws.held().all == ()
