"""Tests node capacity (cases 45, 47, 48, 51, 55, 56, 58 and 59)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from karpenter_provider_aws import labels
from karpenter_provider_aws.catalogue.capacity import capacity_of, estimated_memory_bytes
from karpenter_provider_aws.data import network_limits
from karpenter_provider_aws.families.traits import TRAITS
from karpenter_provider_aws.kubelet.sizing import kubelet_sizing, read_kubelet_options
from providers.aws.tests.catalogue.recorded_region import GIB, MIB, info, node_class

STORAGE = "ephemeral-storage"
PRIMARY = {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}


def efa_only(card: int, device: int) -> dict[str, Any]:
    return {"networkCardIndex": card, "deviceIndex": device, "interfaceType": "efa-only"}


def capacity(name: str, spec: dict[str, Any] | None = None, *, family: str = "AL2023") -> Any:
    of, traits = node_class(spec, family=family), TRAITS[node_class(family=family).ami_family]
    return capacity_of(
        info(name), of, traits, pods=pods(name, spec, family=family), memory_bytes=GIB
    )


def pods(
    name: str,
    spec: dict[str, Any] | None = None,
    *,
    family: str = "AL2023",
    reserved_enis: int = 0,
) -> int:
    of = node_class(spec, family=family)
    options = read_kubelet_options(of)
    traits = TRAITS[of.ami_family]
    return kubelet_sizing(
        info(name), of, options, traits, reserved_enis=reserved_enis, evaluate=None
    ).pods


@pytest.mark.parametrize(
    ("name", "mib"),
    [
        ("m5.large", 7577),
        ("m5.xlarge", 15155),
        ("c5.large", 3788),
        ("m6g.large", 7518),
        ("m5.24xlarge", 363724),
        ("t3.micro", 947),
        ("p4d.24xlarge", 1091174),
    ],
)
def test_memory_is_estimated_in_whole_mib(name: str, mib: int):
    """Case 45."""
    assert estimated_memory_bytes(info(name), overhead_percent=0.075) == mib * MIB


def test_without_overhead_all_memory_is_there():
    """Case 45."""
    assert estimated_memory_bytes(info("m5.large"), overhead_percent=0) == 8192 * MIB


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("t3.large", 35),
        ("m5.large", 29),
        ("m5.xlarge", 58),
        ("t3.micro", 4),
        ("m5.24xlarge", 737),
        ("m6idn.32xlarge", 394),
        ("g4dn.8xlarge", 58),
    ],
)
def test_interfaces_limit_pods(name: str, expected: int):
    """Case 47."""
    assert pods(name) == expected


@pytest.mark.parametrize(("reserved_enis", "expected"), [(1, 20), (1_000_000, 0)])
def test_interfaces_kept_back_are_lost_to_pods(reserved_enis: int, expected: int):
    """Case 47."""
    assert pods("m5.large", reserved_enis=reserved_enis) == expected


@pytest.mark.parametrize(
    ("interfaces", "expected"),
    [
        ([PRIMARY, efa_only(0, 1), efa_only(0, 2)], 639),
        ([PRIMARY, efa_only(1, 0), efa_only(1, 1)], 737),
    ],
)
def test_efa_only_interfaces_of_the_first_card_are_lost_to_pods(
    interfaces: list[Any], expected: int
):
    """Case 48."""
    assert pods("p4d.24xlarge", {"networkInterfaces": interfaces}) == expected


@pytest.mark.parametrize(
    ("family", "kubelet", "expected"),
    [
        ("AL2023", {"podsPerCore": 1}, 2),
        ("AL2", {"podsPerCore": 4, "maxPods": 20}, 8),
        ("AL2", {"podsPerCore": 40, "maxPods": 20}, 20),
        ("AL2", {"podsPerCore": 100}, 35),
        ("AL2", {"podsPerCore": 0}, 35),
        ("Bottlerocket", {"podsPerCore": 1}, 35),
        ("Windows2022", {"podsPerCore": 1}, 2),
        ("Windows2022", {}, 110),
        ("Custom", {"maxPods": 10}, 10),
    ],
)
def test_pods_per_core_cap_pods(family: str, kubelet: dict[str, Any], expected: int):
    """Case 51."""
    assert pods("t3.large", {"kubelet": kubelet}, family=family) == expected


def test_prefixes_do_not_add_pods():
    assert pods("m5.large", {"ipPrefixCount": 9}) == 29


def mapping(device: str, size: str = "", *, root: bool = False) -> dict[str, Any]:
    ebs = {"volumeSize": size} if size else {"snapshotID": "snap-1"}
    return {"deviceName": device, "ebs": ebs, **({"rootVolume": True} if root else {})}


@pytest.mark.parametrize(
    ("family", "mappings", "gib"),
    [
        ("AL2", [], 20),
        ("AL2", [mapping("/dev/xvda", "25Gi")], 25),
        ("AL2023", [mapping("/dev/xvdz", "99Gi")], 20),
        ("AL2023", [mapping("/dev/xvda")], 20),
        ("Bottlerocket", [mapping("/dev/xvda", "10Gi")], 20),
        ("Bottlerocket", [mapping("/dev/xvdb", "30Gi"), mapping("/dev/xvda", "10Gi")], 30),
        ("AL2", [mapping("/dev/xvda", "25Gi"), mapping("/dev/odd", "40Gi", root=True)], 40),
        ("Custom", [mapping("/dev/sda", "10Gi"), mapping("/dev/sdb", "12Gi")], 12),
        ("Custom", [mapping("/dev/sda", "10Gi"), mapping("/dev/sdb")], 20),
        ("Custom", [], 20),
        ("Windows2022", [], 50),
    ],
)
def test_the_kubelets_volume_is_ephemeral_storage(family: str, mappings: list[Any], gib: int):
    """Case 55."""
    found = capacity("m5.large", {"blockDeviceMappings": mappings}, family=family)

    assert found[STORAGE] == gib * GIB


@pytest.mark.parametrize(
    ("name", "expected"), [("i3en.24xlarge", 60_000 * 10**9), ("m5.large", 20 * GIB)]
)
def test_raid0_makes_local_disks_ephemeral_storage(name: str, expected: int):
    """Case 56."""
    assert capacity(name, {"instanceStorePolicy": "RAID0"})[STORAGE] == expected


def test_two_disks_of_7500_gb_make_15000_gb():
    """Case 56."""
    found = capacity("i3en.6xlarge", {"instanceStorePolicy": "RAID0"})

    assert found[STORAGE] == 15_000 * 10**9


@pytest.mark.parametrize(
    ("name", "devices", "cores"),
    [("inf2.48xlarge", 12, 24), ("trn1.32xlarge", 16, 32), ("trn2.48xlarge", 16, 128)],
)
def test_neuron_devices_and_their_cores_are_counted(name: str, devices: int, cores: int):
    """Case 58."""
    found = capacity(name)

    assert (found[labels.NEURON], found[labels.NEURON_CORE]) == (devices, cores)


@pytest.mark.parametrize(
    ("interfaces", "expected"),
    [(None, 4), ([PRIMARY, efa_only(1, 0)], 1), ([PRIMARY], None)],
)
def test_efas_are_the_requested_ones_or_all_that_fit(interfaces: Any, expected: Any):
    """Case 58."""
    spec = {} if interfaces is None else {"networkInterfaces": interfaces}

    assert capacity("p4d.24xlarge", spec).get(labels.EFA) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("m5.large", 9), ("m5.xlarge", 18), ("c5.4xlarge", 54), ("m6g.large", 9), ("t3.large", None)],
)
def test_branch_interfaces_are_counted_where_a_trunk_fits(name: str, expected: Any):
    """Case 59: a pod that asks for one is not put onto a type without the resource."""
    assert capacity(name).get(labels.POD_ENI) == expected


def test_windows_nodes_hand_out_addresses():
    found = capacity("m5.large", family="Windows2022")

    assert found[labels.PRIVATE_IPV4_ADDRESS] == 9
    assert labels.PRIVATE_IPV4_ADDRESS not in capacity("m5.large")


def test_windows_nodes_of_a_type_that_no_table_knows_hand_out_no_addresses():
    """A new type has amounts before the shipped limits name it."""
    traits = TRAITS[node_class(family="Windows2022").ami_family]
    new = replace(info("m5.large"), name="m99.large")
    found = capacity_of(new, node_class(family="Windows2022"), traits, pods=50, memory_bytes=GIB)
    assert labels.PRIVATE_IPV4_ADDRESS not in found
    assert labels.POD_ENI not in found
    assert found["cpu"] == 2000


@pytest.mark.parametrize(("name", "expected"), [("p4d.24xlarge", 8), ("g6f.large", None)])
def test_gpus_are_counted_whole(name: str, expected: Any):
    assert capacity(name).get(labels.NVIDIA_GPU) == expected


def test_the_shipped_table_has_most_types():
    limits = network_limits()

    assert len(limits) > 1400
    assert sum(limit.branch_interfaces > 0 for limit in limits.values()) > 1290
