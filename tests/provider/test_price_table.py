"""Price tables prefer read prices to shipped ones and detect stale ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from karpenter_core.provider.catalogue import Price
from karpenter_core.provider.kit.price_table import PriceKey, PriceTable

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

ANYWHERE = PriceKey("m5", "on-demand")
SPOT_A = PriceKey("m5", "spot", "a")


def test_prices_that_were_read_come_before_shipped_ones():
    book = PriceTable({ANYWHERE: Price(1.0), SPOT_A: Price(0.4)})
    assert book.update({ANYWHERE: Price(1.1)}, now=NOW)
    assert book.find("m5", "on-demand", zone="a") == Price(1.1)
    assert book.find("m5", "spot", zone="a") == Price(0.4)
    assert book.find("m5", "spot", zone="b") is None


def test_prices_absent_from_a_reading_are_kept():
    book = PriceTable({})
    book.update({ANYWHERE: Price(1.0), SPOT_A: Price(0.4)}, now=NOW)
    assert book.update({SPOT_A: Price(0.5)}, now=NOW)
    assert book.find("m5", "on-demand") == Price(1.0)
    assert not book.update({SPOT_A: Price(0.5)}, now=NOW)


def test_shipped_prices_hold_until_the_first_reading_if_gaps_are_not_filled():
    """A spot market that names no price for a zone has nothing there."""
    book = PriceTable({PriceKey("m5", "spot"): Price(1.0)}, fills_gaps=False)
    assert book.find("m5", "spot", zone="b") == Price(1.0)
    assert book.update({SPOT_A: Price(0.4)}, now=NOW)
    assert book.find("m5", "spot", zone="a") == Price(0.4)
    assert book.find("m5", "spot", zone="b") is None


def test_an_empty_price_list_is_taken_for_a_failure():
    book = PriceTable({ANYWHERE: Price(1.0)})
    assert not book.update({}, now=NOW)
    assert book.is_stale(now=NOW, after=MINUTE)
    book.update({ANYWHERE: Price(1.0)}, now=NOW)
    assert not book.is_stale(now=NOW + MINUTE, after=MINUTE)
    assert book.is_stale(now=NOW + 2 * MINUTE, after=MINUTE)
