"""Tests the selection of security groups."""

from __future__ import annotations

import pytest

from karpenter_core.errors import AuthError
from karpenter_provider_aws.api.nodeclass import SecurityGroup, SecurityGroupTerm
from karpenter_provider_aws.discovery.queries import DescribeFilter
from karpenter_provider_aws.discovery.security_groups import (
    SecurityGroupReader,
    security_group_queries,
)
from providers.aws.tests.discovery.moto_world import call_log, refused


@pytest.fixture
def groups(clients, clock):
    return SecurityGroupReader(clients, clock)


@pytest.fixture
def make_group(clients):
    vpc = clients.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]

    def make(name, **tags):
        group_id = clients.ec2.create_security_group(GroupName=name, Description=name, VpcId=vpc)[
            "GroupId"
        ]
        if tags:
            clients.ec2.create_tags(
                Resources=[group_id], Tags=[{"Key": k, "Value": v} for k, v in tags.items()]
            )
        return group_id

    return make


def test_ids_and_names_have_one_query_each_and_tags_one_for_each_term():
    """However they are mixed."""
    terms = [
        SecurityGroupTerm(id="sg-1"),
        SecurityGroupTerm(tags={"a": "1", "b": "*"}),
        SecurityGroupTerm(name="nodes"),
        SecurityGroupTerm(id="sg-2"),
        SecurityGroupTerm(name="more-*"),
    ]

    assert [query.filters for query in security_group_queries(terms)] == [
        (DescribeFilter("tag:a", ("1",)), DescribeFilter("tag-key", ("b",))),
        (DescribeFilter("group-id", ("sg-1", "sg-2")),),
        (DescribeFilter("group-name", ("nodes", "more-*")),),
    ]


def test_groups_of_all_terms_are_unique_and_sorted_by_id(groups, make_group):
    """With its name."""
    by_id, by_name, by_tag = make_group("a"), make_group("web-nodes"), make_group("c", team="x")

    found = groups.find(
        [
            SecurityGroupTerm(id=by_id),
            SecurityGroupTerm(name="web-*"),
            SecurityGroupTerm(tags={"team": "x"}),
            SecurityGroupTerm(id=by_tag),
        ]
    )

    expected = {by_id: "a", by_name: "web-nodes", by_tag: "c"}
    assert found.items == tuple(
        SecurityGroup(id=key, name=expected[key]) for key in sorted(expected)
    )
    assert found.absent == ()


def test_a_group_that_was_deleted_is_named(groups, make_group, clients, clock):
    """Though others are still there."""
    stays, goes = make_group("stays"), make_group("goes")
    terms = [SecurityGroupTerm(id=stays), SecurityGroupTerm(id=goes)]
    assert len(groups.find(terms).items) == 2

    clients.ec2.delete_security_group(GroupId=goes)
    clock.forward(minutes=1)
    found = groups.find([*terms, SecurityGroupTerm(name="never-*")])

    assert [group.id for group in found.items] == [stays]
    assert found.absent == (
        f'spec.securityGroupSelectorTerms[1].id "{goes}"',
        'spec.securityGroupSelectorTerms[2].name "never-*"',
    )


def test_security_groups_are_read_once_a_minute(groups, make_group, clients, clock):
    """One call for each kind of term."""
    terms = [SecurityGroupTerm(id=make_group("a")), SecurityGroupTerm(name="a")]
    with call_log(clients.ec2) as log:
        groups.find(terms)
        clock.forward(seconds=59)
        groups.find(terms)
        assert len(log.of("DescribeSecurityGroups")) == 2


def test_a_missing_permission_names_the_call(groups, clients):
    """As a policy would."""
    with (
        refused(clients.ec2, "DescribeSecurityGroups", "UnauthorizedOperation", status=403),
        pytest.raises(AuthError) as caught,
    ):
        groups.find([SecurityGroupTerm(name="a")])
    assert caught.value.action == "ec2:DescribeSecurityGroups"
