"""Launch candidates of a claim are filtered by offerings and requests."""

from __future__ import annotations

from karpenter_core.api.labels import CAPACITY_TYPE, WELL_KNOWN, ZONE
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.errors import OfferingKey
from karpenter_core.provider.catalogue import Offering, Price, Requirements
from karpenter_core.provider.kit.launch_candidates import (
    LaunchCandidate,
    compatible_types,
    fitting_candidates,
    offering_keys,
    unmet_min_values,
    with_fullest_reservations,
    with_offerings,
    without_expensive_spot,
)
from karpenter_core.testing.builders import instance_type, offering

ANY = Requirements.from_specs(())


def wish(key, *values, least=None):
    spec = RequirementSpec(key=key, operator="In", values=values, min_values=least)
    return Requirements.from_specs([spec])


def candidates(*types, requirements=ANY, requests=None):
    compatible = compatible_types(
        types, requirements, is_open=lambda *_: True, well_known=WELL_KNOWN
    )
    return fitting_candidates(compatible, requests or {})


SMALL = instance_type(
    "small",
    cpu="2",
    offerings=[
        offering(zone="zone-a", capacity_type="spot", price=1.0),
        offering(zone="zone-b", capacity_type="on-demand", price=2.0),
    ],
)
LARGE = instance_type(
    "large",
    cpu="8",
    offerings=[offering(zone="zone-a", capacity_type="spot", price=3.0)],
)


def test_a_type_comes_in_the_offerings_that_the_claim_allows():
    """And not at all where there is none."""
    result = candidates(SMALL, LARGE, requirements=wish(ZONE, "zone-b"))

    assert offering_keys(result) == (
        OfferingKey(instance_type="small", zone="zone-b", capacity_type="on-demand"),
    )


def test_a_type_too_small_for_the_requests_is_left_out():
    """However cheap it is."""
    assert [c.instance_type.name for c in candidates(SMALL, LARGE, requests={"cpu": 4000})] == [
        "large"
    ]


def test_an_unavailable_offering_is_no_candidate():
    """Known to be sold out since it was listed."""
    compatible = compatible_types(
        [LARGE], ANY, is_open=lambda it, offered: offered.zone != "zone-a", well_known=WELL_KNOWN
    )

    assert compatible == ()


def test_spot_more_expensive_than_on_demand_is_left_out_where_both_may_be_had():
    """Without on-demand there is no price to compare with."""
    both = without_expensive_spot(candidates(SMALL, LARGE), ANY)
    spot_alone = wish(CAPACITY_TYPE, "spot")

    assert [c.instance_type.name for c in both] == ["small"]
    kept = without_expensive_spot(candidates(LARGE, requirements=spot_alone), spot_alone)
    assert [c.instance_type.name for c in kept] == ["large"]


def test_candidates_are_narrowed_to_some_offerings():
    """The cheapest of what is left is their price."""
    kept = with_offerings(
        candidates(SMALL, LARGE), lambda offered: offered.capacity_type == "on-demand"
    )

    assert [(c.instance_type.name, c.price) for c in kept] == [("small", 2.0)]


def test_variety_that_is_missing_is_named():
    """Counted over all types."""
    required = wish("node.kubernetes.io/instance-type", "small", "large", "huge", least=3)

    assert unmet_min_values(candidates(SMALL, LARGE), required) == (
        "node.kubernetes.io/instance-type (2 of 3)",
    )


POOLS = "example.com/pool"


def reserved(zone, pool, left):
    labels = {ZONE: zone, CAPACITY_TYPE: "reserved", POOLS: pool}
    return Offering(
        requirements=Requirements.from_labels(labels),
        price=Price(0.1),
        available=True,
        reservation_capacity=left,
    )


ANYHOW = LaunchCandidate(
    instance_type=instance_type("anyhow"),
    offerings=(
        reserved("zone-a", "p2", 3),
        reserved("zone-a", "p1", 3),
        reserved("zone-a", "p0", 2),
        reserved("zone-b", "p3", 1),
        offering(zone="zone-a", capacity_type="on-demand", price=2.0),
    ),
)


def pool_of(it):
    return it.requirements.single_value(POOLS)


def test_the_fullest_reservation_of_each_zone_alone_is_kept():
    """Of equally full ones the first by id; and no type that nothing is reserved of."""
    result = with_fullest_reservations(
        [ANYHOW, *candidates(SMALL)],
        wish(CAPACITY_TYPE, "reserved", "on-demand", "spot"),
        reservation_of=pool_of,
    )

    assert [(c.instance_type.name, [pool_of(o) for o in c.offerings]) for c in result] == [
        ("anyhow", ["p1", "p3"])
    ]


def test_all_is_kept_where_nothing_reserved_may_be_had():
    given = (ANYHOW, *candidates(SMALL))
    unreserved = candidates(SMALL, LARGE)

    assert (
        with_fullest_reservations(given, wish(CAPACITY_TYPE, "spot"), reservation_of=pool_of)
        == given
    )
    assert with_fullest_reservations(unreserved, ANY, reservation_of=pool_of) == unreserved
