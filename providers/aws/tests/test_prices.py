"""Prices are read, cached and shipped: acceptance cases 72-76."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_core.provider.catalogue import Price
from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_provider_aws.prices import RegionPrices, read_products, read_spot_history
from karpenter_provider_aws.sdk import pricing_region
from providers.aws.tests.stubbed_clients import StubbedClients

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
METAL = "bare metal"
SHARED = "Shared"


def product(name: str, price: str, currency: str = "USD") -> str:
    dimension = {"unit": "Hrs", "pricePerUnit": {currency: price}}
    return json.dumps(
        {
            "product": {"attributes": {"instanceType": name}},
            "terms": {"OnDemand": {"A.B": {"priceDimensions": {"A.B.C": dimension}}}},
        }
    )


def product_filters(tenancy: str, family: str, region: str = "us-east-1") -> dict[str, Any]:
    wanted = {
        "regionCode": region,
        "serviceCode": "AmazonEC2",
        "preInstalledSw": "NA",
        "operatingSystem": "Linux",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "tenancy": tenancy,
        "productFamily": family,
    }
    return {
        "ServiceCode": "AmazonEC2",
        "FormatVersion": "aws_v1",
        "MaxResults": 100,
        "Filters": [{"Type": "TERM_MATCH", "Field": f, "Value": v} for f, v in wanted.items()],
    }


def spot_request(**more: Any) -> dict[str, Any]:
    return {
        "ProductDescriptions": ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"],
        "StartTime": NOW,
        "MaxResults": 500,
        **more,
    }


def spot(name: str, zone: str, price: str, *, hours_ago: float = 1) -> Any:
    return {
        "InstanceType": name,
        "AvailabilityZone": zone,
        "SpotPrice": price,
        "Timestamp": NOW - timedelta(hours=hours_ago),
    }


def cloud(
    shared: list[str],
    metal: list[str],
    spots: list[Any] | None = None,
    *,
    region: str = "us-east-1",
) -> StubbedClients:
    clients = StubbedClients(region)
    family = "Compute Instance"
    clients.page(
        "get_products",
        {"PriceList": shared},
        product_filters(SHARED, family, region),
        of=SHARED,
    )
    clients.page(
        "get_products",
        {"PriceList": metal},
        product_filters("Dedicated", f"{family} (bare metal)", region),
        of=METAL,
    )
    history = [spot("m5.large", "us-east-1a", "0.03")] if spots is None else spots
    clients.page("describe_spot_price_history", {"SpotPriceHistory": history}, spot_request())
    return clients


def test_prices_that_were_read_stand_in_place_of_shipped_ones():
    """Case 72."""
    prices = RegionPrices("us-east-1")
    clients = cloud([product("c98.large", "1.20")], [product("c99.large", "1.23")])

    assert prices.refresh(clients, now=NOW)
    assert prices.on_demand("c98.large") == Price(1.20)
    assert prices.on_demand("c99.large") == Price(1.23)
    assert prices.on_demand("c5.large") == Price(0.085)
    assert prices.spot("m5.large", "us-east-1a") == Price(0.03)


def test_reading_the_same_prices_again_changes_nothing():
    prices = RegionPrices("us-east-1")
    prices.refresh(cloud([product("a", "1")], [product("b", "2")]), now=NOW)
    revision = prices.revision

    assert not prices.refresh(cloud([product("a", "1")], [product("b", "2")]), now=NOW)
    assert prices.revision == revision


def test_a_price_list_that_cannot_be_read_leaves_shipped_prices_and_spot_is_read():
    """Case 72."""
    prices = RegionPrices("us-east-1")
    clients = cloud([], [])
    clients._answers = {k: v for k, v in clients._answers.items() if k[0] != "get_products"}
    for of in (SHARED, METAL):
        clients.fail("get_products", "AccessDeniedException", of=of)

    with pytest.raises(AuthError, match="pricing:GetProducts"):
        prices.refresh(clients, now=NOW)
    assert prices.on_demand("c5.large") == Price(0.085)
    assert prices.spot("m5.large", "us-east-1a") == Price(0.03)


@pytest.mark.parametrize(
    ("shared", "metal", "named"),
    [
        ([product("c98.large", "1.20")], [], "bare metal"),
        ([], [product("c98.metal", "1.20")], "Shared"),
    ],
)
def test_an_incomplete_price_list_is_not_used(shared: list[str], metal: list[str], named: str):
    """Case 73."""
    prices = RegionPrices("us-east-1")
    prices.update_on_demand({"c98.large": 9.0, "c98.metal": 9.0}, now=NOW)

    with pytest.raises(CloudProviderError, match=named):
        prices.refresh(cloud(shared, metal), now=NOW)
    assert prices.on_demand("c98.large") == Price(9.0)
    assert prices.on_demand("c98.metal") == Price(9.0)


def test_both_failures_are_reported():
    prices = RegionPrices("us-east-1")

    with pytest.raises(CloudProviderError, match=r"(?s)GetProducts.*DescribeSpotPriceHistory|"
                       r"DescribeSpotPriceHistory.*GetProducts"):  # fmt: skip
        prices.refresh(cloud([], [], []), now=NOW)


def test_prices_in_china_are_in_yuan():
    """Case 72."""
    prices = RegionPrices("cn-north-1")
    clients = cloud(
        [product("c98.large", "8.5", "CNY"), product("c97.large", "8.5", "USD")],
        [product("c99.metal", "12", "CNY")],
        region="cn-north-1",
    )
    prices.refresh(clients, now=NOW)

    assert prices.on_demand("c98.large") == Price(8.5, "CNY")
    assert prices.on_demand("c97.large") is None
    assert prices.on_demand("c5.large") == Price(0.739, "CNY")


def test_spot_has_the_on_demand_price_until_spot_prices_are_read():
    """Case 74."""
    prices = RegionPrices("us-east-1")
    before = prices.spot("c5.large", "us-east-1a")
    prices.update_spot({("c5.large", "us-east-1a"): 0.03}, now=NOW)

    assert before == Price(0.085)
    assert prices.spot("c5.large", "us-east-1a") == Price(0.03)
    assert prices.spot("c5.large", "us-east-1b") is None
    assert prices.spot("m5.large", "us-east-1a") is None


@pytest.mark.parametrize(("region", "isolated"), [("us-gov-west-1", False), ("us-east-1", True)])
def test_an_unreachable_price_list_is_not_requested(region: str, isolated: bool):
    """Case 75."""
    prices = RegionPrices(region, isolated=isolated)
    clients = cloud([], [], region=region)

    prices.refresh(clients, now=NOW)

    assert clients.called == ["describe_spot_price_history"]
    assert prices.on_demand("c5.large") is not None


@pytest.mark.parametrize(
    ("region", "endpoint"),
    [
        ("ap-southeast-1", "ap-south-1"),
        ("eu-west-1", "eu-central-1"),
        ("sa-east-1", "us-east-1"),
        ("cn-north-1", "cn-northwest-1"),
        ("eusc-de-east-1", "eusc-de-east-1"),
        ("us-iso-west-1", "us-iso-east-1"),
        ("us-isob-west-1", "us-isob-east-1"),
        ("us-isof-east-1", "us-isof-south-1"),
        ("eu-isoe-west-1", "eu-isoe-west-1"),
    ],
)
def test_prices_are_read_from_the_region_that_serves_them(region: str, endpoint: str):
    """Case 76."""
    assert pricing_region(region) == endpoint


def test_the_region_of_the_price_list_is_one_of_the_partition_that_serves_it():
    """Credentials of one partition are unknown in every other one."""
    session = botocore.session.get_session()
    for partition in session.get_available_partitions():
        endpoints = session.get_available_regions("pricing", partition)
        if not endpoints:  # GovCloud has none
            continue
        for region in session.get_available_regions("ec2", partition):
            assert pricing_region(region) in endpoints, region


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        ("us-east-1", Price(0.085)),
        ("eu-west-3", Price(0.085)),
        ("us-gov-east-1", Price(0.102)),
        ("us-gov-new-1", Price(0.102)),
        ("cn-northwest-1", Price(0.739, "CNY")),
        ("eusc-de-east-1", Price(0.085, "EUR")),
    ],
)
def test_every_region_has_shipped_prices_in_its_currency(region: str, expected: Price):
    assert RegionPrices(region).on_demand("c5.large") == expected


def test_all_pages_are_read():
    prices = RegionPrices("us-east-1", isolated=True)
    clients = StubbedClients()
    operation = "describe_spot_price_history"
    clients.page(
        operation,
        {"SpotPriceHistory": [spot("m5.large", "us-east-1a", "0.03")], "NextToken": "more"},
        spot_request(),
    )
    clients.page(
        operation,
        {"SpotPriceHistory": [spot("m5.large", "us-east-1b", "0.04")]},
        spot_request(NextToken="more"),
    )
    prices.refresh(clients, now=NOW)

    assert prices.spot("m5.large", "us-east-1a") == Price(0.03)
    assert prices.spot("m5.large", "us-east-1b") == Price(0.04)


def test_the_latest_spot_price_counts_in_any_order():
    items = [
        spot("m5.large", "us-east-1a", "0.03", hours_ago=2),
        spot("m5.large", "us-east-1a", "0.05", hours_ago=1),
        spot("m5.large", "us-east-1a", "0.04", hours_ago=3),
        spot("m5.large", "us-east-1b", "free", hours_ago=1),
    ]

    assert read_spot_history(items) == {("m5.large", "us-east-1a"): 0.05}
    assert read_spot_history(items[::-1]) == {("m5.large", "us-east-1a"): 0.05}


@pytest.mark.parametrize(
    "item",
    [product("a", "0.0"), product("a", "much"), product("a", "1", "EUR"), "{}", "[]", "nonsense"],
)
def test_products_without_a_price_are_left_out(item: str):
    assert read_products([item, product("b", "2")], currency="USD") == {"b": 2.0}


def test_stale_prices_are_reported():
    prices = RegionPrices("us-east-1")
    isolated = RegionPrices("us-east-1", isolated=True)
    prices.update_spot({("m5.large", "us-east-1a"): 0.03}, now=NOW)
    day = timedelta(days=1)

    assert prices.stale(now=NOW, after=day) == ("on-demand",)
    assert prices.stale(now=NOW + 2 * day, after=day) == ("on-demand", "spot")
    assert isolated.stale(now=NOW, after=day) == ("spot",)


def disk(folder: Path) -> DiskCache:
    return DiskCache(folder, "aws-prices-us-east-1", version="1")


def test_a_new_process_begins_with_the_prices_of_the_last_one(tmp_path: Path):
    clients = cloud([product("c98.large", "1.20")], [product("c99.large", "1.23")])
    RegionPrices("us-east-1").refresh(clients, now=NOW, disk=disk(tmp_path))
    later = NOW + timedelta(days=6)

    prices = RegionPrices("us-east-1")
    prices.restore(disk(tmp_path), now=later)

    assert prices.on_demand("c98.large") == Price(1.20)
    assert prices.on_demand("c5.large") == Price(0.085)
    assert prices.spot("m5.large", "us-east-1a") == Price(0.03)
    assert prices.spot("m5.large", "us-east-1b") is None
    assert prices.stale(now=later, after=timedelta(days=1)) == ("on-demand", "spot")


def test_month_old_prices_are_not_loaded_at_the_start(tmp_path: Path):
    clients = cloud([product("c98.large", "1.20")], [product("c99.large", "1.23")])
    RegionPrices("us-east-1").refresh(clients, now=NOW, disk=disk(tmp_path))

    prices = RegionPrices("us-east-1")
    prices.restore(disk(tmp_path), now=NOW + timedelta(days=8))

    assert prices.on_demand("c98.large") is None


def test_prices_of_one_list_are_kept_when_the_other_fails(tmp_path: Path):
    with pytest.raises(CloudProviderError):
        RegionPrices("us-east-1").refresh(cloud([], []), now=NOW, disk=disk(tmp_path))

    prices = RegionPrices("us-east-1")
    prices.restore(disk(tmp_path), now=NOW)

    assert prices.spot("m5.large", "us-east-1a") == Price(0.03)
    assert prices.stale(now=NOW, after=timedelta(days=1)) == ("on-demand",)


@pytest.mark.parametrize("value", [{"spot": 5}, [], {"spot": [NOW.isoformat(), {"m5.large": 1}]}])
def test_damaged_cached_prices_count_as_missing(tmp_path: Path, value: Any):
    disk(tmp_path).write(value, now=NOW)

    prices = RegionPrices("us-east-1")
    prices.restore(disk(tmp_path), now=NOW)

    assert prices.spot("c5.large", "us-east-1a") == Price(0.085)
