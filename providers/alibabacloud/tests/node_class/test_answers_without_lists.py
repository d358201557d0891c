"""Answers that list nothing, not even an empty list: what a NodeClass has found stays."""

from __future__ import annotations

import pytest

from karpenter_core.errors import CloudProviderError
from karpenter_provider_alibabacloud.api.nodeclass import VSwitchTerm
from providers.alibabacloud.tests.discovery.worlds import node_class_of
from providers.alibabacloud.tests.given_answers import answering
from providers.alibabacloud.tests.node_class.conftest import said

PARTS = {
    "DescribeVSwitches": ("VSwitchesReady", "v_switches"),
    "DescribeSecurityGroups": ("SecurityGroupsReady", "security_groups"),
    "DescribeKubernetesVersionMetadata": ("ImagesReady", "images"),
    "DescribeCapacityReservations": ("CapacityReservationsReady", "capacity_reservations"),
}


@pytest.fixture
def node_class(process, cloud):
    """A NodeClass with all that it selects."""
    pool = cloud.reservations.add(
        "batch",
        instance_type="ecs.g7.large",
        zone=cloud.world.zones[0],
        total=2,
        tags={"team": "web"},
    )
    found = process.resolve(
        node_class_of(cloud, capacityReservationSelectorTerms=[{"tags": {"team": "web"}}])
    )
    assert [each.id for each in found.status.capacity_reservations] == [pool.id]
    assert said(found, "Ready")[0] == "True"
    process.later(hours=1)
    return found


@pytest.mark.parametrize("action", PARTS)
@pytest.mark.parametrize("answer", [{}, {"RequestId": "R-1"}, "sign in", None])
def test_a_part_whose_answer_has_no_list_stays_as_it_was(
    process, cloud, node_class, action, answer
):
    """The nodes of a part that is gone drift, or nothing is launched from the NodeClass."""
    condition, field = PARTS[action]
    with answering(cloud, action, answer):
        resolved = process.resolve(node_class)

    assert getattr(resolved.status, field) == getattr(node_class.status, field)
    assert said(resolved, condition)[0] == "True"
    assert said(resolved, "Ready")[0] == "True"


@pytest.mark.parametrize(
    "answer",
    [
        {"SecurityGroups": None},
        {"SecurityGroups": {}},
        {"SecurityGroups": []},
        {"SecurityGroups": {"SecurityGroup": None}},
        {"SecurityGroups": {"SecurityGroup": {}}},
        {"SecurityGroups": {"SecurityGroup": ["sg-1"]}},
    ],
)
def test_no_security_group_is_left_out_by_an_answer_without_a_list(process, cloud, answer):
    """One term of two that finds nothing would make all nodes drift."""
    world = cloud.world
    other = cloud.networks.add_security_group(world.vpc_id, name="web").id
    terms = [{"tags": dict(world.discovery)}, {"name": "web"}]
    node_class = process.resolve(node_class_of(cloud, securityGroupSelectorTerms=terms))
    process.later(minutes=2)

    with answering(
        cloud,
        "DescribeSecurityGroups",
        answer,
        when=lambda request: "SecurityGroupName" in request.query,
    ):
        resolved = process.resolve(node_class)

    groups = [group.id for group in resolved.status.security_groups]
    assert groups == sorted([world.security_group_id, other])


def test_a_later_page_without_a_list_does_not_end_the_listing(process, cloud):
    for number in range(60):
        cloud.networks.add_vswitch(
            cloud.world.vpc_id,
            zone=cloud.world.zones[0],
            cidr=f"10.1.{number}.0/24",
            tags={"team": "web"},
        )
    terms = [VSwitchTerm(tags={"team": "web"})]
    assert len(process.readers.vswitches.find(terms).items) == 60
    process.later(minutes=2)
    with (
        answering(
            cloud,
            "DescribeVSwitches",
            {"TotalCount": 60},
            when=lambda request: "PageNumber=2" in request.query,
        ),
        pytest.raises(CloudProviderError, match=r"has no list VSwitches\.VSwitch"),
    ):
        process.readers.vswitches.find(terms)


@pytest.mark.parametrize("answer", [[{}], [{"images": None}], [{"images": {}}], [None], ["1.32"]])
def test_a_version_of_kubernetes_without_a_list_of_images_is_no_answer(
    process, cloud, node_class, answer
):
    with answering(cloud, "DescribeKubernetesVersionMetadata", answer):
        resolved = process.resolve(node_class)

    assert resolved.status.images == node_class.status.images
    assert said(resolved, "ImagesReady")[0] == "True"
