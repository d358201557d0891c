"""Tests the numbers of remaining requests."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from karpenter_provider_azure.arm.rate_headers import remaining_requests
from karpenter_provider_azure.arm.remaining_metrics import RemainingRequestMetrics

NAME = "karpenter_azure_api_requests_remaining"


def test_limits_of_subscription_provider_and_graph_are_read():
    headers = {
        "x-ms-ratelimit-remaining-subscription-reads": "11999",
        "x-ms-ratelimit-remaining-subscription-global-reads": "179999",
        "x-ms-ratelimit-remaining-resource": (
            "Microsoft.Compute/PutVM3Min;239, Microsoft.Compute/PutVM30Min;1199"
        ),
        "x-ms-user-quota-remaining": "14",
        "x-ms-request-id": "7",
    }
    assert remaining_requests(headers) == {
        "subscription-reads": 11999,
        "subscription-global-reads": 179999,
        "Microsoft.Compute/PutVM3Min": 239,
        "Microsoft.Compute/PutVM30Min": 1199,
        "graph": 14,
    }


def test_what_cannot_be_read_is_left_out():
    headers = {
        "x-ms-ratelimit-remaining-subscription-reads": "many",
        "x-ms-ratelimit-remaining-resource": ";,;5,a;,b;-1",
    }
    assert remaining_requests(headers) == {}


def test_the_metric_has_the_last_number_of_each_limit():
    registry = CollectorRegistry()
    metrics = RemainingRequestMetrics(registry)
    metrics.observe({"reads": 5, "writes": 3})
    metrics.observe({"reads": 4})
    assert registry.get_sample_value(NAME, {"limit": "reads"}) == 4
    assert registry.get_sample_value(NAME, {"limit": "writes"}) == 3
    metrics.close()
    RemainingRequestMetrics(registry).close()
