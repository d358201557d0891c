"""Tests node capacity and overhead (cases 27 to 34, 39 and 43)."""

from __future__ import annotations

import pytest

from karpenter_core.errors import BadInputError
from karpenter_provider_alibabacloud.catalogue.capacity import estimated_memory_bytes
from karpenter_provider_alibabacloud.catalogue.instance_types import CatalogueInputs
from karpenter_provider_alibabacloud.catalogue.overhead import (
    reserved_cpu_milli,
    reserved_memory_mib,
)
from karpenter_provider_alibabacloud.discovery.cluster import CUSTOM_CLUSTER, ClusterDetails, Cni
from providers.alibabacloud.tests.catalogue.instance_type_data import (
    FLANNEL,
    GIB,
    MIB,
    NOW,
    TERWAY,
    World,
    info,
    node_class,
    resolve,
)

TERWAY_ENI = ClusterDetails(cni=Cni.TERWAY_ENI)
UNKNOWN_NETWORK = ClusterDetails(cni=Cni.CUSTOM, kubernetes_version="1.32.1-aliyun.1")


def kubelet(**fields: object) -> dict[str, object]:
    return {"kubeletConfiguration": fields}


@pytest.mark.parametrize(
    ("name", "pods", "cpu_milli", "capacity_mib", "allocatable_mib"),
    [
        ("ecs.g7.large", 15, 1930, 7659, 7039),
        ("ecs.g7.xlarge", 48, 3920, 15319, 14336),
        ("ecs.g7.4xlarge", 213, 15890, 61276, 58478),
    ],
)
def test_nodes_on_terway_have_the_allocatable_of_acks_policy(
    name: str, pods: int, cpu_milli: int, capacity_mib: int, allocatable_mib: int
):
    """Cases 28 and 29."""
    it = resolve(name)

    assert it.capacity["pods"] == pods
    assert it.allocatable()["cpu"] == cpu_milli
    assert it.capacity["memory"] == capacity_mib * MIB
    assert it.allocatable()["memory"] == allocatable_mib * MIB


@pytest.mark.parametrize(
    ("mask", "pods", "reserved_mib"),
    [(None, 256, 2248), (24, 256, 2248), (25, 128, 1863), (26, 64, 1159)],
)
def test_nodes_on_flannel_hold_as_many_pods_as_their_piece_of_the_network(
    mask: int | None, pods: int, reserved_mib: int
):
    """Case 30."""
    it = resolve("ecs.g7.large", cluster=ClusterDetails(cni=Cni.FLANNEL, node_cidr_mask=mask))

    assert it.capacity["pods"] == pods
    assert it.allocatable()["memory"] == (7659 - reserved_mib) * MIB


@pytest.mark.parametrize(
    ("cluster", "pods"), [(TERWAY_ENI, 3 - 1 + 3), (CUSTOM_CLUSTER, 110), (UNKNOWN_NETWORK, 110)]
)
def test_other_networks_have_their_own_number_of_pods(cluster: ClusterDetails, pods: int):
    assert resolve("ecs.g7.large", cluster=cluster).capacity["pods"] == pods


@pytest.mark.parametrize(("enis", "is_listed"), [(2, False), (3, True)])
def test_types_with_too_few_addresses_for_terway_are_hidden(enis: int, is_listed: bool):
    """Case 27."""
    world = World("ecs.g7.large")
    world.types["ecs.g7.large"] = info(EniQuantity=enis, EniPrivateIpAddressQuantity=6)

    assert ("ecs.g7.large" in world.list()) == is_listed
    assert "ecs.g7.large" in world.list(cluster=FLANNEL)


def test_max_pods_sets_pods_reserved_memory_and_the_kubelet_argument():
    """Case 31."""
    world, of = World("ecs.g7.xlarge"), node_class(kubelet(maxPods=20))
    it = world.list(of)["ecs.g7.xlarge"]

    assert it.capacity["pods"] == 20
    assert it.overhead.kube_reserved["memory"] == 675 * MIB
    assert it.allocatable()["memory"] == 14644 * MIB
    max_pods_of = world.catalogue.max_pods(of, CatalogueInputs(now=NOW, cluster=TERWAY))
    assert max_pods_of("ecs.g7.xlarge") == 20


def test_defaults_of_acks_script_are_no_kubelet_arguments():
    world = World("ecs.g7.xlarge")
    max_pods_of = world.catalogue.max_pods(node_class(), CatalogueInputs(now=NOW, cluster=TERWAY))

    assert max_pods_of("ecs.g7.xlarge") is None


@pytest.mark.parametrize(
    ("fields", "pods"),
    [
        ({"podsPerCore": 4, "maxPods": 20}, 16),
        ({"podsPerCore": 40, "maxPods": 20}, 20),
        ({"podsPerCore": 4}, 16),
        ({"podsPerCore": 0, "maxPods": 20}, 20),
    ],
)
def test_pods_per_core_lower_max_pods_of_the_kubelet(fields: dict[str, int], pods: int):
    """Case 32: four cores."""
    world, of = World("ecs.g7.xlarge"), node_class(kubelet(**fields))

    assert world.list(of)["ecs.g7.xlarge"].capacity["pods"] == pods
    max_pods_of = world.catalogue.max_pods(of, CatalogueInputs(now=NOW, cluster=TERWAY))
    assert max_pods_of("ecs.g7.xlarge") == pods


