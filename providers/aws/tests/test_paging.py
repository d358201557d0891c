"""Listings that go in a circle end with an error, never as a short list."""

from __future__ import annotations

import boto3
import pytest
from botocore.stub import Stubber

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.calls.pages import EndlessListingError
from karpenter_provider_aws.discovery.call_errors import core_errors_of
from karpenter_provider_aws.paging import ending_pages


def subnets(*tokens):
    """Return the ids of a listing whose pages name these tokens."""
    client = boto3.client(
        "ec2",
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    with Stubber(client) as stubber:
        for number, token in enumerate(tokens):
            page = {"Subnets": [{"SubnetId": f"subnet-{number}"}]}
            stubber.add_response("describe_subnets", page | ({"NextToken": token} if token else {}))
        pages = client.get_paginator("describe_subnets").paginate()
        return [item["SubnetId"] for page in ending_pages(pages) for item in page["Subnets"]]


def test_a_listing_that_ends_is_read_whole():
    assert subnets("a", "b", "c", None) == ["subnet-0", "subnet-1", "subnet-2", "subnet-3"]


@pytest.mark.parametrize("tokens", ["aa", "abab", "abca"])
def test_a_listing_whose_tokens_come_again_is_an_error(tokens):
    """The SDK itself notices only a token that comes twice in a row."""
    with (
        pytest.raises(CloudProviderError, match="ec2:DescribeSubnets: the listing repeats"),
        core_errors_of("ec2:DescribeSubnets"),
    ):
        subnets(*tokens, *tokens, None)


def test_a_listing_without_end_is_an_error(monkeypatch):
    monkeypatch.setattr("karpenter_core.provider.kit.calls.pages.MOST_PAGES", 3)
    with pytest.raises(EndlessListingError, match="does not end"):
        subnets("a", "b", "c", "d", None)


@pytest.mark.parametrize("tokens", [["m", "n", "m"]])
def test_the_markers_of_iam_are_followed_too(tokens):
    pages = [{"InstanceProfiles": [], "Marker": token} for token in tokens]
    with pytest.raises(EndlessListingError, match="'m' came twice"):
        list(ending_pages(pages))
