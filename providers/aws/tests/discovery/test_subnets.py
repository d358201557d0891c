"""Tests the selection of subnets (cases 109 and 110)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from botocore.stub import Stubber

from karpenter_core.errors import AuthError, CloudProviderError, ThrottledError
from karpenter_core.testing.builders import instance_type, offering
from karpenter_provider_aws.api.nodeclass import (
    EC2NodeClass,
    EC2NodeClassStatus,
    Subnet,
    SubnetTerm,
)
from karpenter_provider_aws.discovery.call_errors import is_refusal
from karpenter_provider_aws.discovery.queries import DescribeFilter
from karpenter_provider_aws.discovery.subnets import SubnetReader, least_pods, subnet_queries
from providers.aws.tests.discovery.moto_world import call_log, refused, unreachable


def term(**fields):
    return SubnetTerm(**fields)


def tagged(**tags):
    return term(tags=tags)


@pytest.fixture
def subnets(clients, clock):
    return SubnetReader(clients, clock, refresh_interval=timedelta(minutes=1))


@pytest.fixture
def network(clients):
    """Make a subnet with tags and return its id."""
    vpc = clients.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    made = []

    def make(zone="us-east-1a", size=24, **tags):
        third = len(made)
        made.append(zone)
        answer = clients.ec2.create_subnet(
            VpcId=vpc, CidrBlock=f"10.0.{third}.0/{size}", AvailabilityZone=zone
        )
        subnet_id = answer["Subnet"]["SubnetId"]
        if tags:
            clients.ec2.create_tags(
                Resources=[subnet_id],
                Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
            )
        return subnet_id

    return make


def ids(found):
    return [subnet.id for subnet in found.items]


def test_the_fields_of_a_term_hold_together_and_terms_are_alternatives():
    """Case 109: as queries."""
    together = subnet_queries([tagged(b="2", a="1")])
    apart = subnet_queries([tagged(a="1"), tagged(b="2")])

    assert [query.filters for query in together] == [
        (DescribeFilter("tag:a", ("1",)), DescribeFilter("tag:b", ("2",)))
    ]
    assert [query.filters for query in apart] == [
        (DescribeFilter("tag:a", ("1",)),),
        (DescribeFilter("tag:b", ("2",)),),
    ]


def test_ids_share_a_query_and_a_wildcard_queries_the_tag_key():
    """All ids in one call."""
    queries = subnet_queries([term(id="subnet-1"), tagged(team="*"), term(id="subnet-2")])

    assert [query.filters for query in queries] == [
        (DescribeFilter("tag-key", ("team",)),),
        (DescribeFilter("subnet-id", ("subnet-1", "subnet-2")),),
    ]


def test_subnets_match_all_tags_of_any_term(subnets, network):
    """Case 109: and what one set of terms found is not the answer to another."""
    both = network(a="1", b="2")
    only_a = network(a="1")
    only_b = network(b="2", zone="us-east-1b")
    network(c="3")

    assert ids(subnets.find([tagged(a="1", b="2")])) == [both]
    assert sorted(ids(subnets.find([tagged(a="1"), tagged(b="2")]))) == sorted(
        [both, only_a, only_b]
    )
    assert ids(subnets.find([tagged(b="*", a="1")])) == [both]


def test_subnets_with_most_addresses_come_first(subnets, network):
    """Then by id; each says its zone by name and id."""
    small = network(size=28, zone="us-east-1a")
    large = network(zone="us-east-1b")
    found = subnets.find([term(id=small), term(id=large)])

    assert [(s.id, s.zone, s.free_addresses) for s in found.items] == [
        (large, "us-east-1b", 251),
        (small, "us-east-1a", 11),
    ]
    assert all(subnet.zone_id.startswith("use1-az") for subnet in found.items)


def test_terms_that_find_nothing_are_named(subnets, network):
    """With field and value, whether or not others find something."""
    there = network(a="1")

    found = subnets.find([term(id=there), term(id="subnet-0gone"), tagged(team="web", env="*")])

    assert ids(found) == [there]
    assert found.absent == (
        'spec.subnetSelectorTerms[1].id "subnet-0gone"',
        "spec.subnetSelectorTerms[2].tags {env: *, team: web}",
    )


def test_security_groups_are_read_once_a_minute(subnets, network, clients, clock):
    """For every NodeClass."""
    network(a="1")
    with call_log(clients.ec2) as log:
        first = subnets.find([tagged(a="1")])
        clock.forward(seconds=59)
        assert subnets.find([tagged(a="1")]) == first
        assert len(log) == 1
        clock.forward(seconds=1)
        subnets.find([tagged(a="1")])
        assert len(log) == 2


def subnet_item(number):
    return {
        "SubnetId": f"subnet-{number}",
        "AvailabilityZone": "us-east-1a",
        "AvailabilityZoneId": "use1-az1",
        "AvailableIpAddressCount": number,
    }


def test_all_pages_count_and_an_empty_one_is_skipped(subnets, clients):
    """Case 110."""
    ask = {"Filters": [{"Name": "tag-key", "Values": ["a"]}], "MaxResults": 500}
    with Stubber(clients.ec2) as stub:
        for token, items, following in (
            (None, [subnet_item(1)], "two"),
            ("two", [], "three"),
            ("three", [subnet_item(2)], None),
        ):
            stub.add_response(
                "describe_subnets",
                {"Subnets": items, **({"NextToken": following} if following else {})},
                {**ask, **({"NextToken": token} if token else {})},
            )
        found = subnets.find([tagged(a="*")])
        stub.assert_no_pending_responses()

    assert ids(found) == ["subnet-2", "subnet-1"]


def test_a_missing_permission_names_the_call(subnets, clients):
    """It is a finding about the NodeClass."""
    denied = refused(clients.ec2, "DescribeSubnets", "UnauthorizedOperation", status=403)
    with denied, pytest.raises(AuthError, match="ec2:DescribeSubnets") as caught:
        subnets.find([tagged(a="1")])
    assert is_refusal(caught.value)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("RequestLimitExceeded", 503, ThrottledError),
        ("InternalError", 500, CloudProviderError),
        ("Unavailable", 503, CloudProviderError),
    ],
)
def test_an_aws_fault_is_no_finding(subnets, clients, code, status, kind):
    """Asked again, it may answer."""
    trouble = refused(clients.ec2, "DescribeSubnets", code, status=status)
    with trouble, pytest.raises(kind) as caught:
        subnets.find([tagged(a="1")])
    assert not is_refusal(caught.value)


def test_no_answer_is_no_finding(subnets, clients):
    """Errors are not cached: the next pass queries again."""
    with unreachable(clients.ec2), pytest.raises(CloudProviderError) as caught:
        subnets.find([tagged(a="1")])
    assert not is_refusal(caught.value)
    assert subnets.find([tagged(a="1")]).items == ()


def types(*pods_and_zones):
    return [
        instance_type(
            f"type-{pods}",
            pods=str(pods),
            offerings=[offering(zone, capacity_type, 1.0, available=available)],
        )
        for pods, zone, capacity_type, available in pods_and_zones
    ]


def test_a_launch_reserves_addresses_for_pods_of_the_smallest_type():
    """By zone, of what can be had of the capacity type."""
    offered = types(
        (29, "a", "spot", True),
        (8, "a", "spot", True),
        (4, "a", "spot", False),
        (2, "a", "on-demand", True),
        (58, "b", "spot", True),
    )

    assert least_pods(offered, "spot") == {"a": 8, "b": 58}


@pytest.mark.parametrize(("refresh_minutes", "valid_minutes"), [(1, 5), (10, 14)])
def test_a_count_of_addresses_outlives_the_time_between_readings(
    network, clients, clock, refresh_minutes, valid_minutes
):
    subnets = SubnetReader(clients, clock, refresh_interval=timedelta(minutes=refresh_minutes))
    large = network(size=27)
    subnets.find([term(id=large)])

    clock.forward(minutes=valid_minutes, seconds=-1)
    assert subnets.expected_addresses(large) == 27
    clock.forward(seconds=1)
    assert subnets.expected_addresses(large) == 0


def test_a_launch_uses_the_subnet_with_most_free_addresses(subnets, network, clients, clock):
    """Cases 106-108, from what EC2 says to what is given back."""
    small = network(size=28)
    large = network(size=27)
    found = subnets.find([term(id=small), term(id=large)])
    node_class = EC2NodeClass(
        status=EC2NodeClassStatus(
            subnets=tuple(Subnet(id=s.id, zone=s.zone, zone_id=s.zone_id) for s in found.items)
        )
    )
    offered = types((20, "us-east-1a", "spot", True))

    def next_launch():
        return subnets.zonal_subnets(
            node_class, instance_types=offered, capacity_type="spot", instances=1
        )

    first = next_launch()
    assert first.subnets["us-east-1a"].id == large
    assert next_launch().subnets["us-east-1a"].id == small
    subnets.restore(first)
    assert subnets.expected_addresses(large) == 27
    subnets.note_exhausted(large)
    assert subnets.expected_addresses(large) == 0

    clock.forward(minutes=1)
    subnets.find([term(id=small), term(id=large)])
    assert subnets.expected_addresses(large) == 27
    assert subnets.expected_addresses(small) == 11
