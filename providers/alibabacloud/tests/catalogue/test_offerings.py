"""Tests offerings: shortages, private pools, price limits (cases 40 to 42)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, ZONE
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_alibabacloud import labels
from karpenter_provider_alibabacloud.prices import SpotQuote, quote_of
from providers.alibabacloud.tests.catalogue.instance_type_data import (
    NOW,
    ZONES,
    A,
    B,
    C,
    World,
    available,
    bought,
    images,
    info,
    node_class,
    resolve,
    vswitches,
)

NAME = "ecs.g7.large"


def test_a_type_is_offered_in_each_zone_on_demand_and_as_spot():
    it = resolve(NAME)

    assert [*bought(it)] == [(A, "on-demand"), (B, "on-demand"), (A, "spot"), (B, "spot")]
    assert available(it) == set(bought(it))
    for offering in it.offerings:
        assert it.requirements.get(ZONE).has(offering.zone)
        assert it.requirements.get(CAPACITY_TYPE).has(offering.capacity_type)
        assert offering.requirements.single_value(labels.ZONE_ID) == offering.zone
        assert offering.price.amount > 0


def test_a_type_out_of_stock_is_listed_as_unavailable():
    """Case 40."""
    world = World(NAME)
    world.restock(replace(world.stock, on_demand={NAME: (A,)}, spot={"1": {NAME: (B,)}}))
    it = world.list()[NAME]

    assert available(it) == {(A, "on-demand"), (B, "spot")}
    assert set(bought(it)) == {(z, c) for z in ZONES for c in ("on-demand", "spot")}


def test_a_region_without_spot_offers_on_demand():
    """Case 41."""
    world = World(NAME)
    world.restock(replace(world.stock, spot={}, spot_listed={}))
    it = world.list()[NAME]

    assert available(it) == {(A, "on-demand"), (B, "on-demand")}
    assert it.requirements.single_value(CAPACITY_TYPE) == "on-demand"


def test_no_offering_is_available_in_a_zone_without_a_vswitch():
    """Case 42."""
    world = World(NAME)
    everywhere = {NAME: (A, B, C)}
    world.restock(
        replace(
            world.stock,
            on_demand=everywhere,
            spot={"1": everywhere},
            on_demand_listed=everywhere,
            spot_listed=everywhere,
        )
    )
    before = world.list(node_class(zones=[A, B, C]))[NAME]
    after = world.list(node_class(zones=[A, B]))[NAME]

    assert {zone for zone, _ in available(before)} == {A, B, C}
    assert {zone for zone, _ in available(after)} == {A, B}
    assert not after.requirements.get(ZONE).has(C)


def test_a_type_without_a_vswitch_in_its_zones_is_listed_as_unavailable():
    it = World(NAME).list(node_class(zones=[C]))[NAME]

    assert it.offerings == ()


def test_a_type_never_in_stock_in_the_region_is_not_listed():
    world = World(NAME, "ecs.c7.large")
    listed = {NAME: ZONES}
    world.restock(replace(world.stock, on_demand_listed=listed, spot_listed=listed))

    assert list(world.list()) == [NAME]


def test_a_shortage_of_a_launch_masks_its_offering_for_some_minutes():
    world = World(NAME)
    world.list()
    world.unavailable_offerings.mark(UnavailableOffering(NAME, A, "spot"), now=NOW)

    assert (A, "spot") not in available(world.list()[NAME])
    assert (A, "on-demand") in available(world.list()[NAME])
    later = NOW + timedelta(minutes=3)
    assert (A, "spot") in available(world.list(now=later)[NAME])


def test_a_zone_is_closed_when_none_of_its_vswitches_has_addresses():
    world = World(NAME)
    two = [*vswitches(A, B), {"id": "vsw-a2", "zoneID": A}]
    of = node_class(vSwitches=two)
    world.unavailable_offerings.mark_subnet("vsw-a", now=NOW)
    assert (A, "on-demand") in available(world.list(of)[NAME])

    world.unavailable_offerings.mark_subnet("vsw-a2", now=NOW)
    assert available(world.list(of)[NAME]) == {(B, "on-demand"), (B, "spot")}


def test_a_quota_masks_one_capacity_type_in_all_zones():
    world = World(NAME)
    world.unavailable_offerings.mark_capacity_type("on-demand", now=NOW)

    assert available(world.list()[NAME]) == {(A, "spot"), (B, "spot")}


def test_spot_above_the_limit_cannot_be_had():
    world = World(NAME)
    quote = SpotQuote({A: 0.1, B: 0.3}, NOW)
    world.prices.update_spot({NAME: quote}, currency="CNY")

    it = world.list(node_class({"spot": {"priceLimit": 0.2}}))[NAME]

    assert (A, "spot") in available(it)
    assert (B, "spot") not in available(it)


def test_the_stock_of_the_configured_protected_time_counts():
    world = World(NAME)
    world.restock(replace(world.stock, spot={"1": {NAME: (A,)}, "0": {NAME: (B,)}}))

    assert (A, "spot") in available(world.list()[NAME])
    risky = world.list(node_class({"spot": {"durationHours": 0}}))[NAME]
    assert available(risky) == {(A, "on-demand"), (B, "on-demand"), (B, "spot")}
    assert world.watched == {0, 1}
    assert world.prices.spot_hours == (0, 1)


def test_a_type_that_no_image_boots_cannot_be_had():
    world = World(NAME, "ecs.g8y.large")
    found = world.list(node_class(images=images("img-arm", arch="arm64")))

    assert not available(found[NAME])
    assert available(found["ecs.g8y.large"])


def pool(name: str, zone: str = A, instance_type: str = NAME) -> dict[str, str]:
    return {"id": name, "zoneID": zone, "instanceType": instance_type}


def test_a_private_pool_with_remaining_capacity_is_priced_near_zero():
    world = World(NAME, "ecs.g7.xlarge")
    of = node_class(capacityReservations=[pool("eap-2"), pool("eap-1", B), pool("eap-3", C)])
    world.left = {"eap-1": 3}
    it = world.list(of)[NAME]
    found = {o.requirements.single_value(labels.CAPACITY_RESERVATION_ID): o for o in it.offerings}

    assert found["eap-1"].available
    assert found["eap-1"].reservation_capacity == 3
    assert found["eap-1"].zone == B
    assert 0 < found["eap-1"].price.amount < 1e-6
    assert not found["eap-2"].available
    assert "eap-3" not in found
    assert it.requirements.get(labels.CAPACITY_RESERVATION_ID).has("eap-1")
    assert not world.list(of)["ecs.g7.xlarge"].requirements.get(CAPACITY_TYPE).has("reserved")

    world.left = {"eap-1": 0, "eap-2": 1}
    assert (A, "reserved") in available(world.list(of)[NAME])
    assert (B, "reserved") not in available(world.list(of)[NAME])


@pytest.mark.parametrize("amount", [0.25, 4.0])
def test_prices_are_the_ones_that_were_read(amount: float):
    world = World(NAME)
    world.prices.update_on_demand({NAME: quote_of(info(), amount, now=NOW)}, currency="CNY")
    world.prices.update_spot({NAME: SpotQuote({A: amount / 5}, NOW)}, currency="CNY")
    found = bought(world.list()[NAME])

    assert found[A, "on-demand"].price.amount == found[B, "on-demand"].price.amount == amount
    assert found[A, "spot"].price.amount == amount / 5
