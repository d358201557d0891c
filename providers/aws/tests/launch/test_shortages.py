"""Errors of claims without an instance of a fleet, and the offerings that they name."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.errors import (
    CloudProviderError,
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    ThrottledError,
)
from karpenter_core.provider.kit.launch.answers import CallAnswer, NewInstance
from karpenter_core.scheduling.problem import Catalogue
from karpenter_core.state.unavailable_offerings import without_unavailable
from karpenter_core.testing.builders import instance_type, offering
from karpenter_provider_aws.api.nodeclass import Subnet
from karpenter_provider_aws.labels import INSTANCE_FAMILY
from karpenter_provider_aws.launch.answers import (
    TargetFailure,
    read_answer,
    shortages_of,
    unserved_outcome,
)
from karpenter_provider_aws.launch.fleet import LaunchTarget
from karpenter_provider_aws.quotas import quota_class
from tests.properties import with_examples

ICE = "InsufficientInstanceCapacity"
ADDRESSES = "InsufficientFreeAddressesInSubnet"
FULL_GROUP = "You've reached the limit of instances in this spread placement group."
TYPES, ZONES = ("m5.large", "m5.xlarge", "g5.xlarge"), ("a", "b")


def target(name, zone, capacity_type="spot"):
    return LaunchTarget(
        instance_type=name,
        offering=offering(zone, capacity_type),
        subnet=Subnet(id=f"subnet-{zone}", zone=zone),
        image_id="ami-1",
        template="template",
    )


TARGETS = [target(name, zone) for name, zone in product(TYPES, ZONES)]
ALL = set(product(TYPES, ZONES))


def found(name, zone):
    return next(t for t in TARGETS if (t.instance_type, t.offering.zone) == (name, zone))


def claim_error(*failures, offered=()):
    answer = CallAnswer(instances=(), failures=tuple(failures))
    return unserved_outcome(answer, TARGETS, offered)


def places(error):
    assert isinstance(error, InsufficientCapacityError)
    assert {key.capacity_type for key in error.offerings} <= {"spot"}
    return {(key.instance_type, key.zone) for key in error.offerings}


def offered_types(*names):
    """Return instance types whose families are labels and whose sizes are CPUs."""
    return [
        instance_type(
            name,
            cpu="2" if name.endswith(".large") else "4",
            zones=ZONES,
            labels={INSTANCE_FAMILY: name.partition(".")[0]},
        )
        for name in names
    ]


def masked_places(groups, offered):
    """Return type, zone and capacity type of what quota groups make unavailable."""
    whole = Catalogue(version="v1", instance_types=tuple(offered))
    return {
        (it.name, each.zone, each.capacity_type)
        for it in without_unavailable(whole, frozenset(groups)).instance_types
        for each in it.offerings
        if not each.available
    }


@pytest.mark.parametrize(("name", "zone"), sorted(ALL))
@pytest.mark.parametrize(
    "code", [ICE, "UnfulfillableCapacity", "Unsupported", "ReservationCapacityExceeded"]
)
def test_a_stock_out_of_one_override_is_about_its_type_and_zone_alone(code, name, zone):
    failure = TargetFailure(code=code, message="none", target=found(name, zone))

    error = claim_error(failure)

    assert places(error) == {(name, zone)}
    assert error.scope is ExhaustedScope.OFFERING
    marks = shortages_of([failure], TARGETS, "spot")
    assert {(m.instance_type, m.zone, m.capacity_type) for m in marks.offerings} == {
        (name, zone, "spot")
    }


def test_a_type_that_a_fleet_may_not_launch_in_a_zone_is_a_shortage_of_that_offering():
    failure = TargetFailure(
        code="InvalidFleetConfiguration",
        message="Your requested instance type (m5.large) is not supported in your requested "
        "Availability Zone (b).",
        target=found("m5.large", "b"),
    )

    assert places(claim_error(failure)) == {("m5.large", "b")}
    marks = shortages_of([failure], TARGETS, "spot")
    assert [(m.instance_type, m.zone) for m in marks.offerings] == [("m5.large", "b")]


def test_two_stock_outs_are_about_their_own_offerings():
    error = claim_error(
        TargetFailure(code=ICE, message="x", target=found("m5.large", "b")),
        TargetFailure(code=ICE, message="y", target=found("g5.xlarge", "a")),
    )

    assert places(error) == {("m5.large", "b"), ("g5.xlarge", "a")}


def test_a_full_subnet_is_about_all_types_there_and_about_no_other_zone():
    error = claim_error(
        TargetFailure(code=ADDRESSES, message="full", target=found("m5.large", "b"))
    )

    assert places(error) == {(name, "b") for name in TYPES}
    assert error.scope is ExhaustedScope.NODE_CLASS


def test_a_full_spread_group_is_about_all_types_of_its_zone_and_about_no_other_zone():
    error = claim_error(TargetFailure(code=ICE, message=FULL_GROUP, target=found("m5.large", "a")))

    assert places(error) == {(name, "a") for name in TYPES}


@pytest.mark.parametrize("code", ["VcpuLimitExceeded", "MaxSpotInstanceCountExceeded"])
def test_a_quota_is_about_its_class_of_types_in_every_zone_and_about_its_capacity_type(code):
    offered = offered_types(*TYPES, "c5.large", "p5.48xlarge")
    failure = TargetFailure(code=code, message="quota", target=found("m5.large", "a"))

    error = claim_error(failure, offered=offered)

    assert places(error) == {("m5.large", "a")}
    assert masked_places(error.quota_groups, offered) == set(
        product(("m5.large", "m5.xlarge", "c5.large"), ZONES, ["spot"])
    )
    assert error.scope is ExhaustedScope.FAMILY_QUOTA


quota_targets = st.builds(
    target,
    st.sampled_from(["m5.large", "c5.xlarge", "p4d.24xlarge", "p5.48xlarge", "g5.xlarge"]),
    st.sampled_from(ZONES),
    st.sampled_from(["spot", "on-demand"]),
)


@with_examples(100)
@given(st.lists(quota_targets, min_size=1, max_size=3))
def test_the_core_masks_the_offerings_that_a_provider_marks_for_a_quota(targets):
    offered = offered_types(
        "m5.large", "m5.xlarge", "c5.large", "c5.xlarge", "p4d.24xlarge", "p5.48xlarge",
        "p5en.48xlarge", "g5.xlarge", "gr6.4xlarge",
    )  # fmt: skip
    failures = [TargetFailure(code="VcpuLimitExceeded", message="", target=t) for t in targets]

    error = claim_error(*failures, offered=offered)

    wide = shortages_of(failures, targets, "spot", offered=offered).wide
    assert masked_places(error.quota_groups, offered) == {
        (it.name, each.zone, each.capacity_type)
        for it in offered
        for each in it.offerings
        if any(
            shortage.covers(
                capacity_type=each.capacity_type,
                zone=each.zone,
                group=quota_class(it.name),
                cpu_milli=it.capacity["cpu"],
            )
            for shortage in wide
        )
    }


def test_a_shortage_of_a_whole_call_masks_all_requested_offerings():
    error = claim_error(TargetFailure(code="MaxFleetCountExceeded", message="fleets"))

    assert places(error) == ALL
    assert error.scope is ExhaustedScope.REGION


def test_an_unexplained_empty_fleet_is_a_shortage_of_its_request():
    """Else the same would be asked for again at once, without an end."""
    error = claim_error()

    assert places(error) == ALL
    assert error.scope is ExhaustedScope.OFFERING


def test_an_unexplained_short_fleet_reports_no_shortage():
    answer = CallAnswer(instances=(NewInstance(id="i-1", target=TARGETS[0]),), failures=())

    assert type(unserved_outcome(answer, TARGETS)) is CloudProviderError


def test_throttling_outranks_a_shortage_and_a_mistake_outranks_both():
    shortage = TargetFailure(code=ICE, message="none", target=TARGETS[0])
    throttled = TargetFailure(code="RequestLimitExceeded", message="slow", target=TARGETS[1])
    mistake = TargetFailure(code="InvalidAMIID.NotFound", message="gone", target=TARGETS[2])

    assert isinstance(claim_error(shortage, throttled), ThrottledError)
    failed = claim_error(shortage, throttled, mistake)
    assert isinstance(failed, LaunchFailedError)
    assert failed.reason == "AMINotFound"


@pytest.mark.parametrize("answer", [{}, {"FleetId": "fleet-1"}, {"Instances": [], "Errors": []}])
def test_an_empty_answer_is_read_as_no_launch(answer):
    expected = CallAnswer(reference=answer.get("FleetId", ""))
    assert read_answer(answer, TARGETS) == expected


@pytest.mark.parametrize("place", [{"SubnetId": "subnet-b"}, {"AvailabilityZone": "b"}])
def test_fleet_errors_are_matched_by_subnet_or_by_zone(place):
    """EC2 repeats the overrides in part; each says of which choice it is."""
    overrides = {"InstanceType": "m5.xlarge", **place}
    of = {"LaunchTemplateAndOverrides": {"Overrides": overrides}}

    answer = read_answer(
        {
            "Instances": [{**of, "InstanceIds": ["i-1"], "InstanceType": "m5.xlarge"}],
            "Errors": [{**of, "ErrorCode": ICE, "ErrorMessage": "none"}],
        },
        TARGETS,
    )

    assert answer.instances == (NewInstance(id="i-1", target=found("m5.xlarge", "b")),)
    assert answer.failures[0].target is found("m5.xlarge", "b")


def test_an_instance_without_id_is_an_error():
    overrides = {"InstanceType": "m5.xlarge", "SubnetId": "subnet-b"}
    of = {"LaunchTemplateAndOverrides": {"Overrides": overrides}}
    item = {**of, "InstanceIds": ["", "i-1"], "InstanceType": "m5.xlarge"}
    with pytest.raises(CloudProviderError, match="an instance without id"):
        read_answer({"Instances": [item]}, TARGETS)


def test_an_unrequested_instance_is_an_error():
    overrides = {"InstanceType": "x1.32xlarge", "SubnetId": "subnet-a"}
    of = {"LaunchTemplateAndOverrides": {"Overrides": overrides}}

    with pytest.raises(CloudProviderError, match=r"i-1 is a x1\.32xlarge"):
        read_answer(
            {"Instances": [{**of, "InstanceIds": ["i-1"], "InstanceType": "x1.32xlarge"}]}, TARGETS
        )
