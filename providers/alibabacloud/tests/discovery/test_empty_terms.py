"""Selector terms that say nothing, which the CRD refuses and an older object may have."""

from __future__ import annotations

import pytest

from karpenter_provider_alibabacloud.api.nodeclass import (
    CapacityReservationTerm,
    SecurityGroupTerm,
    VSwitchTerm,
)
from providers.alibabacloud.tests.discovery.worlds import Readers, node_class_of

EMPTY = {
    "vswitches": VSwitchTerm(),
    "security_groups": SecurityGroupTerm(),
    "reservations": CapacityReservationTerm(),
}
CALLS = {
    "vswitches": "DescribeVSwitches",
    "security_groups": "DescribeSecurityGroups",
    "reservations": "DescribeCapacityReservations",
}


@pytest.mark.parametrize("kind", EMPTY)
def test_a_term_that_says_nothing_selects_nothing_of_the_account(cloud, clients, kind):
    """A query without a filter would find everything that the account has."""
    cloud.reservations.add(
        "batch", instance_type="ecs.g7.large", zone=cloud.world.zones[0], total=2
    )

    answer = getattr(Readers(cloud, clients), kind).find([EMPTY[kind]])

    assert not answer.items
    assert cloud.calls.count(CALLS[kind]) == 0


def test_an_image_term_that_says_nothing_is_named_and_finds_no_image(cloud, clients):
    node_class = node_class_of(cloud, imageSelectorTerms=[{}])

    answer = Readers(cloud, clients).images.find(node_class)

    assert answer.items == ()
    assert answer.absent == ("spec.imageSelectorTerms[0] (it is empty)",)
    assert cloud.calls.count("DescribeImages") == 0
