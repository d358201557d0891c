"""Prices are read by limited calls, and failed answers are retried."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.errors import AuthError, CloudProviderError, SettingsError
from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_provider_alibabacloud.codes import ApiError
from karpenter_provider_alibabacloud.price_queries import (
    fetch_spot_history,
    read_price,
    read_spot_advice,
    read_spot_history,
)
from karpenter_provider_alibabacloud.price_reader import MOST_CALLS, PriceReader
from karpenter_provider_alibabacloud.prices import DISK_VERSION, RegionPrices, SpotAdvice
from providers.alibabacloud.tests.catalogue.instance_type_data import REGION, A, B, SetClock, info
from providers.alibabacloud.tests.catalogue.stubbed_clients import AnsweringClients

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LARGE, XLARGE, OTHER = "ecs.g7.large", "ecs.g7.xlarge", "ecs.c7.large"
PRICE, HISTORY, ADVICE = "DescribePrice", "DescribeSpotPriceHistory", "DescribeSpotAdvice"


def refused(code: str, status: int = 400) -> ApiError:
    return ApiError(code, "simulated", "R-1", status, action="ecs:DescribePrice")


class PriceCloud:
    """A cloud with prices; a fault by action, or by action and type, is raised instead."""

    def __init__(self, folder: Path, *names: str, price_file: str = "") -> None:
        self.types = {name: info(name) for name in sorted(names or (LARGE, XLARGE, OTHER))}
        self.faults: dict[object, ApiError] = {}
        self.on_demand = 1.0
        self.spot = {A: 0.2, B: 0.3}
        self.clients = AnsweringClients(
            REGION, **{PRICE: self._price, HISTORY: self._history, ADVICE: self._advice}
        )
        self.clock = SetClock()
        self.prices = RegionPrices(REGION)
        self.waits: list[float] = []
        self.estimated: list[int] = []
        self.disk = DiskCache(folder, "alibabacloud-prices", version=DISK_VERSION)
        self.reader = PriceReader(
            self.clients,
            self.prices,
            self.clock,
            types=lambda: (self.types, 1),
            disk=self.disk,
            price_file=price_file,
            sleep=self.waits.append,
            observe_estimated=self.estimated.append,
        )

    def asked(self, action: str) -> list[str]:
        return sorted(it["InstanceType"] for it in self.clients.asked(action))

    def _fail(self, action: str, parameters: Mapping[str, Any]) -> None:
        name = parameters.get("InstanceType")
        for key in (action, (action, name), (action, name, "SystemDisk" in parameters)):
            if key in self.faults:
                raise self.faults[key]

    def _price(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        self._fail(PRICE, parameters)
        details = [
            {"Resource": "instanceType", "TradePrice": self.on_demand},
            {"Resource": "systemDisk", "TradePrice": 0.05},
        ]
        return {
            "PriceInfo": {
                "Price": {
                    "Currency": "CNY",
                    "TradePrice": self.on_demand + 0.05,
                    "DetailInfos": {"DetailInfo": details},
                }
            }
        }

    def _history(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        self._fail(HISTORY, parameters)
        rows = [
            {
                "ZoneId": zone,
                "SpotPrice": amount + (0 if hour == 11 else 9),
                "OriginPrice": 1.5,
                "Timestamp": f"2026-03-01T{hour:02}:00:00Z",
            }
            for zone, amount in self.spot.items()
            for hour in (9, 11, 10)
        ]
        offset = parameters["Offset"]
        following = offset + 4
        return {
            "Currency": "CNY",
            "SpotPrices": {"SpotPriceType": rows[offset:following]},
            "NextOffset": following if following < len(rows) else 0,
        }

    def _advice(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        self._fail(ADVICE, parameters)
        rows = [
            {"InstanceType": name, "AverageSpotDiscount": 25, "InterruptionRate": 3.0}
            for name in parameters["InstanceTypes"]
        ]
        return {
            "AvailableSpotZones": {
                "AvailableSpotZone": [
                    {"ZoneId": A, "AvailableSpotResources": {"AvailableSpotResource": rows}}
                ]
            }
        }


def test_missing_prices_are_counted(tmp_path: Path):
    """Section 3.5: types stay visible, and their prices are flagged."""
    shop = PriceCloud(tmp_path)
    for action in (PRICE, HISTORY):
        shop.faults[action, XLARGE] = refused("InvalidInstanceType.ValueNotSupported")
    shop.reader.consider([LARGE, XLARGE])
    shop.reader.refresh()

    shop.clients.answers[PRICE] = shop.clients.answers[HISTORY] = lambda _: {}
    shop.faults.clear()
    shop.faults[ADVICE] = refused("InternalError", 500)
    shop.reader.consider([OTHER])
    shop.clock.at += timedelta(hours=2)
    with pytest.raises(CloudProviderError):
        shop.reader.refresh()

    assert shop.estimated == [1, 2]


def test_types_that_may_be_launched_are_read_exactly_and_others_by_averages(tmp_path: Path):
    shop = PriceCloud(tmp_path)

    assert shop.reader.consider([LARGE, XLARGE, "unknown"])
    assert not shop.reader.consider([LARGE])
    assert shop.reader.refresh()

    assert shop.asked(PRICE) == [LARGE, XLARGE]
    assert set(shop.asked(HISTORY)) == {LARGE, XLARGE}
    assert [it["InstanceTypes"] for it in shop.clients.asked(ADVICE)] == [[OTHER, LARGE, XLARGE]]
    assert shop.prices.on_demand(info(LARGE)).amount == 1.0
    assert shop.prices.spot(info(LARGE), A).amount == 0.2
    assert shop.prices.spot(info(LARGE), B).amount == 0.3
    assert shop.prices.spot(info(OTHER), A).amount == pytest.approx(
        0.25 * shop.prices.on_demand(info(OTHER)).amount
    )


def test_the_price_query_is_for_one_instance_hour(tmp_path: Path):
    shop = PriceCloud(tmp_path, LARGE)
    shop.reader.consider([LARGE])
    shop.reader.refresh()

    assert shop.clients.asked(PRICE) == [
        {
            "RegionId": REGION,
            "ResourceType": "instance",
            "InstanceType": LARGE,
            "PriceUnit": "Hour",
            "Period": 1,
            "SystemDisk": {"Category": "cloud_essd", "PerformanceLevel": "PL0", "Size": 20},
        }
    ]
    assert shop.clients.asked(HISTORY) == [
        {
            "RegionId": REGION,
            "InstanceType": LARGE,
            "NetworkType": "vpc",
            "OSType": "linux",
            "SpotDuration": 1,
            "Offset": offset,
        }
        for offset in (0, 4)
    ]


def test_old_prices_are_read_again(tmp_path: Path):
    shop = PriceCloud(tmp_path)
    shop.reader.consider([LARGE])
    shop.reader.refresh()
    asked: list[tuple[int, int, int]] = []
    for minutes in (9, 1, 50, 11 * 60):
        shop.clock.at += timedelta(minutes=minutes)
        shop.reader.consider([LARGE])
        shop.clients.calls.clear()
        shop.reader.refresh()
        calls = [len(shop.clients.asked(action)) for action in (PRICE, HISTORY, ADVICE)]
        asked.append((calls[0], calls[1], calls[2]))

    # A history has two pages.
    assert asked == [(0, 0, 0), (0, 2, 0), (0, 2, 1), (1, 2, 1)]


def test_prices_dated_in_the_future_are_read_again(tmp_path: Path):
    """A clock that was wrong for a moment would otherwise keep them for as long as it was ahead."""
    shop = PriceCloud(tmp_path)
    right = shop.clock.at
    shop.clock.at = right + timedelta(days=300)
    shop.reader.consider([LARGE])
    shop.reader.refresh()
    shop.clock.at = right
    shop.reader.consider([LARGE])
    shop.clients.calls.clear()
    shop.reader.refresh()

    asked = [bool(shop.clients.asked(action)) for action in (PRICE, HISTORY, ADVICE)]
    assert asked == [True, True, True]


def test_a_price_that_did_not_change_is_no_change(tmp_path: Path):
    shop = PriceCloud(tmp_path)
    shop.reader.consider([LARGE])
    assert shop.reader.refresh()
    shop.clock.at += timedelta(minutes=10)
    assert not shop.reader.refresh()

    shop.spot[A] = 0.4
    shop.clock.at += timedelta(minutes=10)
    assert shop.reader.refresh()
    assert shop.prices.spot(info(LARGE), A).amount == 0.4


def test_calls_stay_within_a_rate_and_a_run_within_a_number(tmp_path: Path):
    names = [f"ecs.g{number:03}.large" for number in range(300)]
    shop = PriceCloud(tmp_path, *names)
    shop.reader.consider(names)
    shop.reader.refresh()

    assert len(shop.clients.calls) == MOST_CALLS
    # Five at once, and then five a second: the clock of this test stands still.
    assert max(shop.waits) == pytest.approx((MOST_CALLS - 5) / 5)
    shop.clock.at += timedelta(minutes=1)
    shop.reader.refresh()
    assert len(shop.asked(PRICE)) == 300


def test_a_type_that_takes_no_such_disk_is_priced_without(tmp_path: Path):
    shop = PriceCloud(tmp_path, LARGE)
    shop.faults[PRICE, LARGE, True] = refused("InvalidSystemDiskCategory.ValueNotSupported")
    shop.reader.consider([LARGE])
    shop.reader.refresh()

    assert ["SystemDisk" in it for it in shop.clients.asked(PRICE)] == [True, False]
    assert not shop.prices.is_estimated(LARGE)


def test_a_type_without_a_price_is_not_queried_for_a_while(tmp_path: Path):
    shop = PriceCloud(tmp_path, LARGE, XLARGE)
    shop.faults[PRICE, LARGE] = refused("PriceNotFound", 404)
    shop.faults[HISTORY, LARGE] = refused("InvalidInstanceType.ValueNotSupported")
    shop.reader.consider([LARGE, XLARGE])
    shop.reader.refresh()
    assert shop.prices.is_estimated(LARGE)
    assert not shop.prices.is_estimated(XLARGE)

    shop.faults.clear()
    for minutes, is_asked in ((59, False), (1, True)):
        shop.clients.calls.clear()
        shop.clock.at += timedelta(minutes=minutes)
        shop.reader.refresh()
        assert (LARGE in shop.asked(PRICE)) == is_asked


def test_a_refused_history_does_not_say_that_a_type_is_not_sold_as_spot():
    def refuse(action: str, parameters: Mapping[str, object]) -> dict[str, object]:
        raise AuthError("no", action=f"ecs:{action}")

    with pytest.raises(AuthError):
        fetch_spot_history(refuse, LARGE, 1)


def test_an_account_without_price_permission_uses_list_prices(tmp_path: Path):
    shop = PriceCloud(tmp_path, LARGE)
    shop.faults[PRICE] = refused("Forbidden.RAM", 403)
    shop.reader.consider([LARGE])

    with pytest.raises(AuthError, match="ecs:DescribePrice"):
        shop.reader.refresh()
    assert shop.prices.on_demand(info(LARGE)).amount == 1.5
    assert shop.prices.spot(info(LARGE), A).amount == 0.2

    shop.clients.calls.clear()
    shop.clock.at += timedelta(minutes=30)
    shop.reader.refresh()
    assert shop.asked(PRICE) == []

    shop.faults.clear()
    shop.clock.at += timedelta(minutes=30)
    shop.reader.refresh()
    assert shop.prices.on_demand(info(LARGE)).amount == 1.0


def test_prices_read_before_a_failure_are_kept(tmp_path: Path):
    shop = PriceCloud(tmp_path, LARGE, XLARGE)
    shop.faults[PRICE, XLARGE] = refused("ServiceUnavailable", 503)
    shop.reader.consider([LARGE, XLARGE])

    with pytest.raises(CloudProviderError, match="ServiceUnavailable"):
        shop.reader.refresh()
    assert not shop.prices.is_estimated(LARGE)
    restored = RegionPrices(REGION)
    restored.restore(shop.disk, now=shop.clock.now())
    assert restored.on_demand(info(LARGE)).amount == 1.0

    shop.faults.clear()
    shop.reader.refresh()
    assert not shop.prices.is_estimated(XLARGE)


def test_both_protected_times_are_read_when_both_are_used(tmp_path: Path):
    shop = PriceCloud(tmp_path, LARGE)
    shop.prices.watch_spot(0)
    shop.reader.consider([LARGE])
    shop.reader.refresh()

    assert {it["SpotDuration"] for it in shop.clients.asked(HISTORY)} == {0, 1}


def test_unused_types_are_not_priced_exactly(tmp_path: Path):
    shop = PriceCloud(tmp_path)
    shop.reader.consider([LARGE])
    shop.reader.refresh()
    shop.clients.calls.clear()
    shop.clock.at += timedelta(days=2)
    shop.reader.refresh()

    assert shop.asked(PRICE) == shop.asked(HISTORY) == []


def test_the_users_file_is_read_at_once_and_again_when_it_changes(tmp_path: Path):
    path = tmp_path / "given.json"
    path.write_text(json.dumps({REGION: {LARGE: {"onDemand": 0.5}}}))
    shop = PriceCloud(tmp_path, LARGE, price_file=str(path))
    assert shop.prices.on_demand(info(LARGE)).amount == 0.5

    path.write_text(json.dumps({REGION: {LARGE: {"onDemand": 0.625}}}))
    assert shop.reader.refresh()
    assert shop.prices.on_demand(info(LARGE)).amount == 0.625

    path.write_text("{")
    shop.reader.refresh()
    assert shop.prices.on_demand(info(LARGE)).amount == 0.625


def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path):
    with pytest.raises(SettingsError, match=r"missing\.json"):
        PriceCloud(tmp_path, LARGE, price_file=str(tmp_path / "missing.json"))


@pytest.mark.parametrize(
    ("price", "expected"),
    [
        ({"TradePrice": 1.5, "Currency": "USD"}, (1.5, "USD")),
        ({"TradePrice": 0, "Currency": "USD"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_an_answer_without_parts_is_the_whole_price(price: object, expected: object):
    assert read_price({"PriceInfo": {"Price": price}}) == expected


def test_rows_of_a_history_that_cannot_be_read_are_left_out():
    rows = [
        {"ZoneId": A, "SpotPrice": "x", "Timestamp": "2026-03-01T11:00:00Z"},
        {"ZoneId": A, "SpotPrice": 0.1, "Timestamp": "2026-03-01T10:00:00Z"},
        {"ZoneId": "", "SpotPrice": 0.1, "Timestamp": "2026-03-01T10:00:00Z"},
        {"ZoneId": B, "SpotPrice": 0},
    ]

    history = read_spot_history(rows)
    assert history.by_zone == {A: 0.1}
    assert history.on_demand is None


def test_advice_is_by_type_and_zone():
    rows = [
        {"InstanceType": LARGE, "AverageSpotDiscount": 10, "InterruptionRate": "0.0"},
        {"InstanceType": XLARGE, "AverageSpotDiscount": None},
        {"InstanceType": OTHER, "AverageSpotDiscount": 20, "InterruptionRate": "x"},
        {"InstanceType": "ecs.odd", "AverageSpotDiscount": 30, "InterruptionRate": 7.5},
    ]
    zone = {"ZoneId": A, "AvailableSpotResources": {"AvailableSpotResource": rows}}

    assert read_spot_advice({"AvailableSpotZones": {"AvailableSpotZone": [zone]}}) == {
        LARGE: {A: SpotAdvice(10.0, 0.0)},
        OTHER: {A: SpotAdvice(20.0, None)},
        "ecs.odd": {A: SpotAdvice(30.0, 7.5)},
    }


@pytest.mark.parametrize("newest_first", [True, False])
def test_the_latest_price_of_a_history_counts_in_any_order(newest_first: bool):
    rows = [
        {
            "ZoneId": A,
            "Timestamp": f"2026-01-01T0{hour}:00:00Z",
            "SpotPrice": spot,
            "OriginPrice": origin,
        }
        for hour, spot, origin in ((1, 0.3, 1.0), (2, 0.2, 1.5), (3, 0.4, 1.2))
    ]

    history = read_spot_history(rows[::-1] if newest_first else rows)

    assert (history.by_zone, history.on_demand) == ({A: 0.4}, 1.2)
