"""Summaries have exact quantiles of recent observations."""

from __future__ import annotations

import math

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from karpenter_core.controllers.metrics.quantiles import (
    MAX_OBSERVATIONS,
    WINDOW_SECONDS,
    QuantileSummary,
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def registry():
    return CollectorRegistry()


def summary(registry, clock, *labels):
    return QuantileSummary("wait_seconds", "How long.", labels, registry=registry, now=clock)


def scraped(registry) -> dict[tuple[str, str], float]:
    """Samples by name and quantile, read back from what is served."""
    (family,) = text_string_to_metric_families(generate_latest(registry).decode())
    assert family.type == "summary"
    return {
        (sample.name.removeprefix("wait_seconds"), sample.labels.get("quantile", "")): sample.value
        for sample in family.samples
    }


def test_quantiles_are_those_of_the_observed_values(registry, clock):
    """Beside the count and the sum."""
    waits = summary(registry, clock)
    for seconds in range(200, 0, -1):
        waits.observe(float(seconds))

    assert scraped(registry) == {
        ("", "0"): 1.0,
        ("", "0.5"): 100.0,
        ("", "0.9"): 180.0,
        ("", "0.99"): 198.0,
        ("", "1"): 200.0,
        ("_sum", ""): 20100.0,
        ("_count", ""): 200.0,
    }


def test_old_observations_count_for_the_sum_alone(registry, clock):
    waits = summary(registry, clock)
    waits.observe(100.0)
    clock.now = WINDOW_SECONDS - 1
    waits.observe(1.0)
    assert scraped(registry)["", "1"] == 100.0

    clock.now = WINDOW_SECONDS
    result = scraped(registry)
    assert (result["", "1"], result["_count", ""], result["_sum", ""]) == (1.0, 2.0, 101.0)

    clock.now = 2 * WINDOW_SECONDS - 1
    assert math.isnan(scraped(registry)["", "0.5"])


def test_the_latest_observations_count(registry, clock):
    waits = summary(registry, clock)
    waits.observe(10.0**9)
    for _ in range(MAX_OBSERVATIONS):
        waits.observe(1.0)

    assert scraped(registry)["", "1"] == 1.0


def test_series_are_distinguished_by_their_labels(registry, clock):
    waits = summary(registry, clock, "nodepool")
    waits.labels(nodepool="web").observe(1.0)
    waits.labels(nodepool="db").observe(5.0)
    waits.labels(nodepool="web").observe(3.0)

    text = generate_latest(registry).decode()

    assert 'wait_seconds{nodepool="web",quantile="1"} 3.0' in text
    assert 'wait_seconds_count{nodepool="web"} 2.0' in text
    assert 'wait_seconds_sum{nodepool="db"} 5.0' in text


def test_observations_that_no_scrape_shows_any_more_are_not_kept(registry, clock):
    """A process that observes little would keep ten thousand of each series for weeks."""
    waits = summary(registry, clock)
    for _ in range(100):
        waits.observe(1.0)
    clock.now = WINDOW_SECONDS + 1
    waits.observe(2.0)

    assert len(waits.labels()._latest) == 1
    assert scraped(registry)["_count", ""] == 101.0
