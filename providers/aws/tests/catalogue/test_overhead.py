"""Tests the overhead of nodes (cases 49, 50, 52 to 54 and 57)."""

from __future__ import annotations

from typing import Any

import pytest

from karpenter_core.errors import BadInputError
from providers.aws.tests.catalogue.recorded_region import GIB, MIB, node_class, resolve

STORAGE = "ephemeral-storage"


def reserved(name: str, kubelet: dict[str, Any], *, family: str, enis: int = 0) -> tuple[int, int]:
    """Return pods and MiB of memory that the kubelet keeps."""
    of = node_class({"kubelet": kubelet}, family=family)
    it = resolve(name, of, settings={"reserved_enis": enis})
    return it.capacity["pods"], it.overhead.kube_reserved["memory"] // MIB


@pytest.mark.parametrize(
    ("family", "mib"), [("AL2", 640), ("Custom", 640), ("Bottlerocket", 365), ("Windows2022", 365)]
)
def test_memory_is_reserved_for_the_images_max_pods(family: str, mib: int):
    """Case 49."""
    assert reserved("t3.large", {"maxPods": 10}, family=family) == (10, mib)


@pytest.mark.parametrize(
    ("family", "pods", "mib"),
    [("AL2", 24, 640), ("Bottlerocket", 24, 519), ("Windows2022", 110, 1465)],
)
def test_interfaces_kept_back_count_only_where_pods_are_counted(family: str, pods: int, mib: int):
    """Case 50."""
    assert reserved("t3.large", {}, family=family, enis=1) == (pods, mib)


@pytest.mark.parametrize(("family", "mib"), [("AL2023", 8362), ("Bottlerocket", 7284)])
def test_images_do_not_know_of_interfaces_without_addresses(family: str, mib: int):
    """Images of Amazon Linux reserve memory by a table of pods by instance type alone."""
    interfaces = [
        {"networkCardIndex": 0, "deviceIndex": device, "interfaceType": kind}
        for device, kind in enumerate(["interface", "efa-only", "efa-only"])
    ]
    found = resolve("p4d.24xlarge", node_class({"networkInterfaces": interfaces}, family=family))

    assert found.capacity["pods"] == 639
    assert found.overhead.kube_reserved["memory"] == mib * MIB


def test_defaults_are_kept_for_the_kubelet():
    """Case 52, the defaults."""
    assert resolve("m5.xlarge").overhead.kube_reserved == {
        "cpu": 80,
        "memory": 893 * MIB,
        STORAGE: GIB,
    }


def test_the_users_quantities_stand_in_place_of_defaults():
    """Case 52: process ids are no resource that pods ask for."""
    wanted = {"cpu": "2", "memory": "10Gi", "ephemeral-storage": "2Gi", "pid": "1000"}

    found = resolve("m5.xlarge", node_class({"kubelet": {"kubeReserved": wanted}}))

    assert found.overhead.kube_reserved == {"cpu": 2000, "memory": 10 * GIB, STORAGE: 2 * GIB}


def test_one_quantity_of_the_user_leaves_the_other_defaults():
    found = resolve("m5.xlarge", node_class({"kubelet": {"kubeReserved": {"cpu": "150m"}}}))

    assert found.overhead.kube_reserved == {"cpu": 150, "memory": 893 * MIB, STORAGE: GIB}


def test_nothing_is_reserved_for_the_system_by_default():
    """Case 53."""
    wanted = {"cpu": "2", "memory": "20Gi", "ephemeral-storage": "10Gi"}
    of = node_class({"kubelet": {"systemReserved": wanted}})

    assert resolve("m5.4xlarge").overhead.system_reserved == {}
    assert resolve("m5.4xlarge", of).overhead.system_reserved == {
        "cpu": 2000,
        "memory": 20 * GIB,
        STORAGE: 10 * GIB,
    }


@pytest.mark.parametrize(
    ("kubelet", "expected"),
    [
        ({}, 100 * MIB),
        ({"evictionHard": {"memory.available": "500Mi"}}, 500 * MIB),
        ({"evictionHard": {"memory.available": "10%"}}, 7577 * MIB // 10),
        ({"evictionHard": {"memory.available": "100%"}}, 0),
        ({"evictionSoft": {"memory.available": "50Mi"}}, 100 * MIB),
        (
            {
                "evictionSoft": {"memory.available": "1Gi"},
                "evictionHard": {"memory.available": "200Mi"},
            },
            200 * MIB,
        ),
    ],
)
def test_hard_eviction_thresholds_are_kept(kubelet: dict[str, Any], expected: int):
    """Case 54."""
    found = resolve("m5.large", node_class({"kubelet": kubelet}))

    assert found.overhead.eviction_threshold["memory"] == pytest.approx(expected, abs=10)


@pytest.mark.parametrize(
    ("kubelet", "expected"),
    [
        ({}, 2 * GIB),
        ({"evictionHard": {"nodefs.available": "5Gi"}}, 5 * GIB),
        ({"evictionHard": {"nodefs.available": "15%"}}, 3 * GIB),
    ],
)
def test_a_tenth_of_storage_is_kept_unless_the_user_says_otherwise(
    kubelet: dict[str, Any], expected: int
):
    found = resolve("m5.large", node_class({"kubelet": kubelet}))

    assert found.overhead.eviction_threshold[STORAGE] == expected


@pytest.mark.parametrize(
    ("gib", "fits"), [(16, True), (17, True), (19, False), (20, False), (150, False)]
)
def test_of_20_gib_of_storage_17_are_allocatable(gib: int, fits: bool):
    """Case 57: 1 GiB is reserved, 2 GiB are kept by eviction; two pods of 10 GiB need two nodes."""
    assert (resolve("m5.large").allocatable()[STORAGE] >= gib * GIB) == fits


@pytest.mark.parametrize(
    ("vcpus", "name"),
    [
        (70, "m5.large"),
        (80, "m5.xlarge"),
        (150, "m5.8xlarge"),
        (230, "m5.16xlarge"),
        (310, "m5.24xlarge"),
        (390, "m6i.32xlarge"),
    ],
)
def test_cpu_is_kept_by_slices(vcpus: int, name: str):
    assert resolve(name).overhead.kube_reserved["cpu"] == vcpus


@pytest.mark.parametrize(
    ("kubelet", "named"),
    [
        ({"evictionHard": {"memory.available": "lots"}}, "evictionHard.memory.available"),
        ({"evictionHard": {"memory.available": "-1Mi"}}, "evictionHard.memory.available"),
    ],
)
def test_unreadable_quantities_are_named(kubelet: dict[str, Any], named: str):
    of = node_class({"kubelet": kubelet}, name="web")

    with pytest.raises(BadInputError, match=f'EC2NodeClass "web": spec.kubelet.{named}'):
        resolve("m5.large", of)
