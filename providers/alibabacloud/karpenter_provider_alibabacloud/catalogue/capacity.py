"""Computes the capacity of a node of an instance type."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from karpenter_core.api.labels import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from karpenter_provider_alibabacloud import labels
from karpenter_provider_alibabacloud.discovery.cluster import CUSTOM_CLUSTER, Cni

if TYPE_CHECKING:
    from karpenter_provider_alibabacloud.api.kubelet import KubeletConfiguration
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClassSpec
    from karpenter_provider_alibabacloud.catalogue.instance_type_info import InstanceTypeInfo
    from karpenter_provider_alibabacloud.discovery.cluster import ClusterDetails

__all__ = [
    "MIB",
    "NodePods",
    "capacity_of",
    "configures_kubelet",
    "ephemeral_storage_gib",
    "estimated_memory_bytes",
    "fits_network",
    "network_pods",
    "node_pods",
]

MIB: Final = 2**20
GIB: Final = 2**30

DEFAULT_PODS: Final = 110
"""Kubernetes' own default, where the network does not say how many."""
FLANNEL_PODS: Final = 256
"""Addresses of a node's pods when the cluster does not say how many it sets aside (a /24)."""
HOST_NETWORK_PODS: Final = 3
"""Pods on each of ACK's nodes that take no address of the network."""
FEWEST_TERWAY_ADDRESSES: Final = 11
"""ACK puts no node into a cluster with Terway whose interfaces have fewer addresses for pods."""

_ADDRESS_BITS: Final = 32
_ROUNDING: Final = 1e-9
"""A share of a whole number that is whole to people, and a little more to floating point."""
_GPU_RESOURCES: Final = {"nvidia": labels.NVIDIA_GPU, "amd": labels.AMD_GPU}
"""By the first word of `GPUSpec`; what other cards are called depends on their plug-in."""


class NodePods(NamedTuple):
    """Maximum number of pods on a node."""

    pods: int
    kubelet_max_pods: int | None
    """The kubelet's setting for that; None where ACK's script sets it anyway."""


def configures_kubelet(cluster: ClusterDetails) -> bool:
    """Whether `spec.kubeletConfiguration` reaches kubelets, which ACK's script takes it to."""
    return _has_script(cluster)


def _has_script(cluster: ClusterDetails) -> bool:
    return cluster != CUSTOM_CLUSTER


def fits_network(info: InstanceTypeInfo, cluster: ClusterDetails) -> bool:
    """Whether nodes of a type can be in the cluster's network at all."""
    return cluster.cni is not Cni.TERWAY_ENIIP or _terway_addresses(info) >= FEWEST_TERWAY_ADDRESSES


def network_pods(info: InstanceTypeInfo, cluster: ClusterDetails) -> int:
    """Return the number of pods that the cluster's network allows on a node."""
    match cluster.cni:
        case Cni.TERWAY_ENIIP:
            return _terway_addresses(info) + HOST_NETWORK_PODS
        case Cni.TERWAY_ENI:
            return max(0, info.enis - 1) + HOST_NETWORK_PODS
        case Cni.FLANNEL:
            mask = cluster.node_cidr_mask
            return FLANNEL_PODS if mask is None else 2 ** max(0, _ADDRESS_BITS - mask)
        case _:
            return DEFAULT_PODS


def node_pods(
    info: InstanceTypeInfo, kubelet: KubeletConfiguration | None, cluster: ClusterDetails
) -> NodePods:
    """Return how many pods a node takes, as the NodeClass and the network have it.

    ACK's script takes no pods per core, so they count by the number that the kubelet is given.
    In a cluster that is not ACK's it is given none, and they count for nothing.
    """
    pods = network_pods(info, cluster)
    if kubelet is None:
        return NodePods(pods, None)
    max_pods = kubelet.max_pods
    if max_pods is not None:
        pods = max_pods
    if kubelet.pods_per_core and configures_kubelet(cluster):
        pods = max_pods = min(kubelet.pods_per_core * info.cpu_cores, pods)
    return NodePods(pods, max_pods)


def capacity_of(
    info: InstanceTypeInfo, *, pods: int, memory_bytes: int, ephemeral_storage_gib: int
) -> dict[str, int]:
    """Return the node's capacity, in the core's units; resources that it has none of are left out.

    `memory_bytes` is what was seen of such nodes, or `estimated_memory_bytes`.
    """
    capacity = {
        CPU: info.cpu_cores * 1000,
        MEMORY: memory_bytes,
        EPHEMERAL_STORAGE: ephemeral_storage_gib * GIB,
        PODS: pods,
    }
    extended = {labels.ENI: info.enis - 1}
    maker = info.gpu_spec.split(" ", 1)[0].lower()
    if maker in _GPU_RESOURCES:
        extended[_GPU_RESOURCES[maker]] = info.gpus
    return capacity | {name: count for name, count in sorted(extended.items()) if count > 0}


def estimated_memory_bytes(info: InstanceTypeInfo, *, overhead_percent: float) -> int:
    """Return how much memory the kernel is likely to see, in whole MiB.

    `overhead_percent` is a share of 1 that the hypervisor and the kernel's image take (the setting's
    name says percent; its default is 0.065).
    """
    mib = info.memory_mib
    return (mib - ceil(mib * overhead_percent - _ROUNDING)) * MIB


def ephemeral_storage_gib(spec: ECSNodeClassSpec, cluster: ClusterDetails) -> int:
    """Return the size of the disk with the kubelet's directory.

    That is the system disk, unless ACK's script formats the last data disk for it.
    """
    if spec.format_data_disk and spec.data_disks and _has_script(cluster):
        return spec.data_disks[-1].size_gib
    return spec.system_disk_gib


def _terway_addresses(info: InstanceTypeInfo) -> int:
    """Count the addresses of all interfaces but the primary one, which is the node's own."""
    return max(0, info.enis - 1) * info.ips_per_eni
