"""Cases 167 to 179: bin packing."""

from __future__ import annotations

import pytest

from karpenter_core.api.labels import ARCH, INSTANCE_TYPE, OS, ZONE
from karpenter_core.api.quantities import parse_resources
from karpenter_core.testing.builders import offering
from tests.scheduling.acceptance.catalogues import (
    assorted_types,
    default_pool,
    fake_type,
    incremental_types,
)
from tests.scheduling.acceptance.workloads import pod_of

AMD64 = {ARCH: "amd64"}


def types_of(cluster, pods):
    return {cluster.labels_of(pod)[INSTANCE_TYPE] for pod in pods}


@pytest.mark.parametrize("memory", ["100M", "2000M"])
def test_case_167_a_small_pod_gets_the_smallest_type(cluster, memory):
    pod = cluster.pod(memory=memory)
    cluster.provision(pod)
    assert types_of(cluster, [pod]) == {"small-instance-type"}


def test_case_168_several_small_pods_share_one_small_node(cluster):
    pods = cluster.pods(5, memory="10M")
    cluster.provision(*pods)
    assert types_of(cluster, pods) == {"small-instance-type"}
    assert len(cluster.nodes) == 1


def test_case_169_two_large_pods_to_a_node(cluster):
    pods = cluster.pods(40, memory="1800M", node_selector=AMD64)
    cluster.provision(*pods)
    assert cluster.is_scheduled(*pods)
    assert types_of(cluster, pods) == {"default-instance-type"}
    assert len(cluster.nodes) == 20


def test_case_170_small_pods_fill_the_gaps_of_large_ones(cluster):
    large = cluster.pods(40, memory="1800M", node_selector=AMD64)
    small = cluster.pods(20, memory="400M", node_selector=AMD64)
    cluster.provision(*large, *small)
    assert cluster.is_scheduled(*large, *small)
    assert types_of(cluster, [*large, *small]) == {"default-instance-type"}
    assert len(cluster.nodes) == 20


def test_case_171_pods_of_different_sizes_get_nodes_of_their_size(cluster):
    cluster.use(default_pool(), types=incremental_types(5))
    large, small = cluster.pod(cpu="4500m"), cluster.pod(cpu="1")
    cluster.provision(large, small)
    assert types_of(cluster, [large]) == {"fake-it-4"}
    assert types_of(cluster, [small]) == {"fake-it-1"}


def test_case_172_a_pod_larger_than_every_type(cluster):
    pod = cluster.pod(memory="2Ti")
    cluster.provision(pod)
    assert cluster.is_unscheduled(pod)


def test_case_173_nodes_hold_as_many_pods_as_their_type_allows(cluster):
    pods = cluster.pods(25, cpu="1m", memory="1", node_selector=AMD64)
    cluster.provision(*pods)
    assert cluster.is_scheduled(*pods)
    assert types_of(cluster, pods) == {"small-instance-type"}
    assert len(cluster.nodes) == 5


def test_case_174_init_containers_count(cluster):
    pod = pod_of("p", [("1", "1Gi")], init=[("2", "1Gi")])
    cluster.provision(pod)
    assert types_of(cluster, [pod]) == {"default-instance-type"}


def test_case_174_an_init_container_larger_than_every_type(cluster):
    pod = pod_of("p", [("1", "1Gi")], init=[("2", "1Ti")])
    cluster.provision(pod)
    assert cluster.is_unscheduled(pod)


def test_case_175_the_cheapest_type_is_launched_and_all_are_offered(cluster):
    types = [
        fake_type(name, cpu, f"{cpu}Gi", offerings=[offering("z1", "on-demand", price)])
        for name, cpu, price in (("medium", "2", 3.0), ("small", "1", 2.0), ("large", "4", 1.0))
    ]
    cluster.use(default_pool(), types=types)
    pod = cluster.pod(limits={"cpu": "1m", "memory": "1Mi"})
    made = cluster.provision(pod)
    (claim,) = cluster.created
    (listed,) = (item.values for item in claim.spec.requirements if item.key == INSTANCE_TYPE)
    assert types_of(cluster, [pod]) == {"large"}
    assert set(listed) == {"small", "medium", "large"}
    assert made.plan.claims[0].instance_types == ("large", "small", "medium")


