"""Tests the distinction of refused and unanswered calls."""

from __future__ import annotations

import pytest
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    ReadTimeoutError,
)
from botocore.parsers import ResponseParserError

from karpenter_core.errors import AuthError, CloudProviderError, ThrottledError
from karpenter_provider_aws.discovery.call_errors import core_errors_of, is_refusal, refusal_behind


def answered(code, status=400):
    error = {"Code": code, "Message": "m"}
    return ClientError(
        {"Error": error, "ResponseMetadata": {"HTTPStatusCode": status}}, "DescribeSubnets"
    )


@pytest.mark.parametrize(
    ("raised", "kind", "refusal"),
    [
        (answered("UnauthorizedOperation", 403), AuthError, True),
        (answered("ExpiredToken"), AuthError, True),
        (NoCredentialsError(), AuthError, True),
        (answered("InvalidParameterValue"), CloudProviderError, True),
        (ParamValidationError(report="Invalid length"), CloudProviderError, True),
        (answered("RequestLimitExceeded", 503), ThrottledError, False),
        (answered("InternalError", 500), CloudProviderError, False),
        (answered("Strange", 502), CloudProviderError, False),
        (EndpointConnectionError(endpoint_url="https://ec2"), CloudProviderError, False),
        (ReadTimeoutError(endpoint_url="https://ec2"), CloudProviderError, False),
        (ResponseParserError("a proxy's page"), CloudProviderError, False),
    ],
    ids=lambda value: str(value) if isinstance(value, Exception) else None,
)
def test_a_definite_aws_error_is_a_refusal(raised, kind, refusal):
    """All else may be answered another time; the call is named in any case."""
    with (
        pytest.raises(kind, match="ec2:DescribeSubnets") as caught,
        core_errors_of("ec2:DescribeSubnets"),
    ):
        raise raised
    assert is_refusal(caught.value) is refusal
    assert caught.value.__cause__ is raised


def test_an_error_that_is_not_of_aws_passes_through():
    """A mistake of ours is not the cloud's."""
    with pytest.raises(KeyError), core_errors_of("ec2:DescribeSubnets"):
        raise KeyError("Subnets")


def test_the_code_of_a_refusal_can_be_read():
    """And there is none where AWS has not answered."""
    with pytest.raises(CloudProviderError) as caught, core_errors_of("ec2:X"):
        raise answered("InvalidGroup.NotFound")
    failure = refusal_behind(caught.value)
    assert failure is not None
    assert failure.code == "InvalidGroup.NotFound"
    assert refusal_behind(CloudProviderError("x")) is None
