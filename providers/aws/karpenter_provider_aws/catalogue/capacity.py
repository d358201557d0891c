"""Computes the capacity of a node of an instance type."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from karpenter_provider_aws import labels
from karpenter_provider_aws.data import network_limits
from karpenter_provider_aws.type_compatibility import efa_only_interfaces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_provider_aws.api.nodeclass import EC2NodeClass, NetworkInterface
    from karpenter_provider_aws.families.traits import FamilyTraits
    from karpenter_provider_aws.instance_type_info import InstanceTypeInfo

__all__ = ["MIB", "capacity_of", "ephemeral_storage_bytes", "estimated_memory_bytes"]

MIB: Final = 2**20
GIB: Final = 2**30
GB: Final = 10**9

_ARM_RESERVED_MIB: Final = 64
"""Memory that firmware reserves on Graviton (contiguous memory allocator)."""
_RAID0: Final = "RAID0"
_GPU_RESOURCES: Final = {
    "NVIDIA": labels.NVIDIA_GPU,
    "AMD": labels.AMD_GPU,
    "Habana": labels.HABANA_GAUDI,
}


def capacity_of(
    info: InstanceTypeInfo,
    node_class: EC2NodeClass,
    traits: FamilyTraits,
    *,
    pods: int,
    memory_bytes: int,
) -> dict[str, int]:
    """Return the node's capacity, in the core's units; resources that it has none of are left out.

    `memory_bytes` is what was seen of such nodes, or `estimated_memory_bytes`.
    """
    capacity = {
        CPU: info.vcpus * 1000,
        MEMORY: memory_bytes,
        EPHEMERAL_STORAGE: ephemeral_storage_bytes(info, node_class, traits),
        PODS: pods,
    }
    limits = network_limits().get(info.name)
    extended = {
        labels.POD_ENI: 0 if limits is None else limits.branch_interfaces,
        labels.EFA: _efas(info, node_class.spec.network_interfaces),
        **_accelerators(info),
    }
    if traits.is_windows and info.architecture == "amd64" and limits is not None:
        extended[labels.PRIVATE_IPV4_ADDRESS] = limits.ipv4_per_interface - 1
    return capacity | {name: count for name, count in sorted(extended.items()) if count > 0}


def estimated_memory_bytes(info: InstanceTypeInfo, *, overhead_percent: float) -> int:
    """Return how much memory the kernel is likely to see, in whole MiB.

    `overhead_percent` is a share of 1 that the hypervisor and the kernel's image take (the setting's
    name says percent; its default is 0.075).
    """
    mib = info.memory_mib
    if info.architectures[:1] == ("arm64",):
        mib -= _ARM_RESERVED_MIB
    return (mib - ceil(mib * MIB * overhead_percent / MIB)) * MIB


def ephemeral_storage_bytes(
    info: InstanceTypeInfo, node_class: EC2NodeClass, traits: FamilyTraits
) -> int:
    """Return the size of the file system with the kubelet's root directory."""
    spec = node_class.spec
    if spec.instance_store_policy == _RAID0 and info.storage_gb:
        return info.storage_gb * GB
    mappings = spec.block_device_mappings
    root = next((mapping for mapping in mappings if mapping.root_volume), None)
    candidates = [] if root is None else [root]
    if traits.ephemeral_device:
        candidates += [m for m in mappings if m.device_name == traits.ephemeral_device][:1]
    else:
        # A custom image decides on its mounts itself; the last volume is the best guess.
        candidates += mappings[-1:]
    for mapping in candidates:
        size = None if mapping.ebs is None else mapping.ebs.size_bytes
        if size is not None:
            return size
    return traits.default_ephemeral_gib * GIB


def _efas(info: InstanceTypeInfo, interfaces: Sequence[NetworkInterface]) -> int:
    """Count EFAs: those that the NodeClass asks for, else as many as fit."""
    return efa_only_interfaces(interfaces) if interfaces else info.efa_max_interfaces or 0


def _accelerators(info: InstanceTypeInfo) -> dict[str, int]:
    counts: dict[str, int] = {}
    for gpu in info.gpus:
        if (name := _GPU_RESOURCES.get(gpu.manufacturer)) is not None:
            counts[name] = counts.get(name, 0) + gpu.count
    if info.neuron_devices:
        first = info.neuron_devices[0]
        counts[labels.NEURON] = sum(device.count for device in info.neuron_devices)
        counts[labels.NEURON_CORE] = first.count * first.cores
    return counts
