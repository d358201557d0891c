"""A launch that has more launch templates than a fleet takes is split; nothing is left untried."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE
from karpenter_core.errors import ExhaustedScope, InsufficientCapacityError, OfferingKey
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_core.provider.kit.launch.answers import merge_shortages
from karpenter_core.provider.kit.launch_candidates import LaunchCandidate
from karpenter_core.testing.builders import instance_type, offering
from karpenter_provider_aws.api.nodeclass import Subnet
from karpenter_provider_aws.labels import CAPACITY_RESERVATION_ID
from karpenter_provider_aws.launch.fleet import MAX_CONFIGS, MAX_OVERRIDES, targets_of
from karpenter_provider_aws.launch.template_groups import LaunchTemplate
from providers.aws.tests.catalogue.recorded_region import region
from providers.aws.tests.launch.processes import claim_of, node_class_of

RESERVED = (CAPACITY_TYPE, "reserved")
EXHAUSTED = "ReservationCapacityExceeded"


def types_of(zone, count):
    """Return types that the zone sells on x86_64 and that are nothing out of the ordinary."""
    known = region()
    plain = (
        name
        for name, info in sorted(known.types.items())
        if zone in known.zones.get(name, ())
        and info.architectures == ("x86_64",)
        and not info.gpus
        and name.startswith(("c5", "m5", "r5"))
        and "metal" not in name
    )
    return [next(plain) for _ in range(count)]


@pytest.fixture
def reserved(aws, clients, make_process):
    """A NodeClass with one reservation for each of more types than a fleet takes templates."""
    names = types_of("us-east-1a", MAX_CONFIGS + 5)
    process = make_process(types=names)
    for name in names:
        aws.reservations.add(instance_type=name, zone="us-east-1a", total=1)
    node_class = node_class_of(aws, clients)
    terms = node_class.spec.model_validate(
        {
            **node_class.spec.model_dump(by_alias=True, exclude_none=True),
            "capacityReservationSelectorTerms": [{"instanceMatchCriteria": "targeted"}],
        }
    ).capacity_reservation_selector_terms
    found = [item.status(process.clock.now()) for item in process.reservations.find(terms).items]
    status = [item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in found]
    return process, node_class_of(aws, clients, status={"capacityReservations": status})


def configs(call):
    return [
        config["LaunchTemplateSpecification"]["LaunchTemplateName"]
        for config in call.parameters["LaunchTemplateConfigs"]
    ]


def test_templates_that_a_fleet_does_not_take_are_tried_after_it(aws, reserved):
    process, node_class = reserved
    aws.fail_pools(code=EXHAUSTED, times=MAX_CONFIGS)

    outcome = process.launch_one(claim_of("paid", RESERVED), node_class)

    first, second = aws.calls.of("CreateFleet")
    assert isinstance(outcome, LaunchedInstance)
    assert (len(configs(first)), len(configs(second))) == (MAX_CONFIGS, 5)
    assert not set(configs(first)) & set(configs(second))


def test_a_successful_fleet_is_the_only_one(aws, reserved):
    process, node_class = reserved

    process.launch_one(claim_of("paid", RESERVED), node_class)

    assert aws.calls.count("CreateFleet") == 1
    assert aws.calls.count("CreateLaunchTemplate") == MAX_CONFIGS


def test_a_shortage_names_the_reservations_of_all_fleet_requests(aws, reserved):
    process, node_class = reserved
    aws.fail_pools(code=EXHAUSTED)

    outcome = process.launch_one(claim_of("none", RESERVED), node_class)

    assert isinstance(outcome, InsufficientCapacityError)
    assert aws.calls.count("CreateFleet") == 2
    assert len(outcome.quota_groups) == len(set(outcome.quota_groups)) == MAX_CONFIGS + 5
    assert {group.label for group in outcome.quota_groups} == {CAPACITY_RESERVATION_ID}


@pytest.mark.parametrize("code", ["MaxFleetCountExceeded", "UnauthorizedOperation"])
def test_an_error_independent_of_templates_tries_no_further_template(aws, reserved, code):
    process, node_class = reserved
    aws.fail_pools(code=code)

    process.launch_one(claim_of("none", RESERVED), node_class)

    assert aws.calls.count("CreateFleet") == 1


KEYS = [OfferingKey(instance_type=t, zone="a", capacity_type="spot") for t in ("x", "y")]


def test_two_shortages_are_reported_as_one():
    first = InsufficientCapacityError("full", offerings=KEYS[:1], scope=ExhaustedScope.FAMILY_QUOTA)
    second = InsufficientCapacityError("empty", offerings=KEYS)

    both = merge_shortages(first, second)

    assert str(both) == "full; empty"
    assert both.offerings == tuple(KEYS)
    assert both.scope is ExhaustedScope.FAMILY_QUOTA
    assert merge_shortages(first, other := object()) is other


def test_a_stock_out_is_reported_before_a_full_subnet():
    """The full subnet is of one NodeClass, what is sold out is so for all."""
    full = InsufficientCapacityError("full", offerings=KEYS[:1], scope=ExhaustedScope.NODE_CLASS)
    empty = InsufficientCapacityError("empty", offerings=KEYS[1:])

    for before, after in ((full, empty), (empty, full)):
        both = merge_shortages(before, after)
        assert both.scope is ExhaustedScope.OFFERING
        assert both.offerings == tuple(KEYS[1:])
    assert merge_shortages(full, full).scope is ExhaustedScope.NODE_CLASS


def template_for(*instance_types):
    return LaunchTemplate(
        name="template",
        data={},
        tags={},
        node_class="default",
        image_id="ami-1",
        user_data_bytes=0,
        instance_types=instance_types,
    )


def test_a_fleet_keeps_the_cheapest_choices_in_order():
    zones = [f"zone-{number}" for number in range(6)]
    prices = [1 + (7 * number) % 60 for number in range(60)]
    types = [
        instance_type(f"m5.size-{number}", offerings=[offering(z, price=price) for z in zones])
        for number, price in enumerate(prices)
    ]
    targets = targets_of(
        [template_for(*types)],
        [LaunchCandidate(instance_type=it, offerings=it.offerings) for it in types],
        {zone: Subnet(id=f"subnet-{zone}", zone=zone) for zone in zones},
    )

    assert len(targets) == MAX_OVERRIDES
    kept = [it.name for it, price in zip(types, prices, strict=True) if price <= 50]
    assert list(dict.fromkeys(target.instance_type for target in targets)) == kept


def test_a_fleet_has_a_type_once_in_a_zone_and_only_where_a_subnet_is():
    """The cheapest offering of the zone comes first."""
    offerings = [offering(z, price=p) for z, p in (("a", 1), ("a", 2), ("b", 1), ("c", 3))]
    it = instance_type("m5.large", offerings=offerings)
    targets = targets_of(
        [template_for(it)],
        [LaunchCandidate(instance_type=it, offerings=it.offerings)],
        {zone: Subnet(id=f"subnet-{zone}", zone=zone) for zone in "ac"},
    )
    found = [(t.offering.zone, t.offering.price.amount, t.subnet.id) for t in targets]
    assert found == [("a", 1, "subnet-a"), ("c", 3, "subnet-c")]
