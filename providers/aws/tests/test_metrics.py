"""The provider's metrics (acceptance case 152), and their rows in the documentation."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, ZONE
from karpenter_core.provider.catalogue import (
    InstanceType,
    Offering,
    Price,
    Requirement,
    Requirements,
)
from karpenter_core.provider.kit.offering_series import LISTING_LIFE
from karpenter_provider_aws.labels import INSTANCE_CPU, INSTANCE_MEMORY
from karpenter_provider_aws.launch.user_data_sizes import UserDataSizes
from karpenter_provider_aws.metrics import AwsMetrics
from karpenter_provider_aws.sdk import ClientLimits, CloudClients
from karpenter_simulated_aws.testing import attempts
from providers.aws.tests.discovery.moto_world import HandClock

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
PREFIX = "karpenter_cloudprovider_instance_type_"
AVAILABLE, PRICE = f"{PREFIX}offering_available", f"{PREFIX}offering_price_estimate"


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def metrics(registry, clock):
    return AwsMetrics(registry, clock, with_reserved=True)


def offering(capacity_type, zone, price, *, available=True):
    return Offering(
        requirements=Requirements(
            (
                Requirement.of(CAPACITY_TYPE, "In", (capacity_type,)),
                Requirement.of(ZONE, "In", (zone,)),
            )
        ),
        price=Price(price),
        available=available,
    )


def large(*offerings):
    facts = {INSTANCE_TYPE: "m5.large", INSTANCE_CPU: "2", INSTANCE_MEMORY: "8192"}
    return InstanceType(
        name="m5.large",
        requirements=Requirements(
            tuple(Requirement.of(key, "In", (value,)) for key, value in facts.items())
        ),
        offerings=offerings,
        capacity={"cpu": 2000, "memory": 7577 * 2**20},
    )


def sold(registry, name, capacity_type, zone="us-east-1a"):
    labels = {"instance_type": "m5.large", "capacity_type": capacity_type, "zone": zone}
    return registry.get_sample_value(name, labels)


def test_offerings_and_types_have_series(metrics, registry):
    metrics.offerings.record(
        "web",
        [large(offering("spot", "us-east-1a", 0.04, available=False))],
    )

    of_type = {"instance_type": "m5.large"}
    assert sold(registry, AVAILABLE, "spot") == 0
    assert sold(registry, PRICE, "spot") == 0.04
    assert registry.get_sample_value(f"{PREFIX}cpu_cores", of_type) == 2
    assert registry.get_sample_value(f"{PREFIX}memory_bytes", of_type) == 8192 * 2**20


def test_an_offering_available_to_one_node_pool_is_available(metrics, registry):
    for pool, available in (("a", False), ("b", True), ("c", False)):
        types = [large(offering("on-demand", "us-east-1a", 0.1, available=available))]
        metrics.offerings.record(pool, types)

    assert sold(registry, AVAILABLE, "on-demand") == 1


def test_a_node_pool_that_cannot_be_listed_leaves_the_others(metrics, registry, clock):
    """Its own last listing stands for as long as the core goes by it."""
    broken = [large(offering("spot", "us-east-1a", 0.04))]
    fine = [large(offering("on-demand", "us-east-1a", 0.1))]
    metrics.offerings.record("broken", broken)
    clock.forward(minutes=5)
    metrics.offerings.record("fine", fine)
    assert (sold(registry, AVAILABLE, "spot"), sold(registry, AVAILABLE, "on-demand")) == (1, 1)

    clock.seconds = LISTING_LIFE.total_seconds()

    assert (sold(registry, AVAILABLE, "spot"), sold(registry, AVAILABLE, "on-demand")) == (None, 1)


@pytest.mark.parametrize(("with_reserved", "expected"), [(True, 0), (False, None)])
def test_with_reservations_every_type_and_zone_has_such_a_series(clock, with_reserved, expected):
    registry = CollectorRegistry()
    metrics = AwsMetrics(registry, clock, with_reserved=with_reserved)

    metrics.offerings.record("web", [large(offering("spot", "us-east-1a", 0.04))])

    assert sold(registry, AVAILABLE, "reserved") == expected
    assert sold(registry, PRICE, "reserved") == expected


def test_a_reservation_counts_as_itself(metrics, registry):
    metrics.offerings.record("web", [large(offering("reserved", "us-east-1a", 1e-8))])

    assert sold(registry, AVAILABLE, "reserved") == 1
    assert sold(registry, PRICE, "reserved") == 1e-8


def test_faults_are_counted(metrics, registry):
    where = {"zone": "us-east-1a", "zone_id": "use1-az1"}
    why = {"capacity_type": "spot", "reason": "SpotQuotaExceeded"}

    metrics.count_launch_failure(**where, **why)
    metrics.count_termination_failure(**where)
    metrics.count_unhealthy("SystemStatus")
    metrics.observe_batch("create_fleet", 5)

    read = registry.get_sample_value
    prefix = "karpenter_cloudprovider_instance_"
    assert read(f"{prefix}launch_failures_total", {**where, **why}) == 1
    assert read(f"{prefix}termination_failures_total", where) == 1
    unhealthy = "karpenter_interruption_instance_status_unhealthy_total"
    assert read(unhealthy, {"category": "SystemStatus"}) == 1
    size = "karpenter_cloudprovider_batcher_batch_size_sum"
    assert read(size, {"batcher": "create_fleet"}) == 5


def test_a_provider_can_be_started_again_with_the_same_registry(metrics, registry, clock):
    metrics.close()

    assert list(registry.collect()) == []
    AwsMetrics(registry, clock, with_reserved=True).close()


def test_calls_and_their_attempts_are_counted(aws, metrics, registry):
    clients = CloudClients(
        region=aws.account.region,
        limits=ClientLimits(retries=attempts(2)),
        observe=metrics.sdk,
    )
    with aws.fail("GetCallerIdentity", code="InternalError", status=500, times=1):
        clients.sts.get_caller_identity()
    with aws.cut_off("GetCallerIdentity"), pytest.raises(Exception, match="Connection"):
        clients.sts.get_caller_identity()
    clients.close()

    def counted(name, status):
        labels = {"service": "STS", "action": "GetCallerIdentity", "status_code": status}
        return registry.get_sample_value(f"aws_sdk_go_{name}", labels)

    assert counted("request_total", "200") == 1
    assert counted("request_total", "0") == 1
    assert counted("request_attempt_total", "500") == 1
    assert counted("request_attempt_total", "200") == 1
    assert counted("request_attempt_total", "0") == 2
    assert counted("request_retry_count_sum", "200") == 1
    assert counted("request_duration_seconds_count", "200") == 1
    assert counted("request_attempt_duration_seconds_count", "500") == 1


def test_every_metric_has_its_row(registry, clock):
    """Name and type as they are exposed; and no row without its metric."""
    AwsMetrics(registry, clock, with_reserved=True)
    UserDataSizes(registry)
    declared = {
        (f"{family.name}{'_total' if family.type == 'counter' else ''}", family.type)
        for family in registry.collect()
    }

    section = DOCUMENTATION.read_text().partition("| AWS metric |")[2].partition("\n\n")[0]

    documented = set(re.findall(r"^\| `([^`]*)` \| (\w+) \|", section, re.MULTILINE))
    assert documented == declared


def test_offering_metrics_last_as_long_as_the_cores_listing():
    assert timedelta(minutes=30) == LISTING_LIFE
