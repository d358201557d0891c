"""Tests the selection of placement groups, with stubbed answers."""

from __future__ import annotations

import pytest
from botocore.stub import Stubber

from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_provider_aws.api.nodeclass import PlacementGroupSelector
from karpenter_provider_aws.discovery.placement_groups import (
    DescribedPlacementGroup,
    PlacementGroupReader,
)
from providers.aws.tests.discovery.moto_world import unreachable

BY_NAME = PlacementGroupSelector(name="racks")
BY_ID = PlacementGroupSelector(id="pg-0abc")
AVAILABLE = [{"Name": "state", "Values": ["available"]}]
ITEM = {
    "GroupId": "pg-0abc",
    "GroupName": "racks",
    "Strategy": "partition",
    "PartitionCount": 3,
    "State": "available",
}
GROUP = DescribedPlacementGroup(
    id="pg-0abc", name="racks", strategy="partition", partitions=3, spread_level=""
)


@pytest.fixture
def groups(clients, clock):
    return PlacementGroupReader(clients, clock)


@pytest.fixture
def stub(clients):
    with Stubber(clients.ec2) as stub:
        yield stub


def describe(stub, *items, **asked):
    stub.add_response(
        "describe_placement_groups",
        {"PlacementGroups": list(items)},
        {"Filters": AVAILABLE, **asked},
    )


def test_no_selector_means_no_group(groups):
    """And no call."""
    assert groups.find(None) is None
    assert groups.last_good(None) is None


@pytest.mark.parametrize(
    ("selector", "asked"),
    [(BY_NAME, {"GroupNames": ["racks"]}), (BY_ID, {"GroupIds": ["pg-0abc"]})],
)
def test_a_group_is_discovered_by_name_or_id_and_cached_for_a_minute(
    groups, stub, clock, selector, asked
):
    """With its strategy and partitions."""
    describe(stub, ITEM, **asked)
    assert groups.find(selector) == GROUP
    clock.forward(seconds=59)
    assert groups.find(selector) == GROUP

    describe(stub, **asked)
    clock.forward(seconds=1)
    assert groups.find(selector) is None
    stub.assert_no_pending_responses()


@pytest.mark.parametrize(
    "code", ["InvalidPlacementGroup.Unknown", "InvalidPlacementGroupId.Unknown"]
)
def test_a_placement_group_that_does_not_exist_is_not_found(groups, stub, code):
    """It refuses names that do not exist."""
    stub.add_client_error("describe_placement_groups", code, http_status_code=400)
    assert groups.find(BY_NAME) is None


def test_an_ec2_outage_keeps_the_last_group_for_a_day(groups, stub, clients, clock):
    """A caller that needs the current answer gets the error."""
    describe(stub, ITEM, GroupNames=["racks"])
    groups.find(BY_NAME)
    stub.deactivate()
    clock.forward(hours=23, minutes=59)
    with unreachable(clients.ec2):
        with pytest.raises(CloudProviderError):
            groups.find(BY_NAME)
        assert groups.last_good(BY_NAME) == groups.found_or_last(BY_NAME) == GROUP
        clock.forward(minutes=1)
        with pytest.raises(CloudProviderError):
            groups.found_or_last(BY_NAME)


def test_a_missing_permission_is_an_error(groups, stub):
    """It says nothing about the group."""
    stub.add_client_error(
        "describe_placement_groups", "UnauthorizedOperation", http_status_code=403
    )
    with pytest.raises(AuthError, match="ec2:DescribePlacementGroups"):
        groups.find(BY_ID)
