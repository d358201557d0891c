"""Tests the numbers of remaining requests."""

from __future__ import annotations

from karpenter_provider_azure.arm.client import remaining_requests


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


def test_an_unreadable_header_is_left_out():
    headers = {
        "x-ms-ratelimit-remaining-subscription-reads": "many",
        "x-ms-ratelimit-remaining-resource": ";,;5,a;,b;-1",
    }
    assert remaining_requests(headers) == {}
