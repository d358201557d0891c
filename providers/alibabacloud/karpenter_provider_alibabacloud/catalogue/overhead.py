"""Computes a node's overhead by ACK's policy or by the NodeClass."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CPU, EPHEMERAL_STORAGE, MEMORY
from karpenter_core.provider.catalogue import Overhead
from karpenter_core.provider.kit.kubelet_reserved import (
    eviction_threshold_of_field,
    reserved_amounts,
    reserved_by_brackets,
)
from karpenter_provider_alibabacloud.catalogue.capacity import configures_kubelet

if TYPE_CHECKING:
    from karpenter_core.api.records import Resources
    from karpenter_provider_alibabacloud.api.kubelet import KubeletConfiguration
    from karpenter_provider_alibabacloud.catalogue.instance_type_info import InstanceTypeInfo
    from karpenter_provider_alibabacloud.discovery.cluster import ClusterDetails

__all__ = ["overhead_of", "reserved_cpu_milli", "reserved_memory_mib"]

MIB: Final = 2**20
_FIELD: Final = "spec.kubeletConfiguration"

# ACK's documentation of its reservation policy
_CPU_BRACKETS: Final = ((1000, 0.06), (2000, 0.01), (4000, 0.005), (inf, 0.0025))
_MEMORY_MIB_PER_POD: Final = 11
_MEMORY_MIB_BASE: Final = 255
_LARGEST_SHARE: Final = 0.25
"""Share of the memory that the type is sold with."""
_MEMORY_MIB_SEEN: Final = 200
"""Measured reservation of nodes beyond the policy: eviction threshold and system daemons."""

_EVICTION: Final = (("memory.available", MEMORY), ("nodefs.available", EPHEMERAL_STORAGE))


def reserved_cpu_milli(cpu_cores: int) -> int:
    """Return the CPU that ACK reserves on a node, in milli-cores."""
    return int(reserved_by_brackets(cpu_cores * 1000, _CPU_BRACKETS, whole_slices=True))


def reserved_memory_mib(memory_mib: int, pods: int) -> int:
    """Return the memory that ACK reserves on a node, in MiB; `memory_mib` is its type's."""
    by_pods = _MEMORY_MIB_PER_POD * pods + _MEMORY_MIB_BASE
    return int(min(by_pods, memory_mib * _LARGEST_SHARE)) + _MEMORY_MIB_SEEN


def overhead_of(
    info: InstanceTypeInfo,
    capacity: Resources,
    *,
    pods: int,
    kubelet: KubeletConfiguration | None,
    cluster: ClusterDetails,
) -> Overhead:
    """Return the three parts of a node's overhead; thresholds are shares of `capacity`.

    The user's quantities stand in place of single ones of ACK's. In a cluster that is none of ACK's
    they reach no kubelet, and count for nothing. Soft thresholds keep nothing: pods may use what lies
    above the hard ones.

    Raises:
        ValueError: a quantity or threshold cannot be read; names field and value.
    """
    reserved = {
        CPU: reserved_cpu_milli(info.cpu_cores),
        MEMORY: reserved_memory_mib(info.memory_mib, pods) * MIB,
    }
    if kubelet is None or not configures_kubelet(cluster):
        return Overhead(kube_reserved=reserved)
    return Overhead(
        kube_reserved=reserved
        | reserved_amounts(kubelet.kube_reserved, field=f"{_FIELD}.kubeReserved"),
        system_reserved=reserved_amounts(kubelet.system_reserved, field=f"{_FIELD}.systemReserved"),
        eviction_threshold={
            resource: eviction_threshold_of_field(
                kubelet.eviction_hard[signal],
                capacity[resource],
                field=f"{_FIELD}.evictionHard.{signal}",
            )
            for signal, resource in _EVICTION
            if signal in kubelet.eviction_hard
        },
    )