def test_pods_per_core_is_ignored_outside_ack():
    it = resolve(
        "ecs.g7.xlarge",
        node_class(kubelet(podsPerCore=4, kubeReserved={"memory": "4Gi"})),
        cluster=CUSTOM_CLUSTER,
    )

    assert it.capacity["pods"] == 110
    assert it.overhead.kube_reserved["memory"] == (11 * 110 + 255 + 200) * MIB


@pytest.mark.parametrize(
    ("cores", "milli"),
    [(1, 60), (2, 70), (3, 75), (4, 80), (8, 90), (16, 110), (64, 230), (104, 330)],
)
def test_cores_are_reserved_in_steps(cores: int, milli: int):
    """Case 33."""
    assert reserved_cpu_milli(cores) == milli


@pytest.mark.parametrize(
    ("memory_mib", "pods", "reserved_mib"), [(8192, 15, 620), (8192, 256, 2248), (511, 15, 327)]
)
def test_memory_is_reserved_by_pods_up_to_a_quarter(memory_mib: int, pods: int, reserved_mib: int):
    assert reserved_memory_mib(memory_mib, pods) == reserved_mib


@pytest.mark.parametrize(("share", "mib"), [(0.0, 8192), (0.065, 7659), (0.5, 4096)])
def test_memory_is_estimated_with_the_overhead_of_the_instance(share: float, mib: int):
    """Case 34."""
    assert estimated_memory_bytes(info(), overhead_percent=share) == mib * MIB
    assert resolve("ecs.g7.large", overhead_percent=share).capacity["memory"] == mib * MIB


def test_additional_network_interfaces_are_a_resource():
    """Case 39."""
    assert resolve("ecs.g7.xlarge").capacity["aliyun/eni"] == 4 - 1


@pytest.mark.parametrize(
    ("spec", "resource", "count"),
    [
        ("NVIDIA A10", "nvidia.com/gpu", 2),
        ("nvidia T4", "nvidia.com/gpu", 2),
        ("AMD S7150", "amd.com/gpu", 2),
    ],
)
def test_gpus_are_a_resource_by_their_maker(spec: str, resource: str, count: int):
    world = World("ecs.gn7i-c8g1.2xlarge")
    world.types["ecs.gn7i-c8g1.2xlarge"] = info(
        "ecs.gn7i-c8g1.2xlarge", GPUSpec=spec, GPUAmount=count
    )

    assert world.list()["ecs.gn7i-c8g1.2xlarge"].capacity[resource] == count


def test_a_zero_quantity_is_no_resource():
    capacity = resolve("ecs.g7.large").capacity

    assert not [name for name in capacity if "gpu" in name]
    assert min(capacity.values()) > 0


def test_classes_with_different_system_disks_have_different_storage_at_the_same_time():
    """Case 43."""
    world = World("ecs.g7.large")
    small = node_class({"systemDisk": {"volumeSize": "40Gi"}}, name="small")
    large = node_class({"systemDisk": {"volumeSize": "200Gi"}}, name="large")
    found = [
        world.list(of)["ecs.g7.large"].capacity["ephemeral-storage"]
        for of in (small, large, small, node_class())
    ]

    assert found == [40 * GIB, 200 * GIB, 40 * GIB, 20 * GIB]


@pytest.mark.parametrize(
    ("is_formatted", "cluster", "gib"),
    [(True, TERWAY, 300), (False, TERWAY, 40), (True, CUSTOM_CLUSTER, 40)],
    ids=["formatted", "not formatted", "nobody formats"],
)
def test_storage_is_that_of_the_data_disk_where_containers_are_put_on_it(
    is_formatted: bool, cluster: ClusterDetails, gib: int
):
    """ACK's script does so, and no other cluster has it."""
    spec = {
        "systemDisk": {"volumeSize": "40Gi"},
        "dataDisks": [{"volumeSize": "100Gi"}, {"volumeSize": "300Gi"}],
        "formatDataDisk": is_formatted,
    }

    found = resolve("ecs.g7.large", node_class(spec), cluster=cluster)
    assert found.capacity["ephemeral-storage"] == gib * GIB


def test_the_users_reservations_stand_in_place_of_acks():
    it = resolve(
        "ecs.g7.xlarge",
        node_class(
            kubelet(
                kubeReserved={"memory": "2Gi", "ephemeral-storage": "1Gi", "pid": "100"},
                systemReserved={"cpu": "100m"},
                evictionHard={"memory.available": "5%", "nodefs.available": "100%"},
            )
        ),
    )

    assert it.overhead.kube_reserved == {
        "cpu": 80,
        "memory": 2 * GIB,
        "ephemeral-storage": GIB,
    }
    assert it.overhead.system_reserved == {"cpu": 100}
    capacity = it.capacity["memory"]
    assert (
        capacity * 5 // 100 <= it.overhead.eviction_threshold["memory"] <= capacity * 5 // 100 + 1
    )
    assert it.overhead.eviction_threshold["ephemeral-storage"] == 0


def test_a_quantity_that_cannot_be_read_names_class_field_and_value():
    of = node_class(kubelet(kubeReserved={"memory": "lots"}), name="web")

    with pytest.raises(
        BadInputError,
        match=r'ECSNodeClass "web": spec.kubeletConfiguration.kubeReserved.memory: .*lots',
    ):
        World("ecs.g7.large").list(of)


def test_two_classes_with_the_same_mistake_get_an_error_each():
    """Their types are resolved alike, and once."""
    world = World("ecs.g7.large")
    for name in ("web", "batch"):
        of = node_class(kubelet(kubeReserved={"memory": "lots"}), name=name)

        with pytest.raises(BadInputError, match=f'ECSNodeClass "{name}": spec.kubelet'):
            world.list(of)
