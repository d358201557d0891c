"""Tests offerings: zones, prices, shortages and quotas."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from karpenter_core.provider.kit.shortages import Shortage
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_azure import labels
from karpenter_provider_azure.catalogue.prices import UNKNOWN_PRICE
from providers.azure.tests.catalogue.sku_items import (
    NOW,
    World,
    restriction,
    sku_item,
    usage,
    vm_size,
)

D2, D4, D8 = "Standard_D2s_v5", "Standard_D4s_v5", "Standard_D8s_v5"
FAMILY = "standardDSv5Family"
ZONES = ("westus2-1", "westus2-2", "westus2-3")
ALL = {(zone, ct) for zone in (*ZONES, "0") for ct in ("on-demand", "spot")}
ON_DEMAND = {(zone, "on-demand") for zone in (*ZONES, "0")}


def family_world(**quotas: tuple[int, int]) -> World:
    """Return sizes with 2, 4 and 8 vCPUs of one family, and quotas of (limit, used) by name."""
    return World(
        *(sku_item(name, cpus=n, family=FAMILY) for name, n in ((D2, 2), (D4, 4), (D8, 8))),
        usages=[usage(name, limit=limit, used=used) for name, (limit, used) in quotas.items()],
    )


def test_a_size_with_three_zones_has_eight_offerings() -> None:
    it = World(sku_item(D4)).type(D4)  # case 41

    assert {(o.zone, o.capacity_type) for o in it.offerings} == ALL
    assert len(it.offerings) == 8
    assert all(o.available for o in it.offerings)


def test_a_size_without_zones_is_offered_in_the_region_alone() -> None:
    it = World(sku_item("Standard_DS3_v2", zones=[])).type("Standard_DS3_v2")  # case 42

    assert [(o.zone, o.capacity_type) for o in it.offerings] == [("0", "on-demand"), ("0", "spot")]
    scopes = {o.requirements.single_value(labels.PLACEMENT_SCOPE) for o in it.offerings}
    assert scopes == {"regional"}


def test_an_offering_fixes_all_labels_that_depend_on_it() -> None:
    world = World(sku_item(D4))
    requirements = world.offering(D4, "westus2-1", "spot").requirements

    assert requirements.single_value(labels.PLACEMENT_SCOPE) == "zonal"
    assert requirements.single_value(labels.AKS_PRIORITY) == "spot"
    assert requirements.single_value(labels.AKS_SCALE_SET_PRIORITY) == "spot"
    assert requirements.single_value(labels.SKU_STORAGE_ULTRA_SSD) == "false"
    regular = world.offering(D4, "0", "on-demand").requirements
    assert regular.single_value(labels.AKS_PRIORITY) == "regular"


def test_a_restricted_zone_is_no_offering() -> None:
    it = World(sku_item(D4, restrictions=[restriction("Zone", zones=["2"])])).type(D4)  # case 43

    assert {o.zone for o in it.offerings} == {"westus2-1", "westus2-3", "0"}


def test_spot_of_a_size_that_is_not_sold_so_is_listed_as_unavailable() -> None:
    world = World(sku_item(D4, LowPriorityCapable="False"))  # case 44

    assert len(world.type(D4).offerings) == 8
    assert world.available(D4) == ON_DEMAND


def test_ultra_disks_are_allowed_where_the_zone_has_them() -> None:
    world = World(sku_item(D4, ultra_ssd_zones=["1", "2"]))  # case 45

    def ultra(zone: str) -> list[str]:
        offering = world.offering(D4, zone, "on-demand")
        return sorted(offering.requirements.get(labels.SKU_STORAGE_ULTRA_SSD).values)

    assert ultra("westus2-1") == ultra("westus2-2") == ["false", "true"]
    assert ultra("westus2-3") == ultra("0") == ["false"]
    allowed = world.type(D4).requirements.get(labels.SKU_STORAGE_ULTRA_SSD)
    assert sorted(allowed.values) == ["false", "true"], "of some zones is enough for the size"


def test_offerings_have_the_price_of_their_capacity_type() -> None:
    world = World(sku_item(D4))
    world.set_prices({D4: 0.2}, {D4: 0.05})

    assert world.offering(D4, "westus2-1", "on-demand").price.amount == 0.2
    assert world.offering(D4, "0", "spot").price.amount == 0.05


def test_a_size_without_a_price_has_the_highest_price_and_is_available() -> None:
    world = World(sku_item(D4), sku_item(D2))  # case 50
    world.set_prices({D2: 0.1}, {D2: 0.02})

    assert world.offering(D4, "0", "on-demand").price == UNKNOWN_PRICE
    assert world.offering(D4, "0", "spot").price == UNKNOWN_PRICE
    assert world.available(D4) == ALL


def test_a_size_of_an_unknown_series_has_the_highest_price_even_if_priced() -> None:
    name = "Standard_Q4s_v9"  # case 50
    world = World(sku_item(name))
    world.set_prices({name: 0.01}, {name: 0.001})

    assert world.offering(name, "0", "on-demand").price == UNKNOWN_PRICE
    assert world.offering(name, "0", "spot").price == UNKNOWN_PRICE


# -- shortages ---------------------------------------------------------------------------------


def test_a_marked_offering_is_unavailable_alone() -> None:
    world = World(sku_item(D4))
    world.unavailable.mark(UnavailableOffering(D4, "westus2-1", "spot"), now=NOW)

    assert world.available(D4) == ALL - {("westus2-1", "spot")}


def test_a_shortage_of_a_family_blocks_its_larger_sizes_alone() -> None:
    world = family_world()
    shortage = Shortage(
        capacity_type="spot", zone="westus2-1", group=FAMILY.lower(), least_cpu_milli=4000
    )
    world.unavailable.mark_shortages(shortage, now=NOW)

    assert world.available(D2) == ALL
    assert world.available(D4) == world.available(D8) == ALL - {("westus2-1", "spot")}


def test_a_shortage_of_another_family_changes_nothing() -> None:
    world = family_world()
    world.unavailable.mark_shortages(Shortage(group="standardesv5family"), now=NOW)

    assert world.available(D8) == ALL


def test_a_used_up_spot_quota_blocks_all_spot_offerings() -> None:
    world = family_world()
    world.unavailable.mark_capacity_type("spot", now=NOW)

    assert world.available(D2) == ON_DEMAND


def test_an_offering_is_available_again_after_its_mark() -> None:
    world = World(sku_item(D4))  # case 104, the catalogue's part
    world.unavailable.mark(UnavailableOffering(D4, "0", "spot"), now=NOW, life=timedelta(minutes=3))
    assert ("0", "spot") not in world.available(D4)

    world.clock.advance(minutes=3, seconds=10)

    assert world.available(D4) == ALL


# -- quotas ------------------------------------------------------------------------------------


def test_a_family_quota_blocks_larger_sizes_on_demand_only() -> None:
    world = family_world(**{FAMILY: (10, 8)})  # case 54

    assert world.available(D2) == ALL
    assert world.available(D4) == ALL - ON_DEMAND


@pytest.mark.parametrize(
    "usages",
    [
        [],
        [usage("standardESv5Family", limit=0, used=0)],
        [{"name": {"value": FAMILY}, "currentValue": 8}],
        [{"name": {"value": FAMILY}, "limit": "ten", "currentValue": 8}],
        [{"limit": 0, "currentValue": 8}],
    ],
)
def test_an_unknown_quota_restricts_nothing(usages: list[dict[str, Any]]) -> None:
    world = World(sku_item(D4, cpus=4, family=FAMILY), usages=usages)  # case 55

    assert world.available(D4) == ALL


def test_a_size_without_a_family_is_restricted_by_regional_quotas_alone() -> None:
    world = World(  # case 55
        sku_item(D4, cpus=4, family=""), usages=[usage("", limit=0, used=0)]
    )

    assert world.available(D4) == ALL


def test_the_regional_quota_blocks_on_demand_of_all_families() -> None:
    world = family_world(cores=(100, 95))

    assert world.available(D4) == ALL
    assert world.available(D8) == ALL - ON_DEMAND


def test_the_quota_for_spot_blocks_spot_of_all_families() -> None:
    world = family_world(lowPriorityCores=(3, 0))

    assert world.available(D2) == ALL
    assert world.available(D4) == ON_DEMAND


def test_launches_in_flight_count_against_quotas() -> None:
    world = family_world(**{FAMILY: (10, 2)})
    world.quotas.reserve("claim-1", vm_size(D4, cpus=4, family=FAMILY), "on-demand")

    assert world.available(D4) == ALL
    assert world.available(D8) == ALL - ON_DEMAND


def test_is_open_judges_an_offering_by_current_shortages() -> None:
    world = family_world(**{FAMILY: (10, 0)})
    it = world.type(D8)
    on_demand, spot = it.offerings[0], it.offerings[1]
    assert world.catalogue.is_open(it, on_demand)

    world.quotas.reserve("claim-1", vm_size(D4, cpus=4, family=FAMILY), "on-demand")
    world.unavailable.mark(UnavailableOffering(D8, spot.zone, "spot"), now=NOW)

    assert not world.catalogue.is_open(it, on_demand)
    assert not world.catalogue.is_open(it, spot)
