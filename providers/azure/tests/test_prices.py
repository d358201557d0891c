"""Tests prices: the choice among items, shipped prices, what is kept."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.provider.catalogue import Price
from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_provider_azure.catalogue.price_reader import read_price_items
from karpenter_provider_azure.catalogue.prices import (
    DISK_VERSION,
    UNKNOWN_PRICE,
    ListedPrices,
    RegionPrices,
    known_series,
    unknown_series,
)
from karpenter_provider_azure.data import shipped_prices
from providers.azure.tests.catalogue.sku_items import NOW

if TYPE_CHECKING:
    from pathlib import Path

D4 = "Standard_D4s_v5"
MARCH, APRIL = "2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z"


def item(price: object = 0.2, **fields: Any) -> dict[str, Any]:
    """Return an item of the price list."""
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": price,
        "armRegionName": "westus2",
        "effectiveStartDate": MARCH,
        "meterName": "D4s v5",
        "productName": "Virtual Machines Dsv5 Series",
        "skuName": "D4s v5",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "armSkuName": D4,
        **fields,
    }


# -- the choice --------------------------------------------------------------------------------


def test_spot_and_on_demand_follow_from_the_name_of_the_sku() -> None:
    listed = read_price_items([item(0.2), item(0.05, skuName="D4s v5 Spot")])  # case 51

    assert listed == ListedPrices({D4: 0.2}, {D4: 0.05})


@pytest.mark.parametrize(
    "fields",
    [
        {"productName": "Virtual Machines Dsv5 Series Windows"},  # case 51
        {"meterName": "D4s v5 Low Priority", "skuName": "D4s v5 Low Priority"},  # case 51
        {"unitOfMeasure": "1 Month"},
        {"type": "Reservation"},
        {"currencyCode": "EUR"},
        {"retailPrice": 0},
        {"retailPrice": -1},
        {"retailPrice": "0.2"},
        {"retailPrice": float("inf")},
        {"retailPrice": True},
        {"armSkuName": ""},
        {"armSkuName": None},
    ],
)
def test_other_items_are_left_out(fields: dict[str, Any]) -> None:
    assert read_price_items([item(**fields)]) == ListedPrices({}, {})


@pytest.mark.parametrize(
    "other",
    [
        {"productName": "Dsv5 Series Cloud Services", "effectiveStartDate": APRIL},
        {"effectiveStartDate": "2026-02-01T00:00:00Z"},
        {"tierMinimumUnits": 100.0},
        {"retailPrice": 0.3},
    ],
)
def test_the_better_item_is_chosen_in_any_order(other: dict[str, Any]) -> None:
    items = [item(0.2), item(**{"retailPrice": 0.1, **other})]

    assert read_price_items(items).on_demand == {D4: 0.2}
    assert read_price_items(reversed(items)).on_demand == {D4: 0.2}


ITEMS = st.builds(
    item,
    st.sampled_from([0, 0.1, 0.2, 0.3]),
    productName=st.sampled_from(["Virtual Machines A", "A Cloud Services", "A Windows"]),
    skuName=st.sampled_from(["D4s v5", "D4s v5 Spot"]),
    effectiveStartDate=st.sampled_from([MARCH, APRIL]),
    tierMinimumUnits=st.sampled_from([0.0, 10.0]),
    armSkuName=st.sampled_from([D4, "Standard_D8s_v5"]),
)


@given(items=st.lists(ITEMS, max_size=12), data=st.data())
def test_prices_do_not_depend_on_the_order_of_items(
    items: list[dict[str, Any]], data: st.DataObject
) -> None:
    assert read_price_items(data.draw(st.permutations(items))) == read_price_items(items)


# -- shipped prices ----------------------------------------------------------------------------


def test_a_region_without_a_table_has_the_prices_of_eastus() -> None:
    assert shipped_prices("nowhere") == shipped_prices("eastus")  # case 52
    assert shipped_prices("EastUS").region == "eastus"
    assert RegionPrices("nowhere").on_demand(D4) == Price(shipped_prices("eastus").prices[D4])


def test_before_a_reading_spot_costs_as_much_as_on_demand() -> None:
    prices = RegionPrices("westus2")  # case 52

    assert prices.spot(D4) == prices.on_demand(D4)
    assert prices.on_demand(D4).amount == shipped_prices("westus2").prices[D4]


def test_prices_have_no_age_until_they_are_read() -> None:
    prices = RegionPrices("westus2")
    assert prices.read_at("on-demand") is None

    prices.update(ListedPrices({D4: 0.2}, {}), now=NOW)

    assert prices.read_at("on-demand") == NOW
    assert prices.read_at("spot") is None


def test_every_shipped_price_is_above_zero() -> None:
    assert min(shipped_prices("eastus").prices.values()) > 0


@pytest.mark.parametrize(
    ("name", "series"),
    [(D4, ""), ("Standard_D3s_v5", ""), ("Standard_Q4s_v9", "Qs_v9"), ("strange", "strange")],
)
def test_a_size_belongs_to_the_series_of_its_name(name: str, series: str) -> None:
    assert "Ds_v5" in known_series()
    assert unknown_series(name) == series


# -- what is kept ------------------------------------------------------------------------------


def test_an_empty_list_of_one_capacity_type_keeps_its_last_prices() -> None:
    prices = RegionPrices("westus2")
    prices.update(ListedPrices({D4: 0.2}, {D4: 0.05}), now=NOW)

    prices.update(ListedPrices({D4: 0.3}, {}), now=NOW)

    assert (prices.on_demand(D4).amount, prices.spot(D4).amount) == (0.3, 0.05)


def test_a_size_that_the_list_does_not_name_has_no_shipped_price_any_more() -> None:
    prices = RegionPrices("westus2")  # case 50
    prices.update(ListedPrices({"Standard_D8s_v5": 0.4}, {}), now=NOW)

    assert prices.on_demand(D4) == UNKNOWN_PRICE
    assert prices.spot(D4) != UNKNOWN_PRICE


def test_only_a_changed_price_changes_the_revision() -> None:
    prices = RegionPrices("westus2")
    listed = ListedPrices({D4: 0.2}, {D4: 0.05})
    assert prices.update(listed, now=NOW)
    revision = prices.revision

    assert not prices.update(listed, now=NOW)
    assert prices.revision == revision
    assert prices.update(ListedPrices({D4: 0.21}, {}), now=NOW)
    assert prices.revision > revision


def test_a_new_process_begins_with_the_last_prices(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path, "azure-prices-westus2", version=DISK_VERSION)
    prices = RegionPrices("westus2")
    prices.update(ListedPrices({D4: 0.2}, {D4: 0.05}), now=NOW)
    prices.save(disk, now=NOW)

    restored = RegionPrices("westus2")
    restored.restore(disk, now=NOW + timedelta(days=1))

    assert (restored.on_demand(D4).amount, restored.spot(D4).amount) == (0.2, 0.05)
    assert restored.read_at("spot") == NOW


def test_prices_that_were_never_read_are_not_stored(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path, "azure-prices-westus2", version=DISK_VERSION)
    RegionPrices("westus2").save(disk, now=NOW)

    assert disk.read(now=NOW, max_age=timedelta(days=1)) is None
