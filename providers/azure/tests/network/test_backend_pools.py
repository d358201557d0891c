"""Backend pools are those of AKS's load balancers, and are read once for many launches."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from karpenter_core.errors import CloudProviderError
from karpenter_provider_azure.network.cluster_network import (
    backend_pool_ids,
    backend_pools,
    refers_to_missing_pool,
)
from providers.azure.tests.arm.values import GROUP, SUBNET, SUBSCRIPTION
from providers.azure.tests.fake_arm import FakeArm, HandClock, unanswered

PATH = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Network"
    "/loadBalancers"
)
LISTING = "loadBalancers:list"
MISSING = ("InvalidResourceReference",)


def pool_id(balancer, name):
    return f"{PATH}/{balancer}/backendAddressPools/{name}"


def pool(balancer, name, *addresses):
    members = [{"name": "m", "properties": {"ipAddress": it} if it else {}} for it in addresses]
    return {
        "id": pool_id(balancer, name),
        "name": name,
        "properties": {"loadBalancerBackendAddresses": members} if members else {},
    }


def balancer(name, *pools):
    return {"name": name, "properties": {"backendAddressPools": list(pools)}}


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def arm():
    arm = FakeArm()
    arm.put(PATH, [balancer("kubernetes", pool("kubernetes", "kubernetes"))])
    return arm


@pytest.fixture
def reader(arm, clock):
    return backend_pools(arm, clock, node_resource_group=GROUP)


def test_pools_for_interfaces_of_aks_load_balancers_count():  # case 79
    balancers = [
        balancer(
            "Kubernetes",
            pool("Kubernetes", "kubernetes", "", ""),
            pool("Kubernetes", "aksOutboundBackendPool"),
            pool("Kubernetes", "aksOutboundBackendPool-ipv6"),
            pool("Kubernetes", "Kubernetes-IPv6"),
            pool("Kubernetes", "by-address", "", "10.0.0.4"),
        ),
        balancer("kubernetes-internal", pool("kubernetes-internal", "kubernetes")),
        balancer("mine", pool("mine", "kubernetes")),
        {"name": "kubernetes"},
    ]

    assert backend_pool_ids(balancers) == (
        pool_id("Kubernetes", "aksOutboundBackendPool"),
        pool_id("Kubernetes", "kubernetes"),
        pool_id("kubernetes-internal", "kubernetes"),
    )


def test_a_cluster_without_a_load_balancer_has_no_pools(arm, reader):
    arm.put(PATH, [])

    assert reader.current().value == ()


@pytest.mark.parametrize(  # case 80
    ("codes", "text", "expected"),
    [
        (MISSING, f"Resource {pool_id('kubernetes', 'a').upper()} was not found", True),
        (MISSING, f"Resource {pool_id('kubernetes', 'b')} was not found", False),
        (MISSING, f"Resource {SUBNET} was not found", False),
        (("BadRequest",), f"Resource {pool_id('kubernetes', 'a')} was not found", False),
    ],
)
def test_only_a_reference_to_a_submitted_pool_is_worth_a_refresh(codes, text, expected):
    submitted = [pool_id("internal", "c"), pool_id("kubernetes", "a")]
    assert refers_to_missing_pool(codes, text, submitted) is expected


def test_pools_are_cached_for_two_hours(arm, clock, reader):
    first = reader.current()
    clock.forward(minutes=119)
    assert reader.current() is first
    clock.forward(minutes=2)
    reader.current()
    clock.forward(minutes=119)
    reader.current()
    assert arm.count(LISTING) == 2


def held_back(arm):
    """Let the next listings wait until the returned event is set."""
    gate, answer = threading.Event(), arm.answers[PATH.lower()]

    def later():
        assert gate.wait(10)
        return answer

    arm.put(PATH, later)
    return gate


@pytest.mark.parametrize("is_first", [True, False])
def test_ten_callers_at_once_cause_one_listing(arm, reader, is_first):  # cases 80, 92
    seen = None if is_first else reader.current()
    before = arm.count(LISTING)
    gate = held_back(arm)
    with ThreadPoolExecutor(10) as threads:
        futures = [
            threads.submit(reader.current if is_first else lambda: reader.newer_than(seen))
            for _ in range(10)
        ]
        gate.set()
        found = {future.result().revision for future in futures}

    assert arm.count(LISTING) == before + 1
    assert len(found) == 1


def test_a_caller_that_saw_older_pools_uses_the_refresh_of_another(arm, reader):
    seen = reader.current()
    newer = reader.newer_than(seen)

    assert reader.newer_than(seen) is newer
    assert arm.count(LISTING) == 2
    assert reader.newer_than(newer).revision == newer.revision + 1


def test_a_refresh_that_fails_is_not_hidden_by_old_pools(arm, reader):
    seen = reader.current()
    arm.put(PATH, unanswered())

    with pytest.raises(CloudProviderError, match="500"):
        reader.newer_than(seen)
    assert reader.current() is seen
