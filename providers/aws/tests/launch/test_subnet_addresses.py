"""Free addresses of subnets are reserved for fleets and returned, and other subnets are tried."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import INSTANCE_TYPE, ZONE
from karpenter_core.errors import CloudProviderError, LaunchFailedError
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_provider_aws.api.terms import SubnetTerm
from providers.aws.tests.launch.processes import ON_DEMAND, claim_of, node_class_of

FULL = "InsufficientFreeAddressesInSubnet"
A, B = "us-east-1a", "us-east-1b"
M5 = (INSTANCE_TYPE, "m5.large")
PODS = 29
"""Of an m5.large: as many addresses are kept for it."""


@pytest.fixture
def in_a(aws, process):
    """Return the resolved subnet of one zone."""
    subnet = aws.world.subnets[A]
    process.subnets.find([SubnetTerm(id=subnet)])
    return subnet


def wave(count):
    return [claim_of(f"web-{number}", ON_DEMAND, M5, (ZONE, A)) for number in range(count)]


def test_a_refused_fleet_gives_its_addresses_back(aws, process, node_class, in_a):
    before = process.subnets.expected_addresses(in_a)
    aws.fail("CreateFleet", code="InvalidParameterValue", times=None)

    outcomes = process.launch(*wave(2), node_class=node_class)

    assert {type(outcome) for outcome in outcomes} == {LaunchFailedError}
    assert process.subnets.expected_addresses(in_a) == before


def test_addresses_of_an_uncertain_launch_stay_reserved(aws, process, node_class, in_a):
    before = process.subnets.expected_addresses(in_a)
    assert before > 3 * PODS
    with aws.lose_replies("CreateFleet", times=None):
        outcomes = process.launch(*wave(3), node_class=node_class)

    assert {type(outcome) for outcome in outcomes} == {CloudProviderError}
    assert process.subnets.expected_addresses(in_a) == before - 3 * PODS


def test_a_subnet_that_ec2_finds_full_has_no_address_left(aws, process, node_class, in_a):
    aws.fail_pools(code=FULL, zone=A)

    process.launch(*wave(1), node_class=node_class)

    assert process.subnets.expected_addresses(in_a) == 0


def test_a_launch_mistake_tries_no_other_subnet(aws, clients, process):
    """The claim gets the mistake as its error; another fleet would meet it again."""
    sibling = clients.ec2.create_subnet(
        VpcId=aws.world.vpc_id, CidrBlock="10.0.240.0/24", AvailabilityZone=A
    )["Subnet"]["SubnetId"]
    subnets = [
        {"id": aws.world.subnets[A], "zone": A, "zoneID": "use1-az1"},
        {"id": sibling, "zone": A, "zoneID": "use1-az1"},
        {"id": aws.world.subnets[B], "zone": B, "zoneID": "use1-az2"},
    ]
    aws.fail_pools(code=FULL, zone=A)
    aws.fail_pools(code="InvalidAMIID.NotFound", zone=B)

    outcome = process.launch_one(
        claim_of("wrong", ON_DEMAND, M5), node_class_of(aws, clients, subnets=subnets)
    )

    assert isinstance(outcome, LaunchFailedError)
    assert outcome.reason == "AMINotFound"
    assert aws.calls.count("CreateFleet") == 1


def test_a_fleet_takes_the_addresses_of_its_instances_alone(process, node_class, in_a):
    before = process.subnets.expected_addresses(in_a)

    outcomes = process.launch(*wave(2), node_class=node_class)

    assert {type(outcome) for outcome in outcomes} == {LaunchedInstance}
    assert process.subnets.expected_addresses(in_a) == before - 2 * PODS
