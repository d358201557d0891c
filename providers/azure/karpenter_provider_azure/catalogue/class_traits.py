"""Collects the properties of a NodeClass that its instance types depend on.

NodeClasses with equal traits have equal instance types, so traits are the key of what is resolved once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from karpenter_provider_azure.api.modes import FipsMode, GpuMode, ImageFamily
from karpenter_provider_azure.catalogue.capacity import default_max_pods
from karpenter_provider_azure.labels import OS_SKU_AZURE_LINUX, OS_SKU_UBUNTU

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import RequirementSpec
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass

__all__ = ["ClassTraits", "ImageTraits", "max_pods_of", "traits_of"]

_ENABLED = "Enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageTraits:
    """An image of the NodeClass, and the labels of instance types that it needs."""

    id: str
    requirements: tuple[RequirementSpec, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassTraits:
    """The properties of a NodeClass that its instance types depend on; hashable."""

    os_sku: str = OS_SKU_UBUNTU
    """`Ubuntu` or `AzureLinux`."""
    os_disk_size_gb: int = 128
    max_pods: int = 110
    encryption_at_host: bool = False
    """Whether the NodeClass asks for it."""
    trusted_launch: bool = False
    gpu_drivers: bool = True
    """Whether drivers for GPUs are installed (`gpu.mode: Driver`)."""
    artifact_streaming: bool = False
    fips: bool = False
    local_dns: bool = False
    """Whether nodes have LocalDNS, as the status says."""
    images: tuple[ImageTraits, ...] = ()
    """In order of preference; empty while they are not resolved."""


def traits_of(
    node_class: AKSNodeClass, *, network_plugin: str, network_plugin_mode: str
) -> ClassTraits:
    """Return the traits of a NodeClass in a cluster with this network."""
    spec, status = node_class.spec, node_class.status
    is_azure_linux = spec.image_family == ImageFamily.AZURE_LINUX
    return ClassTraits(
        os_sku=OS_SKU_AZURE_LINUX if is_azure_linux else OS_SKU_UBUNTU,
        os_disk_size_gb=spec.os_disk_size_gb,
        max_pods=max_pods_of(
            node_class, network_plugin=network_plugin, network_plugin_mode=network_plugin_mode
        ),
        encryption_at_host=bool(spec.encryption_at_host),
        trusted_launch=spec.uses_trusted_launch,
        gpu_drivers=spec.gpu_mode != GpuMode.NONE,
        artifact_streaming=spec.uses_artifact_streaming,
        fips=spec.fips_mode == FipsMode.FIPS,
        local_dns=status.local_dns_state == _ENABLED,
        images=tuple(
            ImageTraits(id=image.id, requirements=image.requirements) for image in status.images
        ),
    )


def max_pods_of(node_class: AKSNodeClass, *, network_plugin: str, network_plugin_mode: str) -> int:
    """Return the kubelet's limit of pods: of the NodeClass, or by the network plug-in."""
    return node_class.spec.max_pods or default_max_pods(
        network_plugin=network_plugin, network_plugin_mode=network_plugin_mode
    )
