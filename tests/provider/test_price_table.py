"""Price tables prefer read prices to shipped ones and detect stale ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from karpenter_core.provider.catalogue import Price
from karpenter_core.provider.kit.cached_prices import CachedPrices
from karpenter_core.provider.kit.price_table import PriceTable

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_prices_that_were_read_come_before_shipped_ones():
    table = PriceTable({"m5": 1.0, "m6": 2.0})
    assert table.update({"m5": {"": 1.1}}, now=NOW)
    assert table.find("m5", zone="a") == Price(1.1)
    assert table.find("m6", zone="a") == Price(2.0)
    assert table.find("m7", zone="a") is None


def test_prices_are_in_the_currency_of_the_table():
    assert PriceTable({"m5": 1.0}, currency="CNY").find("m5") == Price(1.0, "CNY")


def test_prices_absent_from_a_reading_are_kept():
    table = PriceTable({})
    table.update({"m5": {"a": 0.4, "b": 0.3}, "m6": {"a": 1.0}}, now=NOW)
    assert table.update({"m5": {"a": 0.5}}, now=NOW)
    assert table.find("m5", zone="a") == Price(0.5)
    assert table.find("m5", zone="b") == Price(0.3)
    assert table.find("m6", zone="a") == Price(1.0)
    assert not table.update({"m5": {"a": 0.5}}, now=NOW)


@pytest.mark.parametrize("amount", [-0.1, float("nan"), float("inf"), 1e30, 1_000_000.1])
def test_an_amount_that_no_offering_can_have_is_left_out(amount: float):
    """It would have a node of that type replaced, or launched before all others."""
    table = PriceTable({})
    table.update({"m5": {"": 0.4}}, now=NOW)
    assert not table.update({"m5": {"": amount}, "m6": {"": amount}}, now=NOW)
    assert table.find("m5") == Price(0.4)
    assert table.find("m6") is None


@pytest.mark.parametrize("amount", [0.0, 1_000_000.0])
def test_an_amount_at_a_bound_is_a_price(amount: float):
    table = PriceTable({})
    assert table.update({"m5": {"": amount}}, now=NOW)
    assert table.find("m5") == Price(amount)


def test_a_reading_of_the_shipped_prices_changes_nothing():
    table = PriceTable({"m5": 1.0})
    assert not table.update({"m5": {"": 1.0}}, now=NOW)


def test_shipped_prices_hold_until_the_first_reading_if_gaps_are_not_filled():
    """A spot market that names no price for a zone has nothing there."""
    table = PriceTable({"m5": 1.0}, fills_gaps=False)
    assert table.find("m5", zone="b") == Price(1.0)
    assert table.update({"m5": {"a": 0.4}}, now=NOW)
    assert table.find("m5", zone="a") == Price(0.4)
    assert table.find("m5", zone="b") is None


def test_an_empty_price_list_is_taken_for_a_failure():
    table = PriceTable({"m5": 1.0})
    assert not table.update({}, now=NOW)
    assert table.is_stale(now=NOW, after=MINUTE)
    assert (table.read_at, table.to_cache()) == (None, None)
    table.update({"m5": {"": 1.0}}, now=NOW)
    assert not table.is_stale(now=NOW + MINUTE, after=MINUTE)
    assert table.is_stale(now=NOW + 2 * MINUTE, after=MINUTE)


def test_prices_are_stored_as_they_were_read():
    table = PriceTable({"m5": 1.0, "m6": 9.0})
    table.update({"m5": {"a": 0.4}}, now=NOW)
    table.update({"m5": {"b": 0.3}, "m7": {"": 2.0}}, now=NOW + MINUTE)
    assert table.to_cache() == CachedPrices(
        NOW + MINUTE, {"m5": {"a": 0.4, "b": 0.3}, "m7": {"": 2.0}}
    )
