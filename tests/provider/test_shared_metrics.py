"""Several providers of one process share metrics."""

from __future__ import annotations

import gc
import weakref

import pytest
from prometheus_client import CollectorRegistry, Counter

from karpenter_core.api.labels import CAPACITY_TYPE, ZONE
from karpenter_core.provider.catalogue import (
    InstanceType,
    Offering,
    Price,
    Requirement,
    Requirements,
)
from karpenter_core.provider.kit.batch_sizes import BatchSizeMetric
from karpenter_core.provider.kit.offering_series import OfferingSeries
from karpenter_core.provider.kit.shared_metrics import acquire_metric, release_metric

NAME = "held_total"


class StillClock:
    """Does not move."""

    def now(self):
        raise NotImplementedError

    def monotonic(self):
        return 0.0


@pytest.fixture
def registry():
    return CollectorRegistry()


def hold(registry):
    return acquire_metric(registry, NAME, lambda: Counter(NAME, "Held.", registry=registry))


def large(name, zone, price):
    offering = Offering(
        requirements=Requirements(
            (
                Requirement.of(CAPACITY_TYPE, "In", ("on-demand",)),
                Requirement.of(ZONE, "In", (zone,)),
            )
        ),
        price=Price(price),
        available=True,
    )
    facts = Requirements((Requirement.of("cpus", "In", ("2",)),))
    return InstanceType(
        name=name, requirements=facts, offerings=(offering,), capacity={"memory": 2**30}
    )


def series(registry):
    return OfferingSeries(
        registry, StillClock(), cpu_label="cpus", memory_label="mib", with_reserved=False
    )


def test_all_who_hold_a_metric_hold_the_same(registry):
    first, second = hold(registry), hold(registry)
    first.inc()
    second.inc()

    assert registry.get_sample_value(NAME) == 2


def test_the_last_that_lets_go_takes_it_out(registry):
    hold(registry)
    hold(registry).inc()
    release_metric(registry, NAME)
    assert registry.get_sample_value(NAME) == 1

    release_metric(registry, NAME)
    release_metric(registry, NAME)

    assert list(registry.collect()) == []
    hold(registry)
    assert registry.get_sample_value(NAME) == 0


def test_an_unused_registry_is_released(registry):
    hold(registry)
    gone = weakref.ref(other := CollectorRegistry())
    hold(other)
    release_metric(other, NAME)

    del other
    gc.collect()

    assert gone() is None
    assert registry.get_sample_value(NAME) == 0


def test_two_providers_report_their_offerings_together(registry):
    one, two = series(registry), series(registry)
    one.record("web", [large("m5.large", "us-east-1a", 0.1)])
    two.record("web", [large("ecs.g7.large", "cn-hangzhou-b", 0.7)])

    def price(name, zone):
        return registry.get_sample_value(
            "karpenter_cloudprovider_instance_type_offering_price_estimate",
            {"instance_type": name, "capacity_type": "on-demand", "zone": zone},
        )

    assert (price("m5.large", "us-east-1a"), price("ecs.g7.large", "cn-hangzhou-b")) == (0.1, 0.7)
    one.close()
    assert (price("m5.large", "us-east-1a"), price("ecs.g7.large", "cn-hangzhou-b")) == (None, 0.7)
    two.close()
    assert list(registry.collect()) == []


def test_two_providers_count_their_batches_side_by_side(registry):
    one, two = BatchSizeMetric(registry), BatchSizeMetric(registry)
    one.observe("create_fleet", 5)
    two.observe("delete_instances", 7)

    for batcher, size in (("create_fleet", 5), ("delete_instances", 7)):
        labels = {"batcher": batcher}
        name = "karpenter_cloudprovider_batcher_batch_size_sum"
        assert registry.get_sample_value(name, labels) == size
