"""The kit's call policy makes all calls of boto3's clients, which make one attempt each."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import botocore.session
import pytest
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
)
from botocore.parsers import ResponseParserError
from botocore.retries.standard import ThrottledRetryableChecker, TransientRetryableChecker

from karpenter_core.errors import CloudProviderError, ThrottledError
from karpenter_core.provider.kit.calls.failures import AttemptFailureKind, UncertainCallError
from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from karpenter_provider_aws.api_calls import ApiCalls, attempt_failure, is_repeatable
from karpenter_provider_aws.codes import is_throttled, is_timeout
from karpenter_provider_aws.discovery.call_errors import core_errors_of, refusal_behind
from providers.aws.tests.given_answers import PAGE, answering
from providers.aws.tests.test_permissions import called

THROTTLED, UNANSWERED, IN_PROGRESS, DENIED, REFUSED = AttemptFailureKind


def answered(code, status=400, headers=()):
    return ClientError(
        {
            "Error": {"Code": code, "Message": "m"},
            "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": dict(headers)},
        },
        "DescribeSubnets",
    )


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (answered("RequestLimitExceeded", 503), THROTTLED),
        (answered("ThrottlingException"), THROTTLED),
        (answered("TooManyRequests", 429), THROTTLED),
        (answered("InternalError", 500), UNANSWERED),
        (answered("Strange", 502), UNANSWERED),
        (answered("RequestTimeout"), UNANSWERED),
        (EndpointConnectionError(endpoint_url="https://ec2"), UNANSWERED),
        (ReadTimeoutError(endpoint_url="https://ec2"), UNANSWERED),
        (ResponseParserError("a proxy's page"), UNANSWERED),
        (answered("InsufficientInstanceCapacity", 500), REFUSED),
        (answered("DryRunOperation", 412), REFUSED),
        (answered("InvalidParameterValue"), REFUSED),
        (ParamValidationError(report="Invalid length"), REFUSED),
        (NoCredentialsError(), REFUSED),
        (answered("UnauthorizedOperation", 403), DENIED),
    ],
    ids=str,
)
def test_failures_say_whether_the_attempt_was_carried_out(error, kind):
    failure = attempt_failure(error)

    assert failure is not None
    assert failure.kind is kind


def test_a_mistake_of_ours_is_no_failed_call():
    assert attempt_failure(KeyError("Subnets")) is None


def test_retry_after_of_a_service_is_read():
    failure = attempt_failure(answered("ThrottlingException", 429, {"retry-after": "7"}))

    assert failure is not None
    assert failure.retry_after == timedelta(seconds=7)


def test_every_code_that_the_sdk_would_retry_is_classified():
    of_other_services = {"ProvisionedThroughputExceededException"}  # DynamoDB
    throttled = set(ThrottledRetryableChecker._THROTTLED_ERROR_CODES) - of_other_services
    transient = set(TransientRetryableChecker._TRANSIENT_ERROR_CODES)

    assert [code for code in throttled if not is_throttled(code)] == []
    assert [code for code in transient if not (is_timeout(code) or is_throttled(code))] == []


def test_every_call_of_the_provider_can_be_repeated():
    """One that is added must be thought about: else a lost reply makes it uncertain."""
    session = botocore.session.get_session()
    models = {name: session.get_service_model(name) for name in {c.split(":")[0] for c in called()}}

    def has_token(action):
        service, operation = action.split(":")
        return bool(models[service].operation_model(operation).idempotent_members)

    assert [c for c in called() if not is_repeatable(c, {}, has_token=has_token(c))] == []
    assert not is_repeatable("ec2:CreatePlacementGroup", {}, has_token=False)
    assert is_repeatable("ec2:CreatePlacementGroup", {"DryRun": True}, has_token=False)


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "Throttling", "SlowDown"])
def test_a_throttled_write_is_made_again(aws, clients, code):
    with aws.fail("CreatePlacementGroup", code=code, status=503, times=2):
        clients.ec2.create_placement_group(GroupName="x", Strategy="spread")

    outcomes = [call.outcome for call in aws.calls.of("CreatePlacementGroup")]
    assert outcomes == [code, code, "ok"]


def test_a_lost_reply_of_a_write_is_uncertain_and_not_made_again(aws, clients):
    with (
        aws.lose_replies("CreatePlacementGroup"),
        pytest.raises(UncertainCallError, match="may have been carried out"),
    ):
        clients.ec2.create_placement_group(GroupName="x", Strategy="spread")

    assert aws.calls.count("CreatePlacementGroup") == 1


def test_a_fault_of_aws_repeats_a_read_and_an_idempotent_write(aws, clients):
    resource = aws.world.security_group_id
    with aws.fail("*", code="InternalError", status=500, times=1):
        clients.ec2.create_tags(Resources=[resource], Tags=[{"Key": "a", "Value": "b"}])
    with aws.fail("*", code="InternalError", status=500, times=2):
        assert clients.ec2.describe_subnets()["Subnets"]

    assert aws.calls.count("CreateTags") == 2
    assert aws.calls.count("DescribeSubnets") == 3


def test_the_refusal_of_a_repeated_write_is_uncertain_and_keeps_its_code(aws, clients):
    """The lost attempt deleted it: whoever asks for the code sees that it is gone."""
    clients.ec2.create_launch_template(
        LaunchTemplateName="gone", LaunchTemplateData={"InstanceType": "m5.large"}
    )
    with (
        aws.lose_replies("DeleteLaunchTemplate"),
        pytest.raises(UncertainCallError) as caught,
    ):
        clients.ec2.delete_launch_template(LaunchTemplateName="gone")

    failure = refusal_behind(caught.value)
    assert failure is not None
    assert failure.code == "InvalidLaunchTemplateName.NotFoundException"


def test_the_attempts_of_a_call_have_one_token(aws, clients):
    """The SDK alone would give each attempt a token of its own, and it would be another call."""
    with aws.fail("CreateLaunchTemplate", code="InternalError", status=500, times=1):
        clients.ec2.create_launch_template(
            LaunchTemplateName="named", LaunchTemplateData={"InstanceType": "m5.large"}
        )

    tokens = [call.parameters["ClientToken"] for call in aws.calls.of("CreateLaunchTemplate")]
    assert len(tokens) == 2
    assert tokens[0] == tokens[1]


def test_a_page_that_no_service_has_sent_is_no_answer(aws, clients):
    """botocore reads any well-formed XML as an answer, in which everything is missing."""
    with answering(aws, "DescribeSubnets", PAGE, times=1):
        assert clients.ec2.describe_subnets()["Subnets"]
    with (
        answering(aws, "DescribeSubnets", PAGE),
        pytest.raises(CloudProviderError, match="has nothing that DescribeSubnets answers"),
        core_errors_of("ec2:DescribeSubnets"),
    ):
        clients.ec2.describe_subnets()
    assert aws.calls.count("DescribeSubnets") == 2 + 3


@pytest.mark.parametrize("number", ["", "many", "9" * 5_000])
def test_a_number_that_cannot_be_read_is_no_answer(aws, clients, number):
    """botocore raises a ValueError, which is no failure of a call that anybody expects."""
    listed = (
        "<subnetSet><item><availableIpAddressCount>%s</availableIpAddressCount></item></subnetSet>"
    )
    body = f"<DescribeSubnetsResponse>{listed % number}</DescribeSubnetsResponse>".encode()
    with answering(aws, "DescribeSubnets", body, times=1):
        assert clients.ec2.describe_subnets()["Subnets"]
    with (
        answering(aws, "DescribeSubnets", body),
        pytest.raises(CloudProviderError, match="the answer of DescribeSubnets cannot be read"),
        core_errors_of("ec2:DescribeSubnets"),
    ):
        clients.ec2.describe_subnets()


@pytest.mark.parametrize(
    ("service", "operation", "request_of"),
    [("ssm", "get_parameter", {"Name": "/a"}), ("eks", "describe_cluster", {"name": "a"})],
)
def test_an_empty_object_is_no_answer(service, operation, request_of, aws, clients, monkeypatch):
    client = getattr(clients, service)
    monkeypatch.setattr(type(client), "_make_api_call", lambda *_: {"ResponseMetadata": {}})
    calls = ApiCalls(RetryPolicy(), observe=None, sleep=lambda _seconds: None)
    calls.apply_to(client, service)
    with pytest.raises(ResponseParserError):
        getattr(client, operation)(**request_of)


def test_a_queue_without_messages_has_answered(aws, clients, monkeypatch):
    client = clients.sqs
    monkeypatch.setattr(type(client), "_make_api_call", lambda *_: {"ResponseMetadata": {}})
    ApiCalls(RetryPolicy(), observe=None).apply_to(client, "sqs")

    assert "Messages" not in client.receive_message(QueueUrl="https://queue")


def test_each_page_of_a_listing_is_a_call_of_its_own(aws, clients):
    with aws.fail(
        "DescribeInstanceTypes",
        code="RequestLimitExceeded",
        status=503,
        times=1,
        where=lambda parameters: "NextToken" in parameters,
    ):
        pages = list(clients.ec2.get_paginator("describe_instance_types").paginate())

    assert len(pages) > 1
    assert aws.calls.count("DescribeInstanceTypes") == len(pages) + 1


def test_a_launch_without_an_answer_is_left_to_the_launch_state_machine(aws, clients):
    request = {
        "LaunchTemplateConfigs": [],
        "TargetCapacitySpecification": {"TotalTargetCapacity": 1},
        "Type": "instant",
    }
    with (
        aws.fail("CreateFleet", code="InternalError", status=500, times=None),
        pytest.raises(UncertainCallError),
    ):
        clients.ec2.create_fleet(**request)
    with (
        aws.fail("CreateFleet", code="RequestLimitExceeded", status=503, times=None),
        pytest.raises(ThrottledError),
        core_errors_of("ec2:CreateFleet"),
    ):
        clients.ec2.create_fleet(**request)

    outcomes = [call.outcome for call in aws.calls.of("CreateFleet")]
    assert outcomes == ["InternalError"] + ["RequestLimitExceeded"] * 3


class VirtualTime:
    """A monotonic clock that sleeping moves on."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def time():
    return VirtualTime()


