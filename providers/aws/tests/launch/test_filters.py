"""Tests the filters of types and offerings (cases 83 to 87, 96 to 98)."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, WELL_KNOWN, ZONE
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.errors import InsufficientCapacityError, OfferingKey
from karpenter_core.provider.catalogue import Offering, Price, Requirement, Requirements
from karpenter_core.provider.kit.launch_candidates import (
    capacity_type_of,
    compatible_types,
    fitting_candidates,
    is_inflexible,
)
from karpenter_core.testing.builders import instance_type, offering
from karpenter_provider_aws.labels import (
    CAPACITY_RESERVATION_ID,
    CAPACITY_RESERVATION_INTERRUPTIBLE,
    CAPACITY_RESERVATION_TYPE,
    INSTANCE_FAMILY,
    INSTANCE_SIZE,
    INSTANCE_TENANCY,
    LABEL_CLASSES,
)
from karpenter_provider_aws.launch.filters import filter_candidates
from karpenter_provider_aws.launch.fleet import tenancy_of

KNOWN_LABELS = WELL_KNOWN | LABEL_CLASSES.well_known


def reserved(zone, reservation, *, left=5, price=0.0, kind="default", interruptible=False):
    return Offering(
        requirements=Requirements.from_labels(
            {
                ZONE: zone,
                CAPACITY_TYPE: "reserved",
                CAPACITY_RESERVATION_ID: reservation,
                CAPACITY_RESERVATION_TYPE: kind,
                CAPACITY_RESERVATION_INTERRUPTIBLE: str(interruptible).lower(),
            }
        ),
        price=Price(price),
        reservation_capacity=left,
    )


def wish(*specs):
    return Requirements.from_specs(
        RequirementSpec(key=key, operator="In", values=tuple(values)) for key, *values in specs
    )


ANY = wish()


def named(name, *offerings, **options):
    family, _, size = name.partition(".")
    return instance_type(
        name,
        offerings=offerings or None,
        labels={INSTANCE_FAMILY: family, INSTANCE_SIZE: size},
        **options,
    )


def chosen(types, requirements=ANY, requests=None):
    compatible = compatible_types(
        types, requirements, is_open=lambda *_: True, well_known=KNOWN_LABELS
    )
    return filter_candidates(fitting_candidates(compatible, requests or {}), requirements)


def names(candidates):
    return [candidate.instance_type.name for candidate in candidates]


def ids(candidates):
    return [
        (candidate.instance_type.name, o.requirements.single_value(CAPACITY_RESERVATION_ID))
        for candidate in candidates
        for o in candidate.offerings
    ]


def test_spot_is_launched_where_it_is_available():
    """Case 83."""
    mixed = named("m5.large", offering("a", "spot", 0.3), offering("a", "on-demand", 1.0))
    scarce = named(
        "m5.large", offering("a", "spot", 0.3, available=False), offering("a", "on-demand")
    )

    assert capacity_type_of(chosen([mixed])) == "spot"
    assert capacity_type_of(chosen([scarce])) == "on-demand"


def test_spot_more_expensive_than_the_cheapest_on_demand_is_left_out():
    """Case 84."""
    types = [
        named("m5.large", offering("a", "spot", 1.0), offering("a", "on-demand", 1.0)),
        named("m5.xlarge", offering("a", "spot", 1.1)),
    ]
    needs = Requirements(
        (Requirement.of(INSTANCE_TYPE, "Exists", min_values=2),),
    )

    assert names(chosen(types)) == ["m5.large"]
    assert len(chosen(types)[0].offerings) == 2
    assert names(chosen(types, needs)) == ["m5.large", "m5.xlarge"]


def test_exotic_types_are_used_as_a_last_choice():
    """Case 85."""
    plain, metal = named("m5.large", price=1.0), named("m5.metal", price=0.1)
    accelerated = named("g4dn.xlarge", price=0.1, resources={"nvidia.com/gpu": "1"})
    needs = Requirements((Requirement.of(INSTANCE_TYPE, "Exists", min_values=2),))

    assert names(chosen([plain, metal, accelerated])) == ["m5.large"]
    assert names(chosen([metal])) == ["m5.metal"]
    assert len(chosen([plain, metal, accelerated], needs)) == 3


def test_the_sixty_cheapest_types_are_requested():
    """Case 86."""
    types = [named(f"m{n}.large", price=float(n)) for n in range(1, 201)]

    assert names(chosen(types[::-1])) == [f"m{n}.large" for n in range(1, 61)]


def test_too_little_variety_is_a_lack_of_capacity():
    """Case 86."""
    types = [named(f"m5.large{n}", price=float(n)) for n in range(1, 65)]
    needs = Requirements((Requirement.of(INSTANCE_FAMILY, "Exists", min_values=2),))

    with pytest.raises(InsufficientCapacityError, match="instance-family"):
        chosen(types, needs)


@pytest.mark.parametrize(
    ("values", "expected"),
    [((), "default"), (("default", "dedicated"), "default"), (("dedicated",), "dedicated")],
)
def test_hardware_is_shared_unless_only_dedicated_will_do(values, expected):
    """Case 87."""
    assert tenancy_of(wish((INSTANCE_TENANCY, *values)) if values else ANY) == expected


def test_the_fullest_reservation_of_a_zone_is_used():
    """Case 96."""
    both = named("m5.large", reserved("a", "cr-1", left=1), reserved("a", "cr-2", left=9))
    apart = named("m5.large", reserved("a", "cr-1", left=1), reserved("b", "cr-2", left=9))

    assert ids(chosen([both])) == [("m5.large", "cr-2")]
    assert ids(chosen([apart])) == [("m5.large", "cr-1"), ("m5.large", "cr-2")]


def test_reserved_offerings_come_first():
    types = [
        named("m5.large", reserved("a", "cr-1"), offering("a", "spot", 0.1)),
        named("c5.large", offering("a", "spot", 0.01)),
    ]

    assert ids(chosen(types)) == [("m5.large", "cr-1")]
    assert capacity_type_of(chosen(types)) == "reserved"
    assert names(chosen(types, wish((CAPACITY_TYPE, "spot")))) == ["c5.large", "m5.large"]


def test_of_equal_prices_the_default_kind_of_reservation_counts():
    """Case 97."""
    taken_back = reserved("a", "cr-i", interruptible=True)
    block = reserved("a", "cr-b", kind="capacity-block")
    plain = reserved("a", "cr-d")
    cheap = reserved("a", "cr-c", interruptible=True, price=-1.0)

    assert ids(chosen([named("m5.large", taken_back, block, plain)])) == [("m5.large", "cr-d")]
    assert ids(chosen([named("m5.large", taken_back, block)])) == [("m5.large", "cr-b")]
    assert ids(chosen([named("m5.large", plain), named("c5.large", cheap)])) == [
        ("c5.large", "cr-c")
    ]


def test_one_capacity_block_is_requested():
    """Case 98."""
    types = [
        named("p5.48xlarge", reserved("a", "cr-1", kind="capacity-block", price=2.0)),
        named(
            "p4d.24xlarge",
            reserved("a", "cr-2", kind="capacity-block", price=1.5),
            reserved("b", "cr-3", kind="capacity-block", price=1.0),
        ),
    ]

    assert ids(chosen(types)) == [("p4d.24xlarge", "cr-3")]


def test_types_that_do_not_hold_the_pods_are_left_out():
    small, large = named("m5.large", cpu="2"), named("m5.4xlarge", cpu="16")

    assert names(chosen([small, large], requests={"cpu": 4000})) == ["m5.4xlarge"]
    assert (
        fitting_candidates(
            compatible_types([small], ANY, is_open=lambda *_: True, well_known=KNOWN_LABELS),
            {"cpu": 4000},
        )
        == ()
    )


def test_newly_sold_out_offerings_are_left_out():
    it = named("m5.large", offering("a", "spot"), offering("b", "spot"))

    (found,) = compatible_types(
        [it], ANY, is_open=lambda _, o: o.zone == "b", well_known=KNOWN_LABELS
    )

    assert [
        o.zone
        for instance_candidate in found.allocatable_offerings
        for o in instance_candidate.offerings
    ] == ["b"]


def test_a_launch_without_a_permitted_type_names_its_offerings():
    needs = Requirements((Requirement.of(INSTANCE_FAMILY, "Exists", min_values=2),))

    with pytest.raises(InsufficientCapacityError) as raised:
        chosen([named("m5.large", offering("a", "spot"))], needs)

    key = OfferingKey(instance_type="m5.large", zone="a", capacity_type="spot")
    assert raised.value.offerings == (key,)


def test_on_demand_with_few_spot_alternatives_is_inflexible():
    few = chosen([named("m5.large", offering("a", "on-demand"))])
    many = chosen([named(f"m{n}.large", offering("a", "on-demand")) for n in range(5)])

    assert is_inflexible(few, "on-demand", ANY)
    assert not is_inflexible(many, "on-demand", ANY)
    assert not is_inflexible(few, "on-demand", wish((CAPACITY_TYPE, "on-demand")))
