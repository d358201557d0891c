"""Collects NodeClass properties that types depend on; excludes VM sizes.

NodeClasses with equal traits have equal instance types, so traits are the key of what is resolved once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_provider_azure.api.local_dns import LocalDNSState
from karpenter_provider_azure.api.os_config import ImageFamily
from karpenter_provider_azure.catalogue.capacity import default_max_pods
from karpenter_provider_azure.catalogue.gpu_sizes import gpu_size
from karpenter_provider_azure.labels import OS_SKU_AZURE_LINUX, OS_SKU_UBUNTU

if TYPE_CHECKING:
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass, NodeImage
    from karpenter_provider_azure.catalogue.vm_sizes import VmSize
    from karpenter_provider_azure.settings import AzureSettings

__all__ = [
    "ClassTraits",
    "class_exclusion",
    "general_exclusion",
    "max_pods_of",
    "traits_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassTraits:
    """The properties of a NodeClass that its instance types depend on; hashable."""

    os_sku: str
    """`Ubuntu` or `AzureLinux`."""
    os_disk_size_gb: int
    max_pods: int
    encryption_at_host: bool
    """Whether the NodeClass asks for it."""
    trusted_launch: bool
    gpu_drivers: bool
    """Whether drivers for GPUs are installed (`gpu.mode: Driver`)."""
    artifact_streaming: bool
    fips: bool
    local_dns: bool
    """Whether nodes have LocalDNS, as the status says."""
    images: tuple[NodeImage, ...]
    """In order of preference; empty while they are not resolved."""


def traits_of(node_class: AKSNodeClass, settings: AzureSettings) -> ClassTraits:
    """Return the traits of a NodeClass in a cluster with these settings."""
    spec, status = node_class.spec, node_class.status
    is_azure_linux = spec.image_family == ImageFamily.AZURE_LINUX
    return ClassTraits(
        os_sku=OS_SKU_AZURE_LINUX if is_azure_linux else OS_SKU_UBUNTU,
        os_disk_size_gb=spec.os_disk_size_gb,
        max_pods=max_pods_of(node_class, settings),
        encryption_at_host=bool(spec.encryption_at_host),
        trusted_launch=spec.uses_trusted_launch,
        gpu_drivers=spec.installs_gpu_drivers,
        artifact_streaming=spec.uses_artifact_streaming,
        fips=spec.uses_fips,
        local_dns=status.local_dns_state == LocalDNSState.ENABLED,
        images=status.images,
    )


def max_pods_of(node_class: AKSNodeClass, settings: AzureSettings) -> int:
    """Return the kubelet's limit of pods: of the NodeClass, or by the network plug-in."""
    return node_class.spec.max_pods or default_max_pods(
        network_plugin=settings.network_plugin, network_plugin_mode=settings.network_plugin_mode
    )


LEAST_CPUS: Final = 2
LEAST_MEMORY_GIB: Final = 3.5
LOCAL_DNS_CPUS: Final = 4
LOCAL_DNS_MEMORY_MIB: Final = 244

_REFUSED_BY_AKS: Final = frozenset(
    [
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
    ]
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
