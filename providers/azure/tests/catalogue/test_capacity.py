"""Tests node capacity, overhead and OS disks."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_provider_azure.catalogue.capacity import (
    OsDisk,
    default_max_pods,
    estimated_memory_bytes,
    os_disk_of,
    overhead_of,
    reserved_cpu_milli,
    reserved_memory_mib,
)
from providers.azure.tests.catalogue.sku_items import GIB, MIB, World, node_class, sku_item, vm_size

D4 = "Standard_D4s_v5"
SIZE_WITH_CACHE = vm_size(
    D4,
    EphemeralOSDiskSupported="True",
    CachedDiskBytes=107374182400,  # 100 GiB
)


@pytest.mark.parametrize(
    ("cpus", "memory_gib", "reserved", "memory_bytes", "allocatable_mib", "allocatable_milli"),
    [
        (2, 4, (100, 1024), 3972844748, 2014.8, 1900),
        (2, 8, (100, 1843), 7945689497, 4984.6, 1900),  # case 17
        (4, 7, (140, 1638), 6952478310, 4242.4, 3860),  # case 17
        (4, 16, (140, 2662), 15891378995, 11743.2, 3860),  # case 18
        (8, 32, (180, 3645), 31782757990, 25915.4, 7820),
        (16, 64, (260, 5611), 63565515980, 54259.8, 15740),
        (32, 128, (420, 9543), 127131031961, 110948.6, 31580),
        (64, 256, (740, 12165), 254262063923, 229568.2, 63260),
        (3, 64, (120, 5611), 63565515980, 54259.8, 2880),  # case 17
    ],
)
def test_nodes_have_the_capacity_of_the_table(
    cpus: int,
    memory_gib: float,
    reserved: tuple[int, int],
    memory_bytes: int,
    allocatable_mib: float,
    allocatable_milli: int,
) -> None:
    it = World(sku_item(D4, cpus=cpus, memory_gib=memory_gib)).type(D4)
    kube_reserved = it.overhead.kube_reserved

    assert it.capacity["cpu"] == cpus * 1000
    assert it.capacity["memory"] == memory_bytes
    assert (kube_reserved["cpu"], kube_reserved["memory"] // MIB) == reserved
    assert it.allocatable()["cpu"] == allocatable_milli
    assert it.allocatable()["memory"] / MIB == pytest.approx(allocatable_mib, abs=0.05)


def test_without_overhead_nodes_have_the_memory_of_the_size() -> None:
    size = vm_size(D4, memory_gib=16)  # case 18

    assert estimated_memory_bytes(size, overhead_percent=0) == 17179869184


def test_capacity_leaves_out_a_fraction_of_a_gib_and_the_reservation_does_not() -> None:
    size = vm_size(D4, memory_gib=3.5)  # case 19

    assert estimated_memory_bytes(size, overhead_percent=0.075) == 2979633561
    assert reserved_memory_mib(size.memory_gib) == 896


def test_the_system_reserves_nothing_and_the_kubelet_evicts_below_750_mib() -> None:
    overhead = overhead_of(vm_size(D4))  # case 20

    assert overhead.system_reserved == {}
    assert overhead.eviction_threshold == {"memory": 750 * MIB}


@pytest.mark.parametrize(
    ("plugin", "mode", "pods"),
    [
        ("azure", "overlay", 250),
        ("azure", "", 30),
        ("none", "", 250),
        ("none", "overlay", 250),
        ("kubenet", "", 110),
    ],
)
def test_max_pods_follow_from_the_network(plugin: str, mode: str, pods: int) -> None:
    assert default_max_pods(network_plugin=plugin, network_plugin_mode=mode) == pods  # case 33


def test_max_pods_of_the_node_class_win() -> None:
    world = World(sku_item(D4))  # case 33

    assert world.type(D4, {"maxPods": 50}).capacity["pods"] == 50
    assert world.type(D4).capacity["pods"] == 250


@pytest.mark.parametrize(("spec", "gb"), [({}, 128), ({"osDiskSizeGB": 256}, 256)])
def test_ephemeral_storage_is_the_os_disk_in_decimal_gigabytes(
    spec: dict[str, object], gb: int
) -> None:
    it = World(sku_item(D4)).type(D4, spec)  # case 34

    assert it.capacity["ephemeral-storage"] == gb * 10**9


@pytest.mark.parametrize(
    ("name", "nvidia", "amd"),
    [("Standard_NC24ads_A100_v4", 1, 0), ("Standard_ND96isr_MI300X_v5", 0, 1), (D4, 0, 0)],
)
def test_gpus_are_counted_for_their_vendor(name: str, nvidia: int, amd: int) -> None:
    gpus = nvidia + amd  # case 24
    it = World(sku_item(name, cpus=24, GPUs=gpus)).type(name, {"gpu": {"mode": "None"}})

    assert (it.capacity["nvidia.com/gpu"], it.capacity["amd.com/gpu"]) == (nvidia, amd)


@pytest.mark.parametrize(
    ("size_gb", "expected"),
    [
        (99, OsDisk(99, "CacheDisk")),
        (100, OsDisk(100, "CacheDisk")),
        # 101 GB are fewer bytes than the cache of 100 GiB, but Azure makes disks of 101 GiB
        (101, OsDisk(101)),  # case 37
    ],
)
def test_the_os_disk_is_ephemeral_if_the_size_has_room_for_it(
    size_gb: int, expected: OsDisk
) -> None:
    assert os_disk_of(SIZE_WITH_CACHE, node_class({"osDiskSizeGB": size_gb})) == expected


@pytest.mark.parametrize(
    ("size_gb", "expected"), [(99, OsDisk(99, "CacheDisk")), (100, OsDisk(100))]
)
def test_trusted_launch_takes_a_gib_of_the_local_disk(size_gb: int, expected: OsDisk) -> None:
    spec = {"osDiskSizeGB": size_gb, "security": {"trustedLaunch": {"vtpm": True}}}

    assert os_disk_of(SIZE_WITH_CACHE, node_class(spec)) == expected


@pytest.mark.parametrize(
    ("size_gb", "expected"), [(2040, OsDisk(2040, "NvmeDisk")), (2041, OsDisk(2041))]
)
def test_an_ephemeral_disk_has_at_most_2040_gib(size_gb: int, expected: OsDisk) -> None:
    size = vm_size(
        D4,
        EphemeralOSDiskSupported="True",
        NvmeDiskSizeInMiB=7208960,
        SupportedEphemeralOSDiskPlacements="NvmeDisk",
    )

    assert os_disk_of(size, node_class({"osDiskSizeGB": size_gb})) == expected


@pytest.mark.parametrize(
    ("size_gb", "expected"),
    [
        (100, OsDisk(100, "CacheDisk")),
        (128, OsDisk(128, "ResourceDisk")),
        (150, OsDisk(150, "ResourceDisk")),
        (151, OsDisk(151)),
    ],
)
def test_a_temporary_disk_takes_the_os_disk_that_is_too_large_for_the_cache(
    size_gb: int, expected: OsDisk
) -> None:
    size = vm_size(
        "Standard_D4ds_v5",
        EphemeralOSDiskSupported="True",
        CachedDiskBytes=100 * 2**30,
        MaxResourceVolumeMB=150 * 1024,
    )

    assert os_disk_of(size, node_class({"osDiskSizeGB": size_gb})) == expected


@given(cpus=st.integers(1, 1000))
def test_reserved_cpu_grows_with_the_size(cpus: int) -> None:
    assert reserved_cpu_milli(cpus) <= reserved_cpu_milli(cpus + 1) <= cpus * 1000


@given(memory_gib=st.floats(0.5, 32768, allow_nan=False), more_gib=st.floats(0, 100))
def test_reserved_memory_grows_with_the_size_and_stays_a_quarter_at_most(
    memory_gib: float, more_gib: float
) -> None:
    reserved = reserved_memory_mib(memory_gib)

    assert reserved <= reserved_memory_mib(memory_gib + more_gib)
    assert reserved <= memory_gib * 1024 / 4 + 1


@given(memory_gib=st.integers(1, 12000), percent=st.decimals(0, "0.5", places=3, allow_nan=False))
def test_estimated_memory_never_exceeds_the_exact_share(memory_gib: int, percent: object) -> None:
    size = vm_size(D4, memory_gib=memory_gib)

    estimated = estimated_memory_bytes(size, overhead_percent=float(str(percent)))

    exact = memory_gib * GIB * (1 - Fraction(str(percent)))
    assert exact - 1 < estimated <= exact
