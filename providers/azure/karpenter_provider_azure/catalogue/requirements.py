"""Computes the labels that nodes of a VM size have.

Every well-known label is defined, as absent where it does not apply, so that the error of a pod that
asks for a GPU names the reason why no other size fits. Requirements of a size are the same for every
NodeClass, and equal sets are one object.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import (
    ARCH,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    ON_DEMAND,
    OS,
    REGION,
    SPOT,
    WINDOWS_BUILD,
    ZONE,
)
from karpenter_core.provider.catalogue import Requirement, Requirements
from karpenter_provider_azure import labels
from karpenter_provider_azure.catalogue.gpu_sizes import gpu_size
from karpenter_provider_azure.labels import placement_scope, zone_label, zone_number

if TYPE_CHECKING:
    from karpenter_provider_azure.catalogue.vm_sizes import VmSize

__all__ = [
    "allows_ultra_ssd",
    "is_any_of",
    "offering_requirements",
    "offering_zones",
    "requirements_of",
    "size_labels",
]

_LINUX: Final = "linux"


@lru_cache(maxsize=16384)
def is_any_of(key: str, *values: str) -> Requirement:
    """Return the requirement that a label has one of these values; without any, that it is absent.

    Sizes share most values, and equal requirements are one object.
    """
    return Requirement.of(key, "In" if values else "DoesNotExist", values)


def offering_zones(size: VmSize, location: str) -> tuple[str, ...]:
    """Return the zone labels of a size: its availability zones, and the regional zone."""
    return (*(zone_label(location, zone) for zone in size.zones), labels.REGIONAL_ZONE)


def size_labels(size: VmSize) -> dict[str, str]:
    """Return the labels that follow from a size alone."""
    name = size.size_name
    support = gpu_size(size.name) if size.gpus else None
    disk_gb = size.max_ephemeral_os_disk_gb
    found = {
        labels.SKU_NAME: size.name,
        labels.SKU_FAMILY: name.family,
        labels.SKU_SERIES: name.series,
        labels.SKU_VERSION: name.version,
        labels.SKU_CPU: str(size.cpus),
        labels.SKU_MEMORY: str(size.memory_mib),
        labels.AKS_SKU_CPU: str(size.cpus),
        labels.AKS_SKU_MEMORY: str(size.memory_mib),
        labels.SKU_NETWORKING_ACCELERATED: _text(is_true=size.accelerated_networking),
        labels.SKU_STORAGE_PREMIUM_CAPABLE: _text(is_true=size.premium_io),
        labels.SKU_STORAGE_EPHEMERAL_OS_MAX_SIZE: str(disk_gb) if disk_gb else "",
        labels.SKU_GPU_COUNT: str(size.gpus),
        labels.SKU_GPU_NAME: name.accelerator if size.gpus else "",
        labels.SKU_GPU_MANUFACTURER: "" if support is None else support.manufacturer,
    }
    return {key: value for key, value in found.items() if value}


@lru_cache(maxsize=4096)
def _size_requirements(size: VmSize, location: str) -> tuple[Requirement, ...]:
    of_size = size_labels(size)
    zones = offering_zones(size, location)
    scopes = sorted({placement_scope(zone) for zone in zones})
    ultra_ssd = _ultra_ssd_values(is_possible=any(allows_ultra_ssd(size, zone) for zone in zones))
    return (
        is_any_of(INSTANCE_TYPE, size.name),
        is_any_of(ARCH, size.arch),
        is_any_of(OS, _LINUX),
        is_any_of(WINDOWS_BUILD),
        is_any_of(REGION, location),
        is_any_of(ZONE, *sorted(zones)),
        is_any_of(CAPACITY_TYPE, ON_DEMAND, SPOT),
        is_any_of(labels.PLACEMENT_SCOPE, *scopes),
        is_any_of(labels.SKU_STORAGE_ULTRA_SSD, *ultra_ssd),
        is_any_of(labels.AKS_PRIORITY, labels.PRIORITY_REGULAR, labels.PRIORITY_SPOT),
        is_any_of(labels.AKS_SCALE_SET_PRIORITY, labels.PRIORITY_REGULAR, labels.PRIORITY_SPOT),
        is_any_of(labels.AKS_MODE, labels.MODE_SYSTEM, labels.MODE_USER),
        is_any_of(labels.SKU_HYPERV_GENERATION, *size.hyperv_generations),
        *(
            is_any_of(key, of_size[key]) if key in of_size else is_any_of(key)
            for key in sorted(labels.INSTANCE_LABELS)
        ),
    )


@lru_cache(maxsize=16384)
def requirements_of(
    size: VmSize, location: str, *, cluster: str, os_sku: str, fips: bool
) -> Requirements:
    """Return the labels of nodes of a size; `cluster` is the value of the cluster's label."""
    return Requirements(
        (
            *_size_requirements(size, location),
            is_any_of(labels.AKS_CLUSTER, *((cluster,) if cluster else ())),
            is_any_of(labels.AKS_OS_SKU, os_sku),
            is_any_of(labels.AKS_FIPS_ENABLED, *((labels.TRUE,) if fips else ())),
        )
    )


@lru_cache(maxsize=1024)
def offering_requirements(capacity_type: str, zone: str, *, has_ultra_ssd: bool) -> Requirements:
    """Return the requirements of an offering; where ultra disks are possible, pods choose."""
    priority = labels.PRIORITY_OF[capacity_type]
    return Requirements(
        (
            is_any_of(CAPACITY_TYPE, capacity_type),
            is_any_of(ZONE, zone),
            is_any_of(labels.PLACEMENT_SCOPE, placement_scope(zone)),
            is_any_of(labels.AKS_PRIORITY, priority),
            is_any_of(labels.AKS_SCALE_SET_PRIORITY, priority),
            is_any_of(labels.SKU_STORAGE_ULTRA_SSD, *_ultra_ssd_values(is_possible=has_ultra_ssd)),
        )
    )


def allows_ultra_ssd(size: VmSize, zone: str) -> bool:
    """Whether virtual machines of a size can have ultra disks in the zone of a zone label."""
    if zone == labels.REGIONAL_ZONE:
        return size.regional_ultra_ssd
    return zone_number(zone) in size.ultra_ssd_zones


def _ultra_ssd_values(*, is_possible: bool) -> tuple[str, ...]:
    return (labels.FALSE, labels.TRUE) if is_possible else (labels.FALSE,)


def _text(*, is_true: bool) -> str:
    return labels.TRUE if is_true else labels.FALSE