@pytest.fixture
def slowed(aws, once, time):
    """A client whose `DescribeSubnets` was refused by EC2 just now."""
    calls = ApiCalls(RetryPolicy(), sleep=time.sleep, monotonic=time.monotonic, observe=None)
    client = once.ec2
    calls.apply_to(client, "ec2")
    with aws.fail("DescribeSubnets", code="RequestLimitExceeded", status=503, times=1):
        client.describe_subnets()
    return client


def test_calls_of_a_throttled_action_take_turns_and_others_do_not(slowed, time):
    before = time.now
    for _ in range(5):
        slowed.describe_security_groups()
    assert time.now == before
    for _ in range(5):
        slowed.describe_subnets()
    assert 0.3 < time.now - before < 0.6


def test_an_action_that_names_a_wait_is_paused_for_all(slowed, time, monkeypatch):
    attempts = []

    def refuse(_client, operation, _request):
        attempts.append(operation)
        raise answered("ThrottlingException", 429, {"retry-after": "60"})

    monkeypatch.setattr(type(slowed), "_make_api_call", refuse)
    calls = ApiCalls(RetryPolicy(), sleep=time.sleep, monotonic=time.monotonic, observe=None)
    calls.apply_to(slowed, "ec2")
    for _ in range(3):
        with pytest.raises(ThrottledError) as caught, core_errors_of("ec2:DescribeSubnets"):
            slowed.describe_subnets()

    assert attempts == ["DescribeSubnets"]
    assert caught.value.retry_after == timedelta(seconds=60)


def test_a_call_that_was_not_sent_is_not_observed(slowed, time, monkeypatch):
    """Its operation is paused: the error tells so, and nothing took part in a call of AWS."""
    observed = []
    observer = SimpleNamespace(
        note_attempt=lambda *_: observed.append("attempt"),
        note_call=lambda *_, retries: observed.append(("call", retries)),
    )

    def refuse(_client, _operation, _request):
        raise answered("ThrottlingException", 429, {"retry-after": "60"})

    monkeypatch.setattr(type(slowed), "_make_api_call", refuse)
    calls = ApiCalls(RetryPolicy(), sleep=time.sleep, monotonic=time.monotonic, observe=observer)
    calls.apply_to(slowed, "ec2")
    for _ in range(2):
        with pytest.raises(ThrottledError), core_errors_of("ec2:DescribeSubnets"):
            slowed.describe_subnets()

    assert observed == ["attempt", ("call", 0)]
