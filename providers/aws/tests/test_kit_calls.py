"""The kit's call policy makes calls of boto3, whose own retries are off."""

from __future__ import annotations

import pytest

from karpenter_core.provider.kit.calls.caller import CloudCaller
from karpenter_core.provider.kit.calls.failures import (
    AttemptFailure,
    AttemptFailureKind,
    UncertainCallError,
)
from karpenter_provider_aws.codes import api_failure, is_server_fault, is_throttled


def classify(error):
    failure = api_failure(error)
    if failure is None:
        return AttemptFailure(kind=AttemptFailureKind.UNANSWERED, message=str(error))
    kind = AttemptFailureKind.REFUSED
    if is_throttled(failure.code):
        kind = AttemptFailureKind.THROTTLED
    elif is_server_fault(failure):
        kind = AttemptFailureKind.UNANSWERED
    return AttemptFailure(kind=kind, code=failure.code, message=failure.message)


@pytest.fixture
def results():
    return []


@pytest.fixture
def caller(results):
    return CloudCaller(
        classify, observe=lambda _action, code, _seconds: results.append(code), sleep=lambda _: None
    )


def test_a_throttled_call_of_boto3_is_made_again(aws, clients, caller, results):
    with aws.fail("DescribeSubnets", code="RequestLimitExceeded", status=503, times=2):
        answer = caller.call(
            clients.ec2_without_retries.describe_subnets,
            action="ec2:DescribeSubnets",
            repeatable=False,
        )

    assert answer["Subnets"]
    assert results == ["RequestLimitExceeded", "RequestLimitExceeded", "OK"]


def test_a_fault_of_aws_leaves_a_call_of_boto3_uncertain(aws, clients, caller, results):
    with (
        aws.fail("DescribeSubnets", code="InternalError", status=500, times=1),
        pytest.raises(UncertainCallError, match="InternalError"),
    ):
        caller.call(
            clients.ec2_without_retries.describe_subnets,
            action="ec2:DescribeSubnets",
            repeatable=False,
        )

    assert results == ["InternalError"]
