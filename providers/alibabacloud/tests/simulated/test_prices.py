"""Tests the prices of the simulated Alibaba Cloud."""

from __future__ import annotations

import pytest

from karpenter_provider_alibabacloud.codes import ApiError

REGION = {"RegionId": "cn-hangzhou"}


def price(clients, instance_type, **more):
    answer = clients.ecs.call(
        "DescribePrice",
        {**REGION, "ResourceType": "instance", "InstanceType": instance_type, **more},
    )
    return answer["PriceInfo"]["Price"]


def history(clients, instance_type, **more):
    answer = clients.ecs.call(
        "DescribeSpotPriceHistory",
        {**REGION, "InstanceType": instance_type, "NetworkType": "vpc", **more},
    )
    return answer["SpotPrices"]["SpotPriceType"]


def test_a_price_is_near_that_of_hangzhou_and_grows_with_the_instance(cloud, clients):
    xlarge, double = (price(clients, f"ecs.g7.{size}") for size in ("xlarge", "2xlarge"))

    assert xlarge["Currency"] == "CNY"
    assert xlarge["TradePrice"] == pytest.approx(1.0, rel=0.1)
    assert double["TradePrice"] == pytest.approx(2 * xlarge["TradePrice"], rel=0.01)


def test_the_disk_price_is_included_and_listed_separately(cloud, clients):
    answered = price(clients, "ecs.g7.large", SystemDisk={"Category": "cloud_essd", "Size": 40})

    parts = {each["Resource"]: each["TradePrice"] for each in answered["DetailInfos"]["DetailInfo"]}
    assert parts["instanceType"] == cloud.prices.on_demand("ecs.g7.large")
    assert answered["TradePrice"] == pytest.approx(sum(parts.values()))


def test_an_unlisted_type_has_no_price(cloud, clients):
    cloud.prices.set_on_demand("ecs.g7.large", 0)

    with pytest.raises(ApiError) as caught:
        price(clients, "ecs.g7.large")

    assert caught.value.code == "PriceNotFound"


def test_the_newest_entry_of_the_history_is_the_price_of_now(cloud, clients):
    cloud.prices.set_spot("ecs.g7.large", "cn-hangzhou-g", 0.11)

    rows = history(clients, "ecs.g7.large", ZoneId="cn-hangzhou-g")

    assert len(rows) == 3
    assert max(rows, key=lambda row: row["Timestamp"])["SpotPrice"] == 0.11
    assert {each["ZoneId"] for each in history(clients, "ecs.g7.large")} == {
        "cn-hangzhou-b",
        "cn-hangzhou-g",
    }


def test_a_type_without_spot_has_no_price_history(cloud, clients):
    assert history(clients, "ecs.d3s.2xlarge") == []


def test_a_long_history_comes_in_pages(cloud, clients):
    from datetime import timedelta

    start = cloud.time() - timedelta(days=29)
    rows = list(
        clients.ecs.pages(
            "DescribeSpotPriceHistory",
            {
                **REGION,
                "InstanceType": "ecs.g7.large",
                "NetworkType": "vpc",
                "StartTime": f"{start:%Y-%m-%dT%H:%M:%SZ}",
                "Offset": 0,
            },
            items="SpotPrices.SpotPriceType",
        )
    )

    assert len(rows) > 1000
    assert cloud.calls.count("DescribeSpotPriceHistory") == -(-len(rows) // 1000)


def test_advice_covers_at_most_ten_types_and_has_discounts(cloud, clients):
    names = [each.name for each in cloud.catalogue.types]

    answer = clients.ecs.call("DescribeSpotAdvice", {**REGION, "InstanceTypes": names[:10]})
    with pytest.raises(ApiError):
        clients.ecs.call("DescribeSpotAdvice", {**REGION, "InstanceTypes": names[:11]})

    for zone in answer["AvailableSpotZones"]["AvailableSpotZone"]:
        for row in zone["AvailableSpotResources"]["AvailableSpotResource"]:
            spot = cloud.prices.spot(row["InstanceType"], zone["ZoneId"])
            on_demand = cloud.prices.on_demand(row["InstanceType"])
            assert row["AverageSpotDiscount"] == round(spot / on_demand * 100)


def test_spot_prices_vary_by_the_hour_when_configured(cloud, clients):
    steady = {row["SpotPrice"] for row in history(clients, "ecs.g7.large", ZoneId="cn-hangzhou-b")}
    cloud.prices.walk = 0.2
    before = cloud.prices.spot("ecs.g7.large", "cn-hangzhou-b")
    cloud.time.advance(3600)
    rows = history(clients, "ecs.g7.large", ZoneId="cn-hangzhou-b")

    assert len(steady) == 1
    assert len({row["SpotPrice"] for row in rows}) > 1
    assert sorted(rows, key=lambda row: row["Timestamp"])[-2]["SpotPrice"] == before


def test_list_prices_vary_by_the_day_when_configured(cloud, clients):
    steady = cloud.prices.on_demand("ecs.g7.large")
    cloud.time.advance(24 * 3600)
    assert price(clients, "ecs.g7.large")["TradePrice"] == steady

    cloud.prices.on_demand_walk = 0.1
    answered = set()
    for _ in range(3):
        answered.add(price(clients, "ecs.g7.large")["TradePrice"])
        cloud.time.advance(24 * 3600)

    assert len(answered) == 3
    assert all(abs(each - steady) <= 0.1 * steady + 0.0001 for each in answered)