BATCHES = [
    (9, 0, 7, 3, 5, 1, 8, 2, 6, 4),
    (1, 1, 1, 1, 1, 1, 1, 1, 1, 1),
    (5, 6, 5, 6, 5, 6, 5, 6, 5, 6),
    (0, 9, 9, 9, 0, 9, 2, 2, 7, 3),
]


@pytest.mark.parametrize("batches", BATCHES)
def test_case_176_nodes_that_boot_are_filled_before_new_ones_open(cluster, batches):
    cluster.use(default_pool(), types=[fake_type("medium", "4250m", "4Gi", "4")])
    for number in batches:
        pods = cluster.pods(number, limits={"cpu": "1"})
        cluster.provision(*pods)
        assert cluster.is_scheduled(*pods)
    free = [
        state_node.allocatable["cpu"] - state_node.requests.get("cpu", 0)
        for state_node in cluster.snapshot.state_nodes
    ]
    assert sum(amount >= 1000 for amount in free) <= 1


@pytest.mark.parametrize("cpu", ["100m", "1", "2", "2500m", "4", "8", "16"])
def test_case_177_three_pods_share_a_node_and_every_type_on_offer_holds_them(cluster, cpu):
    types = assorted_types()
    before = {item.name: (dict(item.capacity), item.overhead.total()) for item in types}
    cluster.use(default_pool(limits={"cpu": "20000"}), types=types)
    for memory in ("100Mi", "1Gi", "2Gi", "4Gi", "8Gi", "16Gi", "32Gi"):
        pods = cluster.pods(3, cpu=cpu, memory=memory)
        (claim,) = cluster.provision(*pods).claims
        assert len({cluster.node_of(pod).name for pod in pods}) == 1
        asked = parse_resources({"cpu": cpu, "memory": memory})
        (listed,) = (item.values for item in claim.spec.requirements if item.key == INSTANCE_TYPE)
        for name in listed:
            capacity, overhead = before[name]
            for resource in ("cpu", "memory"):
                assert 3 * asked[resource] + overhead[resource] <= capacity[resource]
        cluster.evict(*pods)
        cluster.delete(*cluster.nodes, *cluster.claims)
    assert before == {item.name: (dict(item.capacity), item.overhead.total()) for item in types}


ONE_DEVICE, OTHER_DEVICE = "example.com/super-great-gpu", "example.com/even-better-gpu"


def types_with_devices():
    smallest, second, *others = incremental_types(5)
    return [
        fake_type(smallest.name, "1", "2Gi", "10", resources={ONE_DEVICE: "25"}),
        fake_type(second.name, "2", "4Gi", "20", resources={OTHER_DEVICE: "25"}),
        *others,
    ]


@pytest.mark.parametrize("pools", [["default"], ["one", "two"]])
def test_case_178_devices_of_different_types_make_two_nodes(cluster, pools):
    cluster.use(*map(default_pool, pools), types=types_with_devices())
    pods = [cluster.pod(limits={device: "1"}) for device in (ONE_DEVICE, OTHER_DEVICE)]
    cluster.provision(*pods)
    assert cluster.is_scheduled(*pods)
    assert len(cluster.nodes) == 2


@pytest.mark.parametrize("pools", [["default"], ["one", "two"]])
def test_case_178_no_type_has_both_devices(cluster, pools):
    cluster.use(*map(default_pool, pools), types=types_with_devices())
    pod = cluster.pod(limits={ONE_DEVICE: "1", OTHER_DEVICE: "1"})
    cluster.provision(pod)
    assert cluster.is_unscheduled(pod)


@pytest.mark.parametrize(
    ("key", "values"),
    [
        (ARCH, ("amd64", "arm64")),
        (OS, ("linux", "windows")),
        (INSTANCE_TYPE, ("small-instance-type", "default-instance-type")),
        (ZONE, ("z1", "z2")),
    ],
)
def test_case_179_pods_that_exclude_each_other_get_two_nodes(cluster, key, values):
    pods = [cluster.pod(node_selector={key: value}) for value in values]
    cluster.provision(*pods)
    assert [cluster.labels_of(pod)[key] for pod in pods] == list(values)
    assert len(cluster.nodes) == 2
