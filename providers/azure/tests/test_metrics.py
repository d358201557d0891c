"""Tests the provider's metrics, and their rows in the documentation."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from karpenter_core.provider.kit.shortages import Shortage
from karpenter_core.provider.kit.unavailable_offerings import (
    UnavailableOffering,
    UnavailableOfferings,
)
from karpenter_provider_azure.catalogue.prices import ListedPrices, RegionPrices
from karpenter_provider_azure.catalogue.quotas import RegionQuotas
from karpenter_provider_azure.metrics import AzureMetrics
from providers.azure.tests.catalogue.sku_items import NOW, SetClock, usage, vm_size

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
FAMILY = "standardDSv5Family"


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


class Region:
    """A region whose state is exported."""

    def __init__(self, registry: CollectorRegistry, clock: SetClock) -> None:
        self.usages: list[dict[str, Any]] = []
        self.quotas = RegionQuotas(clock, fetch=lambda: self.usages)
        self.prices = RegionPrices("westus2")
        self.unavailable = UnavailableOfferings()
        self.metrics = AzureMetrics(registry, clock, with_reserved=False)
        self.metrics.watch_region(
            quotas=self.quotas, prices=self.prices, unavailable_offerings=self.unavailable
        )


@pytest.fixture
def region(registry: CollectorRegistry, clock: SetClock) -> Region:
    return Region(registry, clock)


def read(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"karpenter_{name}", labels)


def test_vcpu_quotas_are_exported_with_the_reservations_of_launches(
    region: Region, registry: CollectorRegistry
) -> None:
    region.usages = [
        usage(FAMILY, limit=10, used=4),
        usage("availabilitySets", limit=2500, used=0),
    ]
    region.quotas.refresh()
    region.quotas.reserve("claim", vm_size("Standard_D2s_v5", family=FAMILY), "on-demand")

    assert read(registry, "azure_quota_remaining_vcpus", quota=FAMILY.lower()) == 4
    assert read(registry, "azure_quota_remaining_vcpus", quota="availabilitysets") is None


def test_prices_have_an_age_once_they_are_read(
    region: Region, registry: CollectorRegistry, clock: SetClock
) -> None:
    assert read(registry, "azure_price_age_seconds", capacity_type="on-demand") is None

    region.prices.update(ListedPrices({"Standard_D2s_v5": 0.1}, {}), now=NOW)
    clock.advance(hours=2)

    assert read(registry, "azure_price_age_seconds", capacity_type="on-demand") == 7200
    assert read(registry, "azure_price_age_seconds", capacity_type="spot") is None


def test_marks_are_counted_until_they_end(
    region: Region, registry: CollectorRegistry, clock: SetClock
) -> None:
    hour = timedelta(hours=1)
    region.unavailable.mark(UnavailableOffering("a", "0", "spot"), now=NOW, life=hour)
    region.unavailable.mark_shortages(Shortage(zone="westus2-1"), now=NOW, life=hour)

    name = "azure_unavailable_marks"
    assert read(registry, name, scope="offering", capacity_type="spot") == 1
    assert read(registry, name, scope="shortage", capacity_type="any") == 1

    clock.advance(hours=1)
    assert read(registry, name, scope="shortage", capacity_type="any") is None


@pytest.mark.parametrize(
    ("limit", "minutes"), [("subscription-deletes", 5), ("Microsoft.Compute/DeleteVM30Min", 30)]
)
def test_remaining_requests_are_exported_until_azure_has_renewed_them(
    region: Region, registry: CollectorRegistry, clock: SetClock, limit: str, minutes: int
) -> None:
    """An alert about few of them would go on for as long as nothing more is asked."""

    def left() -> float | None:
        return read(registry, "azure_remaining_requests", limit=limit)

    region.metrics.observe_remaining({limit: 11})
    clock.advance(seconds=60 * minutes - 1)
    before = left()
    clock.advance(seconds=1)

    assert (before, left()) == (11, None)


def test_remaining_requests_and_image_errors_are_exported(
    region: Region, registry: CollectorRegistry
) -> None:
    region.metrics.observe_remaining({"Microsoft.Compute/PutVM3Min": 11})
    region.metrics.observe_image_error("Ubuntu")

    limit = "Microsoft.Compute/PutVM3Min"
    assert read(registry, "azure_remaining_requests", limit=limit) == 11
    assert read(registry, "image_selection_error_count", family="Ubuntu") == 1


def test_a_closed_provider_leaves_no_metrics(
    region: Region, registry: CollectorRegistry, clock: SetClock
) -> None:
    region.metrics.close()

    assert not list(registry.collect())
    Region(registry, clock).metrics.close()


def test_every_metric_has_a_row_in_the_documentation(
    region: Region, registry: CollectorRegistry
) -> None:
    region.metrics.calls.observe("skus:list", "OK", 0.1)
    text = DOCUMENTATION.read_text(encoding="utf-8")
    chapter = text.split("\n## Azure\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", chapter, re.MULTILINE))

    exported = {
        f"{metric.name}_total" if metric.type == "counter" else metric.name: metric.type
        for metric in registry.collect()
    }

    assert rows == exported
