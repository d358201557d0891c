"""Values of another type than the service's model says are no answer."""

from __future__ import annotations

import botocore.session
import pytest
from botocore.parsers import ResponseParserError

from karpenter_core.provider.kit.calls.retry_policy import RetryPolicy
from karpenter_provider_aws.answer_types import mistyped_values
from karpenter_provider_aws.api_calls import ApiCalls

SESSION = botocore.session.Session()


def found(service, operation, answer):
    model = SESSION.get_service_model(service).operation_model(operation)
    return list(mistyped_values(model.output_shape, answer))


@pytest.mark.parametrize(
    ("service", "operation", "answer", "paths"),
    [
        ("ssm", "GetParameter", {"Parameter": {"Value": "ami-1", "Version": 1}}, []),
        ("ssm", "GetParameter", {"Parameter": {"Value": True}}, ["Parameter.Value"]),
        ("ssm", "GetParameter", {"Parameter": {"Version": True}}, ["Parameter.Version"]),
        ("ssm", "GetParameter", {"Parameter": {"Version": "1"}}, ["Parameter.Version"]),
        ("ssm", "GetParameter", {"Parameter": "x"}, ["Parameter"]),
        ("ssm", "GetParameter", {}, []),
        ("eks", "DescribeCluster", {"cluster": {"tags": {"a": "b"}}}, []),
        ("eks", "DescribeCluster", {"cluster": {"tags": {"a": 1}}}, ["cluster.tags"]),
        ("eks", "DescribeCluster", {"cluster": {"tags": []}}, ["cluster.tags"]),
        (
            "eks",
            "DescribeCluster",
            {"cluster": {"resourcesVpcConfig": {"endpointPublicAccess": 1}}},
            ["cluster.resourcesVpcConfig.endpointPublicAccess"],
        ),
        ("pricing", "GetProducts", {"PriceList": ["{}", 3]}, ["PriceList"]),
        ("pricing", "GetProducts", {"PriceList": {}}, ["PriceList"]),
        ("cloudwatch", "GetMetricData", {"MetricDataResults": [{"Values": [1, 0.5]}]}, []),
        (
            "cloudwatch",
            "GetMetricData",
            {"MetricDataResults": [{"Values": [True, "x"]}]},
            ["MetricDataResults.Values"] * 2,
        ),
    ],
)
def test_values_of_another_type_are_found_by_their_path(service, operation, answer, paths):
    assert found(service, operation, answer) == paths


def test_an_answer_with_a_value_of_another_type_is_no_answer(clients, monkeypatch):
    """An SSM parameter that was a boolean was kept for a day, and each look at the images failed."""
    client, answers = (
        clients.ssm,
        iter([{"Parameter": {"Value": True}}, {"Parameter": {"Value": "a"}}]),
    )
    monkeypatch.setattr(type(client), "_make_api_call", lambda *_: next(answers))
    calls = ApiCalls(RetryPolicy(transient_attempts=1), observe=None, sleep=lambda _seconds: None)
    calls.apply_to(client, "ssm")

    with pytest.raises(
        ResponseParserError, match=r"Parameter\.Value in the answer of GetParameter"
    ):
        client.get_parameter(Name="/a")
    assert client.get_parameter(Name="/a")["Parameter"]["Value"] == "a"
