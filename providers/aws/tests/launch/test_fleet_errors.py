"""Tests the shortages that a fleet's errors report (cases 88 to 91, 103)."""

from __future__ import annotations

import pytest

from karpenter_core.provider.kit.shortages import Shortage
from karpenter_core.testing.builders import offering
from karpenter_provider_aws.api.nodeclass import Subnet
from karpenter_provider_aws.launch.answers import LaunchShortages, TargetFailure, shortages_of
from karpenter_provider_aws.launch.fleet import LaunchTarget

ICE = "InsufficientInstanceCapacity"
FULL_GROUP = "You've reached the limit of instances in this spread placement group."


def target(instance_type, zone, capacity_type="on-demand"):
    return LaunchTarget(
        instance_type=instance_type,
        offering=offering(zone, capacity_type),
        subnet=Subnet(id=f"subnet-{zone}", zone=zone),
        image_id="ami-1",
        template="template",
    )


TARGETS = [target(name, zone) for name in ("m5.large", "c5.large") for zone in ("a", "b")]


def marks(code, message="", *, of=TARGETS[0], **options):
    failure = TargetFailure(code=code, message=message, target=of)
    return shortages_of([failure], TARGETS, "on-demand", **options)


def marked(found):
    return {(m.instance_type, m.zone, m.placement_group, m.partition) for m in found.offerings}


def test_a_full_spread_group_is_full_for_types_that_were_not_tried():
    """Case 103: EC2 names one type; the others would fail alike in this zone."""
    found = marks(ICE, FULL_GROUP, placement_group="pg-1")

    assert marked(found) == {("m5.large", "a", "pg-1", ""), ("c5.large", "a", "pg-1", "")}


def test_the_same_words_say_nothing_of_launches_outside_of_groups():
    assert marked(marks(ICE, FULL_GROUP)) == {("m5.large", "a", "", "")}


def test_a_pool_without_stock_is_marked_alone():
    """Case 88; in a placement group the mark holds inside of it."""
    assert marked(marks(ICE)) == {("m5.large", "a", "", "")}
    assert marked(marks(ICE, placement_group="pg-1", partition="2")) == {
        ("m5.large", "a", "pg-1", "2")
    }


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "UnauthorizedOperation", "InternalError"])
def test_an_error_without_a_shortage_marks_nothing(code):
    """Case 89."""
    assert marks(code) == LaunchShortages()


def test_an_error_about_an_unrequested_choice_marks_nothing():
    assert marks(ICE, of=None) == LaunchShortages()


def test_a_full_subnet_is_marked_and_no_offering():
    """Case 90."""
    assert marks("InsufficientFreeAddressesInSubnet") == LaunchShortages(subnets=("subnet-a",))


def test_without_a_role_for_spot_all_of_spot_is_marked():
    """Case 89."""
    found = marks("AuthFailure.ServiceLinkedRoleCreationNotPermitted")

    assert found == LaunchShortages(wide=(Shortage(capacity_type="spot"),))
