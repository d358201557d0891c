"""Tests faults of the simulated AWS, and its log."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, HTTPClientError

from karpenter_core.provider.kit.calls.failures import UncertainCallError
from karpenter_core.provider.kit.simulated.rates import SimulatedCallRate
from karpenter_provider_aws.sdk import ClientLimits, CloudClients
from karpenter_simulated_aws.testing import attempts
from karpenter_simulated_aws.throttling import AWS_RATES


def test_a_call_is_refused_as_often_as_was_said_and_retries_get_through(aws, clients):
    aws.fail("DescribeSubnets", code="RequestLimitExceeded", status=503, times=2)

    assert clients.ec2.describe_subnets()["Subnets"]
    assert [call.outcome for call in aws.calls.of("DescribeSubnets")] == [
        "RequestLimitExceeded",
        "RequestLimitExceeded",
        "ok",
    ]


def test_a_client_of_one_attempt_sees_the_first_refusal(aws, once):
    aws.fail("DescribeSubnets", code="RequestLimitExceeded", status=503, times=1)

    with pytest.raises(ClientError):
        once.ec2.describe_subnets()

    assert aws.calls.count("DescribeSubnets") == 1


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda c: c.ec2.describe_subnets(), "UnauthorizedOperation"),
        (lambda c: c.iam.list_instance_profiles(), "AccessDenied"),
        (lambda c: c.ssm.get_parameter(Name="/x"), "AccessDeniedException"),
        (lambda c: c.eks.describe_cluster(name="test"), "AccessDeniedException"),
        (lambda c: c.sqs.get_queue_url(QueueName="test"), "AccessDeniedException"),
    ],
)
def test_a_denial_is_worded_as_each_service_does(aws, clients, code, call, expected):
    with aws.deny("*"):
        assert code(lambda: call(clients)) == expected


def test_a_fault_can_be_for_some_parameters_alone(aws, clients, once, code):
    aws.fail(
        "DescribeSubnets",
        code="InternalError",
        times=None,
        where=lambda parameters: "SubnetIds" in parameters,
    )
    (subnet_id, *_) = aws.world.subnets.values()

    assert clients.ec2.describe_subnets()["Subnets"]
    refused = code(once.ec2.describe_subnets, SubnetIds=[subnet_id])
    assert refused == "InternalError"


def test_a_cloud_that_is_cut_off_does_nothing(aws, clients, once):
    with aws.cut_off(), pytest.raises(UncertainCallError):
        once.ec2.create_placement_group(GroupName="x", Strategy="spread")

    assert clients.ec2.describe_placement_groups()["PlacementGroups"] == []


def test_a_lost_reply_is_of_a_call_that_was_carried_out(aws, clients, once):
    with (
        aws.lose_replies("CreatePlacementGroup"),
        pytest.raises(UncertainCallError),
    ):
        once.ec2.create_placement_group(GroupName="x", Strategy="spread")

    assert len(clients.ec2.describe_placement_groups()["PlacementGroups"]) == 1


def test_a_cloud_without_an_answer_ends_at_the_callers_time_limit(aws, clients):
    impatient = CloudClients(limits=ClientLimits(read_seconds=0.2, retries=attempts(1)))
    with aws.fall_silent("DescribeSubnets"), pytest.raises(HTTPClientError):
        impatient.ec2.describe_subnets()
    impatient.close()

    assert clients.ec2.describe_subnets()["Subnets"]


def test_calls_are_throttled_by_buckets_that_fill_again(aws, once, code):
    aws.throttling.set({"ec2:DescribeSubnets": SimulatedCallRate(bucket=2, refill=0)})
    for _ in range(2):
        once.ec2.describe_subnets()

    assert code(once.ec2.describe_subnets) == "RequestLimitExceeded"
    assert once.ec2.describe_security_groups()["SecurityGroups"]

    aws.throttling.set({"ec2:DescribeSubnets": SimulatedCallRate(bucket=2, refill=1)})
    for _ in range(2):
        once.ec2.describe_subnets()
    aws.time.advance(2)

    assert once.ec2.describe_subnets()["Subnets"]


def test_terminations_take_a_token_for_each_instance(aws, launch, once, code):
    ids = launch.fleet("m5.large", count=3).ids
    aws.throttling.set({"ec2:TerminateInstances#instances": SimulatedCallRate(bucket=2, refill=0)})

    assert code(once.ec2.terminate_instances, InstanceIds=ids) == "RequestLimitExceeded"
    assert len(once.ec2.terminate_instances(InstanceIds=ids[:2])["TerminatingInstances"]) == 2


def test_each_action_of_a_pattern_has_a_bucket_of_its_own(aws, once, code):
    aws.throttling.set({**AWS_RATES, "ec2:Describe*": SimulatedCallRate(bucket=3, refill=0)})
    for _ in range(3):
        once.ec2.describe_subnets()

    assert code(once.ec2.describe_subnets) == "RequestLimitExceeded"
    assert once.ec2.describe_security_groups()["SecurityGroups"]


def test_a_reset_takes_everything_back(aws, launch, clients):
    launch.profile()
    launch.fleet("m5.large")
    clients.sqs.send_message(QueueUrl=aws.world.queue_url, MessageBody="left over")
    clients.ec2.create_tags(
        Resources=[aws.world.security_group_id], Tags=[{"Key": "a", "Value": "b"}]
    )
    aws.capacity.sell_out()
    aws.deny("*")
    aws.behaviour.pending_seconds = 1000

    aws.reset()

    assert aws.calls.all == ()
    assert aws.held().all == ()
    assert clients.iam.list_instance_profiles()["InstanceProfiles"] == []
    group = clients.ec2.describe_security_groups(GroupIds=[aws.world.security_group_id])
    assert [tag["Key"] for tag in group["SecurityGroups"][0]["Tags"]] == ["karpenter.sh/discovery"]
    answer = clients.sqs.receive_message(QueueUrl=aws.world.queue_url, WaitTimeSeconds=0)
    assert answer.get("Messages", []) == []
    assert launch.described(*launch.fleet("m5.large").ids)[0]["State"]["Name"] == "running"


def test_a_region_removed_by_another_test_is_built_again(aws, clients):
    from moto.ec2.models import ec2_backends

    ec2_backends.pop(aws.account.id)

    aws.reset()

    found = clients.ec2.describe_subnets(SubnetIds=list(aws.world.subnets.values()))["Subnets"]
    assert len(found) == 3


def test_dry_runs_are_marked_in_the_log(aws, clients, code):
    code(clients.ec2.describe_subnets, DryRun=True)

    (call,) = aws.calls.of("DescribeSubnets", outcome="DryRunOperation")
    assert call.dry_run
