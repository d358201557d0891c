"""Names the reason why nodes cannot use a VM size, in general or for one NodeClass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_provider_azure.catalogue.gpu_sizes import gpu_size

if TYPE_CHECKING:
    from karpenter_provider_azure.catalogue.class_traits import ClassTraits
    from karpenter_provider_azure.catalogue.vm_sizes import VmSize

__all__ = ["class_exclusion", "general_exclusion"]

LEAST_CPUS: Final = 2
LEAST_MEMORY_GIB: Final = 3.5
LOCAL_DNS_CPUS: Final = 4
LOCAL_DNS_MEMORY_MIB: Final = 244

_REFUSED_BY_AKS: Final = frozenset(
    {
        "Standard_A0",
        "Standard_A1",
        "Standard_A1_v2",
        "Standard_B1s",
        "Standard_B1ms",
        "Standard_F1",
        "Standard_F1s",
        "Basic_A0",
        "Basic_A1",
        "Basic_A2",
        "Basic_A3",
        "Basic_A4",
        "Standard_E64i_v3",
        "Standard_E64is_v3",
    }
)
"""Sizes that AKS does not allow for nodes, or that are out of service."""


def general_exclusion(size: VmSize) -> str:
    """Return why no node can use a size; empty if nodes can."""
    if size.name in _REFUSED_BY_AKS:
        return "AKS does not support the size"
    if size.cpus < LEAST_CPUS:
        return f"fewer than {LEAST_CPUS} vCPUs"
    if size.memory_gib < LEAST_MEMORY_GIB:
        return f"less than {LEAST_MEMORY_GIB} GiB of memory"
    if size.size_name.is_constrained:
        return "constrained vCPUs"
    if size.size_name.is_confidential:
        return "confidential computing"
    if size.gpus and gpu_size(size.name) is None:
        return "GPUs that AKS does not support"
    return ""


def class_exclusion(size: VmSize, traits: ClassTraits) -> str:
    """Return the field of the NodeClass that excludes a size, with the reason; empty if none does."""
    support = gpu_size(size.name) if size.gpus else None
    if support is not None and traits.os_sku not in support.operating_systems:
        return f"imageFamily: no GPU driver for {traits.os_sku}"
    if support is not None and traits.gpu_drivers and not support.has_managed_driver:
        return "gpu.mode: AKS installs no driver for the GPU"
    if traits.encryption_at_host and not size.encryption_at_host:
        return "security.encryptionAtHost: not supported"
    if traits.trusted_launch and not size.trusted_launch:
        return "security.trustedLaunch: not supported"
    if traits.local_dns and (size.cpus < LOCAL_DNS_CPUS or size.memory_mib < LOCAL_DNS_MEMORY_MIB):
        return f"localDNS: fewer than {LOCAL_DNS_CPUS} vCPUs"
    if traits.artifact_streaming and size.arch == "arm64":
        return "artifactStreaming: not supported on arm64"
    return ""
