"""The catalogue of the simulated AWS, over real calls: types, zones and prices of a whole region."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from karpenter_core.errors import AuthError
from karpenter_core.provider.catalogue import Price
from karpenter_provider_aws.catalogue.region_types import RegionTypeReader, fetch_region_types
from karpenter_provider_aws.prices import RegionPrices
from providers.aws.tests.catalogue.recorded_region import region

if TYPE_CHECKING:
    from pathlib import Path

    from karpenter_provider_aws.sdk import CloudClients
    from karpenter_simulated_aws.cloud import SimulatedAws


class SystemTime:
    """The system clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)


def test_types_and_zones_are_those_of_the_region(clients: CloudClients, aws: SimulatedAws):
    found = fetch_region_types(clients).value

    assert found == region()
    assert aws.calls.count("DescribeInstanceTypes") == -(-len(region().types) // 100)
    assert aws.calls.count("DescribeInstanceTypeOfferings") > 1


def test_prices_are_read_from_both_lists(
    few_types_clients: CloudClients, few_types_aws: SimulatedAws
):
    aws, clients = few_types_aws, few_types_clients
    aws.prices.set_on_demand("m5.large", 1.25)
    aws.prices.set_spot("m5.large", "us-east-1a", 0.5)
    aws.prices.set_spot("m5.large", "us-east-1b", 0)
    prices = RegionPrices("us-east-1")

    assert prices.refresh(clients, now=datetime.now(UTC))
    assert prices.on_demand("m5.large") == Price(1.25)
    assert prices.on_demand("m5.metal") != RegionPrices("us-east-1").on_demand("m5.metal")
    assert prices.spot("m5.large", "us-east-1a") == Price(0.5)
    assert prices.spot("m5.large", "us-east-1b") is None


def test_a_refusal_is_reported(clients: CloudClients, aws: SimulatedAws, tmp_path: Path):
    catalogue = RegionTypeReader(clients, SystemTime(), tmp_path)

    with aws.deny("DescribeInstanceTypes"), pytest.raises(AuthError, match="DescribeInstanceTypes"):
        catalogue.current()
