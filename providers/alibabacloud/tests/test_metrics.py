"""The provider's metrics, and their rows in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from karpenter_core.api.labels import CAPACITY_TYPE, ZONE
from karpenter_core.provider.catalogue import (
    InstanceType,
    Offering,
    Price,
    Requirement,
    Requirements,
)
from karpenter_provider_alibabacloud.api.nodeclass import VSwitchTerm
from karpenter_provider_alibabacloud.codes import ApiError
from karpenter_provider_alibabacloud.discovery.vswitches import VSwitchReader
from karpenter_provider_alibabacloud.labels import INSTANCE_CPU, INSTANCE_MEMORY
from karpenter_provider_alibabacloud.metrics import AlibabaCloudMetrics
from karpenter_provider_alibabacloud.sdk import CloudClients
from providers.alibabacloud.tests.manual_clock import HandClock

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
OURS = "karpenter_alibabacloud_"


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def metrics(registry, clock):
    return AlibabaCloudMetrics(registry, clock, with_reserved=True)


def test_offerings_and_types_have_series(metrics, registry):
    offering = Offering(
        requirements=Requirements(
            (
                Requirement.of(CAPACITY_TYPE, "In", ("spot",)),
                Requirement.of(ZONE, "In", ("cn-hangzhou-b",)),
            )
        ),
        price=Price(0.2),
        available=False,
    )
    info = {INSTANCE_CPU: "2", INSTANCE_MEMORY: "8192"}
    large = InstanceType(
        name="ecs.g7.large",
        requirements=Requirements(
            tuple(Requirement.of(key, "In", (value,)) for key, value in info.items())
        ),
        offerings=(offering,),
        capacity={"memory": 7659 * 2**20},
    )
    metrics.offerings.record("web", [large])

    prefix = "karpenter_cloudprovider_instance_type_"
    of_type = {"instance_type": "ecs.g7.large"}
    sold = {**of_type, "capacity_type": "spot", "zone": "cn-hangzhou-b"}
    read = registry.get_sample_value
    assert read(f"{prefix}offering_available", sold) == 0
    assert read(f"{prefix}offering_price_estimate", sold) == 0.2
    assert read(f"{prefix}cpu_cores", of_type) == 2
    assert read(f"{prefix}memory_bytes", of_type) == 8192 * 2**20


def test_calls_are_counted_with_how_they_ended(cloud, metrics, registry):
    with CloudClients(
        region=cloud.account.region,
        endpoint_ecs=cloud.endpoint,
        protocol="http",
        observe=metrics.calls.observe,
        sleep=lambda _seconds: None,
    ) as clients:
        asked = {"RegionId": cloud.account.region}
        with cloud.fail("DescribeInstances", code="Throttling.User", times=1):
            clients.ecs.call("DescribeInstances", asked)
        with cloud.deny("DescribeInstances"), pytest.raises(ApiError):
            clients.ecs.call("DescribeInstances", asked)

    def counted(code):
        labels = {"action": "ecs:DescribeInstances", "code": code}
        return registry.get_sample_value(f"{OURS}api_requests_total", labels)

    assert (counted("OK"), counted("Throttling.User"), counted("Forbidden.RAM")) == (1, 1, 1)
    took = registry.get_sample_value(
        f"{OURS}api_duration_seconds_count", {"action": "ecs:DescribeInstances"}
    )
    assert took == 3


def test_launches_and_batches_are_measured(metrics, registry):
    metrics.observe_targets(20)
    metrics.observe_batch("delete_instances", 5)

    assert registry.get_sample_value(f"{OURS}launch_pairs_tried_sum") == 20
    size = "karpenter_cloudprovider_batcher_batch_size_sum"
    assert registry.get_sample_value(size, {"batcher": "delete_instances"}) == 5


def test_prices_that_are_estimated_have_a_number(metrics, registry):
    for count in (7, 2):
        metrics.observe_estimated(count)

    assert registry.get_sample_value(f"{OURS}estimated_prices") == 2


def test_free_addresses_are_those_of_the_last_resolution(cloud, clients, metrics, registry, clock):
    vswitch = cloud.world.vswitches["cn-hangzhou-b"]
    found = VSwitchReader(clients, clock, observe=metrics.observe_vswitches).find(
        [VSwitchTerm(id=vswitch)]
    )

    def address_gauge():
        labels = {"vswitch": vswitch, "zone": "cn-hangzhou-b"}
        return registry.get_sample_value(f"{OURS}vswitch_available_ips", labels)

    assert address_gauge() == found.items[0].free_addresses
    clock.forward(minutes=31)
    assert address_gauge() is None


def test_a_provider_can_be_started_again_with_the_same_registry(metrics, registry, clock):
    metrics.close()

    assert list(registry.collect()) == []
    AlibabaCloudMetrics(registry, clock, with_reserved=True).close()


def test_every_metric_has_its_row(registry, clock):
    """Name and type as they are exposed; and no row without its metric."""
    AlibabaCloudMetrics(registry, clock, with_reserved=True)
    declared = {
        (f"{family.name}{'_total' if family.type == 'counter' else ''}", family.type)
        for family in registry.collect()
    }

    text = DOCUMENTATION.read_text()
    section = text.partition("| Alibaba Cloud metric |")[2].partition("\n\n")[0]

    documented = set(re.findall(r"^\| `([^`]*)` \| (\w+) \|", section, re.MULTILINE))
    assert documented == declared
