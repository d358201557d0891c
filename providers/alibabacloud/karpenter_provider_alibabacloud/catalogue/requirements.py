"""Computes the labels that nodes of an instance type have.

Every well-known label is defined, as absent where it does not apply, so that the error of a pod
that asks for a GPU names the reason why no other type fits. Requirements that follow from the type
alone are the same for every NodeClass, and equal sets are one object.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from karpenter_core.api.labels import (
    ARCH,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    OS,
    REGION,
    RESERVED,
    WINDOWS_BUILD,
    ZONE,
)
from karpenter_core.api.names import label_value_error
from karpenter_core.provider.catalogue import Requirement, Requirements
from karpenter_provider_alibabacloud import labels
from karpenter_provider_alibabacloud.catalogue.instance_type_info import InstanceTypeInfo, read_name

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "Values",
    "instance_labels",
    "is_any_of",
    "offering_requirements",
    "requirements_of",
    "zone_values",
]

_LINUX: Final = "linux"
_KBPS_PER_MBPS: Final = 1024
"""ECS tells 1 Gbit/s as 1,024,000 kbit/s."""
_CPU_MODELS: Final = ("amd", "intel", "yitian", "ampere", "hygon")
"""Words in the name of a processor, which are also the values of the label."""
_NOT_IN_A_VALUE: Final = re.compile(r"[^a-z0-9._-]")
"""Spaces, and whatever else a label's value may not have in it."""

Values: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Labels and the values each may have; none stands for a label that is absent."""


@lru_cache(maxsize=16384)
def is_any_of(key: str, *values: str) -> Requirement:
    """Return the requirement that a label has one of these values; without any, that it is absent.

    Types share most values, and equal requirements are one object.
    """
    return Requirement.of(key, "In" if values else "DoesNotExist", values)


def instance_labels(info: InstanceTypeInfo) -> dict[str, str]:
    """Return the labels under `karpenter.k8s.alibabacloud` that follow from an instance type alone.

    A value that no label may have is left out: the API server would refuse each NodeClaim and Node with it.
    """
    name = read_name(info.name, family=info.family)
    type_labels = {
        labels.INSTANCE_CATEGORY: name.category,
        labels.INSTANCE_GENERATION: name.generation,
        labels.INSTANCE_FAMILY: name.family,
        labels.INSTANCE_SIZE: name.size,
        labels.INSTANCE_CPU: str(info.cpu_cores),
        labels.INSTANCE_CPU_MODEL: _cpu_model(info.processor_model),
        labels.INSTANCE_MEMORY: str(info.memory_mib),
        labels.INSTANCE_FAMILY_LEVEL: info.family_level,
        labels.INSTANCE_NVME: info.nvme,
    }
    if info.bandwidth_kbps:
        bandwidth = round(info.bandwidth_kbps / _KBPS_PER_MBPS)
        type_labels[labels.INSTANCE_NETWORK_BANDWIDTH] = str(bandwidth)
    if info.local_disks and info.local_disk_gib:
        type_labels[labels.INSTANCE_LOCAL_DISK_CATEGORY] = info.local_disk_category
        type_labels[labels.INSTANCE_LOCAL_DISK_SIZE] = str(info.local_disks * info.local_disk_gib)
    if info.gpus:
        type_labels[labels.INSTANCE_GPU_NAME] = _label_value(info.gpu_spec)
        type_labels[labels.INSTANCE_GPU_MANUFACTURER] = info.gpu_spec.split(" ", 1)[0]
        type_labels[labels.INSTANCE_GPU_COUNT] = str(info.gpus)
        if info.gpu_memory_gib:
            type_labels[labels.INSTANCE_GPU_MEMORY] = f"{info.gpu_memory_gib:g}"
    return {
        key: value for key, value in type_labels.items() if value and not label_value_error(value)
    }


def _cpu_model(processor: str) -> str:
    return next((model for model in _CPU_MODELS if model in processor.lower()), "")


def _label_value(text: str) -> str:
    return _NOT_IN_A_VALUE.sub("-", text.lower()).strip("-._")


def zone_values(
    *, zones: Iterable[str], capacity_types: Iterable[str], reservations: Iterable[str]
) -> Values:
    """Return what a NodeClass and the stock say of a type's nodes, each in a fixed order."""
    zone_names = tuple(sorted(set(zones)))
    return (
        (ZONE, zone_names),
        (labels.ZONE_ID, zone_names),
        (CAPACITY_TYPE, tuple(sorted(set(capacity_types)))),
        (labels.CAPACITY_RESERVATION_ID, tuple(sorted(set(reservations)))),
    )


@lru_cache(maxsize=4096)
def _type_requirements(info: InstanceTypeInfo, region: str) -> tuple[Requirement, ...]:
    type_labels = instance_labels(info)
    return (
        is_any_of(INSTANCE_TYPE, info.name),
        is_any_of(ARCH, *((info.architecture,) if info.architecture else ())),
        is_any_of(OS, _LINUX),
        is_any_of(WINDOWS_BUILD),
        is_any_of(REGION, region),
        *(
            is_any_of(key, type_labels[key]) if key in type_labels else is_any_of(key)
            for key in sorted(labels.INSTANCE_LABELS)
        ),
    )


@lru_cache(maxsize=16384)
def requirements_of(info: InstanceTypeInfo, region: str, values: Values) -> Requirements:
    """Return what nodes of a type have, `values` by where they can be and the rest by the type."""
    return Requirements(
        (*_type_requirements(info, region), *(is_any_of(key, *texts) for key, texts in values))
    )


@lru_cache(maxsize=1024)
def offering_requirements(capacity_type: str, zone: str, reservation: str = "") -> Requirements:
    """Return the requirements of an offering; `reservation` is the id of a private pool."""
    return Requirements(
        (
            is_any_of(CAPACITY_TYPE, RESERVED if reservation else capacity_type),
            is_any_of(ZONE, zone),
            is_any_of(labels.ZONE_ID, zone),
            is_any_of(labels.CAPACITY_RESERVATION_ID, *((reservation,) if reservation else ())),
        )
    )
