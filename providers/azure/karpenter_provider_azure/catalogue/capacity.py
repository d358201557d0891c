"""Computes the capacity and the overhead of a node of a VM size."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, inf
from typing import TYPE_CHECKING, Final, NamedTuple

from karpenter_core.api.labels import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from karpenter_core.provider.catalogue import Overhead
from karpenter_core.provider.kit.kubelet_reserved import reserved_by_brackets
from karpenter_provider_azure.catalogue.gpu_sizes import gpu_size
from karpenter_provider_azure.labels import AMD, AMD_GPU, NVIDIA, NVIDIA_GPU

if TYPE_CHECKING:
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.catalogue.vm_sizes import VmSize

__all__ = [
    "EVICTION_MEMORY_MIB",
    "MIB",
    "OsDisk",
    "capacity_of",
    "default_max_pods",
    "estimated_memory_bytes",
    "os_disk_of",
    "overhead_of",
    "reserved_cpu_milli",
    "reserved_memory_mib",
]

_GPU_RESOURCES: Final = {NVIDIA: NVIDIA_GPU, AMD: AMD_GPU}

MIB: Final = 2**20
GIB: Final = 2**30
GB: Final = 10**9
"""OS disks are counted in decimal gigabytes as a node's storage, though Azure makes them in GiB."""

EVICTION_MEMORY_MIB: Final = 750
"""The kubelet evicts pods when less memory is free (AKS)."""
_DEFAULT_PODS: Final = 110
_ROUNDING: Final = 1e-9
"""A product that is whole to people, and a little less to floating point."""

# AKS's documentation of resource reservations; bounds in milli-cores and GiB
_CPU_BRACKETS: Final = ((1000, 0.06), (2000, 0.04), (4000, 0.02), (inf, 0.01))
_MEMORY_BRACKETS: Final = ((4, 0.25), (8, 0.20), (16, 0.10), (128, 0.06), (inf, 0.02))

_PODS_BY_NETWORK: Final = {
    ("none", ""): 250,
    ("azure", "overlay"): 250,
    ("azure", ""): 30,
}
"""By network plug-in and its mode; an empty mode of `azure` takes addresses of the node's subnet."""


def default_max_pods(*, network_plugin: str, network_plugin_mode: str) -> int:
    """Return the pods of a node whose NodeClass has no `maxPods`."""
    mode = "" if network_plugin == "none" else network_plugin_mode
    return _PODS_BY_NETWORK.get((network_plugin, mode), _DEFAULT_PODS)


def estimated_memory_bytes(size: VmSize, *, overhead_percent: float) -> int:
    """Return the memory that the kernel is likely to report.

    `overhead_percent` is a share of 1 that the hypervisor and the kernel take (the setting's name says
    percent; its default is 0.075). A fraction of a GiB is not counted.
    """
    memory_bytes = int(size.memory_gib) * GIB
    return memory_bytes - ceil(memory_bytes * Fraction(str(overhead_percent)))


def capacity_of(
    size: VmSize, *, pods: int, memory_bytes: int, os_disk_size_gb: int
) -> dict[str, int]:
    """Return the node's capacity in the core's units, with a count for the GPUs of each vendor.

    `memory_bytes` is the memory of a registered node, or `estimated_memory_bytes`.
    """
    capacity = {
        CPU: size.cpus * 1000,
        MEMORY: memory_bytes,
        EPHEMERAL_STORAGE: os_disk_size_gb * GB,
        PODS: pods,
    }
    support = gpu_size(size.name) if size.gpus else None
    own = _GPU_RESOURCES[support.manufacturer] if support is not None else ""
    return capacity | {
        name: size.gpus if name == own else 0 for name in sorted(_GPU_RESOURCES.values())
    }


def reserved_cpu_milli(cpus: int) -> int:
    """Return the CPU that the kubelet reserves, in milli-cores."""
    return int(reserved_by_brackets(cpus * 1000, _CPU_BRACKETS, whole_slices=True))


def reserved_memory_mib(memory_gib: float) -> int:
    """Return the memory that the kubelet reserves, in MiB; fractions of a GiB count."""
    return int(reserved_by_brackets(memory_gib, _MEMORY_BRACKETS) * 1024 + _ROUNDING)


def overhead_of(size: VmSize) -> Overhead:
    """Return the parts of a node's overhead; AKS reserves nothing for the system."""
    return Overhead(
        kube_reserved={
            CPU: reserved_cpu_milli(size.cpus),
            MEMORY: reserved_memory_mib(size.memory_gib) * MIB,
        },
        eviction_threshold={MEMORY: EVICTION_MEMORY_MIB * MIB},
    )


class OsDisk(NamedTuple):
    """The OS disk of a virtual machine."""

    size_gb: int
    """GiB, which the API calls GB."""
    placement: str = ""
    """Placement of an ephemeral disk (`NvmeDisk`, `CacheDisk`, `ResourceDisk`); empty = managed."""

    @property
    def is_ephemeral(self) -> bool:
        """Whether the disk is on the host and vanishes with the virtual machine."""
        return bool(self.placement)


_LARGEST_EPHEMERAL_GIB: Final = 2040
_GUEST_STATE_GIB: Final = 1
"""Local storage that trusted launch keeps for itself (Azure, ephemeral OS disks)."""


def os_disk_of(size: VmSize, node_class: AKSNodeClass) -> OsDisk:
    """Return the OS disk of a node: on the first local disk with room for it, else managed.

    Azure refuses a virtual machine whose ephemeral disk does not fit.
    """
    size_gib = node_class.spec.os_disk_size_gb
    kept_gib = _GUEST_STATE_GIB if node_class.spec.uses_trusted_launch else 0
    placements = (
        disk.placement
        for disk in size.ephemeral_os_disks
        if size_gib <= min(disk.size_bytes // GIB - kept_gib, _LARGEST_EPHEMERAL_GIB)
    )
    return OsDisk(size_gib, next(placements, ""))
