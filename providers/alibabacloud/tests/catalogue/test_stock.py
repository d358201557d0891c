"""Tests the stock of the region, and failed reads (cases 40 and 41)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_provider_alibabacloud.catalogue.stock import (
    CapacityErrorCounter,
    StockReader,
    read_listing,
)
from karpenter_provider_alibabacloud.codes import ApiError
from providers.alibabacloud.tests.catalogue.instance_type_data import A, B, SetClock
from providers.alibabacloud.tests.catalogue.stubbed_clients import AnsweringClients, zones

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

NAME, OTHER = "ecs.g7.large", "ecs.c7.large"
IN, OUT = "WithStock", "WithoutStock"


class Market:
    """Answers DescribeAvailableResource; `on_demand` and `spot` may be replaced."""

    def __init__(self) -> None:
        self.on_demand: Callable[[], Mapping[str, Any]] = lambda: zones((A, IN, {NAME: IN}))
        self.spot: Callable[[], Mapping[str, Any]] = lambda: zones((B, IN, {NAME: IN}))
        self.clients = AnsweringClients(DescribeAvailableResource=self._answer)
        self.clock = SetClock()

    def _answer(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.spot() if "SpotStrategy" in parameters else self.on_demand()

    def book(self, folder: Path) -> StockReader:
        return StockReader(self.clients, self.clock, folder)


def refuse(code: str = "InternalError", status: int = 500) -> Callable[[], Mapping[str, Any]]:
    def answer() -> Mapping[str, Any]:
        raise ApiError(code, "simulated", "R-1", status, action="ecs:DescribeAvailableResource")

    return answer


@pytest.mark.parametrize(
    ("zone", "resource", "is_in_stock"),
    [
        (IN, IN, True),
        ("ClosedWithStock", "ClosedWithStock", True),
        (IN, "ClosedWithStock", True),
        (IN, OUT, False),
        (OUT, IN, False),
        ("ClosedWithoutStock", IN, False),
    ],
)
def test_stock_status_decides_availability(zone: str, resource: str, is_in_stock: bool):
    """Case 40."""
    listing = read_listing(zones((A, zone, {NAME: resource})))

    assert listing.in_stock == ({NAME: (A,)} if is_in_stock else {})
    assert listing.listed == {NAME: (A,)}


def test_stock_is_read_for_on_demand_and_spot(tmp_path: Path):
    market = Market()
    stock, revision = market.book(tmp_path).current()

    assert stock.on_demand == {NAME: (A,)}
    assert stock.spot_zones(NAME) == (B,)
    assert revision == 1
    common = {
        "RegionId": "cn-hangzhou",
        "DestinationResource": "InstanceType",
        "InstanceChargeType": "PostPaid",
    }
    asked = market.clients.asked("DescribeAvailableResource")
    assert sorted(asked, key=len) == [
        common,
        {**common, "SpotStrategy": "SpotAsPriceGo", "SpotDuration": 1},
    ]


def test_a_region_without_spot_has_on_demand_stock_only(tmp_path: Path):
    """Case 41."""
    market = Market()
    market.spot = dict
    stock, _ = market.book(tmp_path).current()

    assert stock.on_demand == {NAME: (A,)}
    assert stock.spot_zones(NAME) == ()


def test_a_region_that_stops_offering_spot_has_no_spot_stock(tmp_path: Path):
    """Case 41: an empty answer is one, and none that failed; where it was sold stays known."""
    market = Market()
    book = market.book(tmp_path)
    book.current()
    market.spot = dict
    market.clock.at += timedelta(minutes=5)

    assert book.refresh()
    stock, _ = book.current()
    assert stock.on_demand == {NAME: (A,)}
    assert stock.spot_zones(NAME) == ()
    assert stock.spot_listed == {NAME: (B,)}


def test_stock_is_read_again_after_half_the_period_or_at_once(tmp_path: Path):
    market = Market()
    book = market.book(tmp_path)
    book.current()
    market.spot = dict

    market.clock.at += timedelta(seconds=149)
    assert not book.refresh()
    assert book.refresh(at_once=True)
    market.spot = lambda: zones((B, IN, {NAME: IN}))
    market.clock.at += timedelta(seconds=150)
    assert book.refresh()


@pytest.mark.parametrize("half", ["on_demand", "spot"])
def test_a_failed_answer_keeps_the_last_stock_of_its_capacity_type(tmp_path: Path, half: str):
    market = Market()
    book = market.book(tmp_path)
    book.current()
    market.on_demand = market.spot = lambda: zones((B, IN, {OTHER: IN}))
    setattr(market, half, refuse())
    market.clock.at += timedelta(minutes=5)

    assert book.refresh()
    stock, _ = book.current()
    assert stock.on_demand == ({NAME: (A,)} if half == "on_demand" else {OTHER: (B,)})
    assert stock.spot["1"] == ({NAME: (B,)} if half == "spot" else {OTHER: (B,)})


def test_a_failed_first_answer_leaves_the_other_capacity_type(tmp_path: Path):
    market = Market()
    market.on_demand = refuse()
    stock, _ = market.book(tmp_path).current()

    assert stock.on_demand == {}
    assert stock.spot_zones(NAME) == (B,)


@pytest.mark.parametrize(("half", "way"), [("on_demand", "on-demand"), ("spot", "spot of 1 hours")])
def test_the_log_names_the_stock_that_could_not_be_read(tmp_path: Path, half: str, way: str):
    market = Market()
    setattr(market, half, refuse())
    with structlog.testing.capture_logs() as lines:
        market.book(tmp_path).current()

    assert [line["way"] for line in lines if "could not be read" in line["event"]] == [way]


def test_two_failed_answers_keep_the_last_stock(tmp_path: Path):
    market = Market()
    book = market.book(tmp_path)
    known, _ = book.current()
    market.on_demand = market.spot = refuse("Forbidden.RAM", 403)
    market.clock.at += timedelta(minutes=5)

    with pytest.raises(AuthError, match="ecs:DescribeAvailableResource"):
        book.refresh()
    assert book.current()[0] is known


def test_an_empty_stock_answer_counts_as_a_failure(tmp_path: Path):
    market = Market()
    market.on_demand = dict
    market.spot = refuse()

    with pytest.raises(CloudProviderError, match=r"no instance types found in region cn-\w+"):
        market.book(tmp_path).current()


def test_zones_in_which_a_type_was_listed_are_remembered(tmp_path: Path):
    market = Market()
    book = market.book(tmp_path)
    book.current()
    market.on_demand = lambda: zones((B, IN, {NAME: IN}))
    market.clock.at += timedelta(minutes=5)
    book.refresh()
    stock, _ = book.current()

    assert stock.on_demand == {NAME: (B,)}
    assert stock.on_demand_listed == {NAME: (A, B)}
    assert stock.spot_listed == {NAME: (B,)}


def test_a_new_process_plans_with_recent_stock_of_the_disk_cache(tmp_path: Path):
    market = Market()
    known, _ = market.book(tmp_path).current()
    market.clock.at += timedelta(minutes=59)
    calls = len(market.clients.calls)

    assert market.book(tmp_path).current()[0] == known
    assert len(market.clients.calls) == calls


def test_old_stock_is_fetched_again_and_old_zones_are_remembered(tmp_path: Path):
    market = Market()
    market.book(tmp_path).current()
    market.clock.at += timedelta(hours=2)
    market.on_demand = lambda: zones((B, IN, {NAME: IN}))
    stock, _ = market.book(tmp_path).current()

    assert stock.on_demand == {NAME: (B,)}
    assert stock.on_demand_listed == {NAME: (A, B)}


def test_stock_is_refreshed_every_five_minutes_or_at_once(tmp_path: Path):
    market = Market()
    book = market.book(tmp_path)
    book.current()
    market.on_demand = lambda: zones((B, IN, {NAME: IN}))

    assert not book.refresh()
    assert book.refresh(at_once=True)
    market.clock.at += timedelta(minutes=5)
    assert not book.refresh()
    assert len(market.clients.calls) == 3 * 2


def test_a_new_protection_period_is_queried_from_the_next_refresh_on(tmp_path: Path):
    market = Market()
    book = market.book(tmp_path)
    assert book.watch_spot(0)
    assert not book.watch_spot(0)
    assert not book.watch_spot(1)
    stock, _ = book.current()

    assert set(stock.spot) == {"0", "1"}
    asked = market.clients.asked("DescribeAvailableResource")
    assert sorted(it.get("SpotDuration", -1) for it in asked) == [-1, 0, 1]


def test_an_unread_protected_time_uses_the_default_stock(tmp_path: Path):
    stock, _ = Market().book(tmp_path).current()

    assert stock.spot_zones(NAME, 0) == (B,)


@pytest.mark.parametrize("damage", ['{"version": "1"}', "nonsense", "[]"])
def test_a_damaged_cache_file_counts_as_missing(tmp_path: Path, damage: str):
    market = Market()
    market.book(tmp_path).current()
    (file,) = tmp_path.iterdir()
    file.write_text(damage)
    market.on_demand = lambda: zones((B, IN, {OTHER: IN}))

    assert market.book(tmp_path).current()[0].on_demand == {OTHER: (B,)}


def test_each_third_launch_without_stock_in_a_row_requests_a_refresh():
    errors = CapacityErrorCounter()
    outcomes = [True, True, False, True, True, True, True, True, True]

    assert [errors.note(sold_out=it) for it in outcomes] == [
        False, False, False, False, False, True, False, False, True,
    ]  # fmt: skip
