"""Security groups over the simulated cloud (section 4.1)."""

from __future__ import annotations

import pytest

from karpenter_provider_alibabacloud.api.nodeclass import SecurityGroupTerm
from karpenter_provider_alibabacloud.discovery.security_groups import security_group_queries
from providers.alibabacloud.tests.discovery.worlds import Readers


@pytest.fixture
def readers(cloud, clients):
    return Readers(cloud, clients)


def terms(*given):
    return [SecurityGroupTerm.model_validate(term) for term in given]


def test_groups_are_selected_by_id_name_and_tags(cloud, readers):
    world = cloud.world
    other = cloud.networks.add_security_group(world.vpc_id, name="web", kind="enterprise").id

    def listed(*given):
        return [group.id for group in readers.security_groups.find(terms(*given)).items]

    assert listed({"tags": dict(world.discovery)}) == [world.security_group_id]
    assert listed({"name": "web"}) == [other]
    assert listed({"id": world.security_group_id}, {"id": other}, {"name": "web"}) == sorted(
        [world.security_group_id, other]
    )


def test_a_term_with_an_id_asks_for_nothing_else():
    """Admission refuses other fields beside an id; objects stored before may have them."""
    term = SecurityGroupTerm.model_construct(id="sg-1", name="web", tags={"team": "web"})
    (query,) = security_group_queries([term])
    assert query.parameters == (("SecurityGroupIds", '["sg-1"]'),)


def test_ids_share_a_call_and_those_that_are_not_there_are_named(cloud, readers):
    id_ = cloud.world.security_group_id

    answer = readers.security_groups.find(terms({"id": "sg-none"}, {"id": id_}, {"id": "sg-gone"}))

    assert [group.id for group in answer.items] == [id_]
    assert answer.absent == (
        'spec.securityGroupSelectorTerms[0] id "sg-none"',
        'spec.securityGroupSelectorTerms[2] id "sg-gone"',
    )
    assert cloud.calls.count("DescribeSecurityGroups") == 1


def test_more_groups_than_a_page_holds_are_read(cloud, readers):
    for number in range(130):
        cloud.networks.add_security_group(
            cloud.world.vpc_id, name=f"web-{number}", tags={"team": "web"}
        )

    answer = readers.security_groups.find(terms({"tags": {"team": "web"}}))

    assert len(answer.items) == 130
    assert cloud.calls.count("DescribeSecurityGroups") == 2
    readers.security_groups.find(terms({"tags": {"team": "web"}}))
    assert cloud.calls.count("DescribeSecurityGroups") == 2
