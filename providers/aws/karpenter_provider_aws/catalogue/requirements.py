"""Computes the labels that nodes of an instance type have.

Every well-known label is defined, as absent where it does not apply, so that the error of a pod
that asks for a GPU names the reason why no other type fits. Requirements that follow from the type
alone are the same for every NodeClass and shared between them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias, final

from karpenter_core.api.labels import (
    ARCH,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    ON_DEMAND,
    OS,
    REGION,
    RESERVED,
    SPOT,
    WINDOWS_BUILD,
    ZONE,
)
from karpenter_core.provider.catalogue import Requirement, Requirements
from karpenter_provider_aws import labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_provider_aws.api.nodeclass import CapacityReservation, Subnet
    from karpenter_provider_aws.discovery.placement_groups import DescribedPlacementGroup
    from karpenter_provider_aws.families.traits import FamilyTraits
    from karpenter_provider_aws.instance_type_info import InstanceTypeInfo

__all__ = [
    "TypeRequirements",
    "Values",
    "family_values",
    "group_values",
    "instance_labels",
    "interruptible_text",
    "is_any_of",
    "type_requirements",
    "zone_values",
]


_NAME: Final = re.compile(r"([a-z]+)(?:-[0-9]+tb)?([0-9]+).*\.")
"""Category and generation: `g4dn.8xlarge`, `u-6tb1.metal`; names of Macs have none."""
_MOST_SETS: Final = 65_536
"""Bounds memory while NodeClasses change their zones again and again."""
_TRUE_FALSE: Final = {True: "true", False: "false"}


@lru_cache(maxsize=16384)
def is_any_of(key: str, *values: str) -> Requirement:
    """Return the requirement that a label has one of these values; without any, that it is absent.

    Types share most values, and equal requirements are one object.
    """
    return Requirement.of(key, "In" if values else "DoesNotExist", values)


def instance_labels(info: InstanceTypeInfo) -> dict[str, str]:
    """Return the labels under `karpenter.k8s.aws` that follow from an instance type alone."""
    type_labels = {
        labels.INSTANCE_CPU: str(info.vcpus),
        labels.INSTANCE_MEMORY: str(info.memory_mib),
        labels.INSTANCE_HYPERVISOR: info.hypervisor,
        labels.INSTANCE_ENCRYPTION_IN_TRANSIT_SUPPORTED: _TRUE_FALSE[info.encryption_in_transit],
        labels.NITRO_SANDBOX: _TRUE_FALSE[info.nitro_enclaves],
    }
    type_labels |= _name_labels(info.name)
    if info.has_processor_info:
        megahertz = round(info.clock_ghz * 1000)
        type_labels[labels.INSTANCE_CPU_MANUFACTURER] = _kebab(info.cpu_manufacturer)
        type_labels[labels.INSTANCE_CPU_SUSTAINED_CLOCK_SPEED_MHZ] = str(megahertz)
    if info.ebs_mbps is not None:
        type_labels[labels.INSTANCE_EBS_BANDWIDTH] = str(info.ebs_mbps)
    # Upstream ships a table; the API now says the same, and of newer types more.
    megabits = round(1000 * sum(card.baseline_gbps for card in info.network_cards))
    if megabits:
        type_labels[labels.INSTANCE_NETWORK_BANDWIDTH] = str(megabits)
    if info.storage_nvme and info.storage_gb is not None:
        type_labels[labels.INSTANCE_LOCAL_NVME] = str(info.storage_gb)
    return {**type_labels, **_accelerator_labels(info)}


def _name_labels(name: str) -> dict[str, str]:
    family, *sizes = name.split(".")
    name_labels = {labels.INSTANCE_CAPABILITY_FLEX: _TRUE_FALSE["-flex" in family]}
    if len(sizes) == 1:
        name_labels |= {labels.INSTANCE_FAMILY: family, labels.INSTANCE_SIZE: sizes[0]}
    if (match := _NAME.match(name)) is not None:
        name_labels |= {labels.INSTANCE_CATEGORY: match[1], labels.INSTANCE_GENERATION: match[2]}
    return name_labels


def _accelerator_labels(info: InstanceTypeInfo) -> dict[str, str]:
    """Return labels of GPUs and accelerators; with several kinds no label could tell of both."""
    accelerator_labels: dict[str, str] = {}
    if len(info.gpus) == 1:
        gpu = info.gpus[0]
        accelerator_labels |= {
            labels.INSTANCE_GPU_NAME: _kebab(gpu.name),
            labels.INSTANCE_GPU_MANUFACTURER: _kebab(gpu.manufacturer),
            labels.INSTANCE_GPU_COUNT: str(gpu.count),
            labels.INSTANCE_GPU_MEMORY: str(gpu.memory_mib),
        }
    if info.neuron_devices is None:
        chips = [(c.name, c.manufacturer, c.count) for c in info.inference_accelerators]
    else:
        chips = [(device.name, "aws", device.count) for device in info.neuron_devices]
    if len(chips) == 1:
        name, manufacturer, count = chips[0]
        accelerator_labels |= {
            labels.INSTANCE_ACCELERATOR_NAME: _kebab(name),
            labels.INSTANCE_ACCELERATOR_MANUFACTURER: _kebab(manufacturer),
            labels.INSTANCE_ACCELERATOR_COUNT: str(count),
        }
    return accelerator_labels


def type_requirements(info: InstanceTypeInfo, region: str) -> tuple[Requirement, ...]:
    """Return what follows from an instance type and its region, whatever the NodeClass."""
    type_labels = instance_labels(info)
    return (
        is_any_of(INSTANCE_TYPE, info.name),
        is_any_of(ARCH, *_one(info.architecture)),
        is_any_of(REGION, region),
        is_any_of(labels.INSTANCE_TENANCY, labels.TENANCY_DEFAULT, labels.TENANCY_DEDICATED),
        *(
            is_any_of(key, type_labels[key]) if key in type_labels else is_any_of(key)
            for key in sorted(labels.INSTANCE_LABELS)
        ),
    )


Values: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""Labels and the values each may have; none stands for a label that is absent."""


def family_values(
    info: InstanceTypeInfo, traits: FamilyTraits, reservations: Sequence[CapacityReservation]
) -> Values:
    """Return what a family and the reservations of a type say of its nodes."""
    capacity_types = [c for c in info.usage_classes if c in {ON_DEMAND, SPOT}]
    if reservations:
        capacity_types.append(RESERVED)
    operating_system = "linux"
    if traits.is_windows:
        operating_system = "windows" if info.architecture == "amd64" else ""
    return (
        (OS, _one(operating_system)),
        (WINDOWS_BUILD, _one(traits.windows_build)),
        (CAPACITY_TYPE, tuple(capacity_types)),
        *(_reservation_values(reservations) if reservations else _NO_RESERVATIONS),
    )


_NO_RESERVATIONS: Final[Values] = tuple((key, ()) for key in sorted(labels.RESERVATION_LABELS))


def _reservation_values(reservations: Sequence[CapacityReservation]) -> Values:
    interruptible = (interruptible_text(reservation) for reservation in reservations)
    return (
        (labels.CAPACITY_RESERVATION_ID, _unique(r.id for r in reservations)),
        (labels.CAPACITY_RESERVATION_TYPE, _unique(r.reservation_type for r in reservations)),
        (labels.CAPACITY_RESERVATION_INTERRUPTIBLE, _unique(interruptible)),
    )


def zone_values(subnets: Sequence[Subnet]) -> Values:
    """Return where nodes can be, by the subnets in zones where their type is sold."""
    return (
        (ZONE, _unique(subnet.zone for subnet in subnets)),
        (labels.ZONE_ID, _unique(subnet.zone_id for subnet in subnets)),
    )


def group_values(group: DescribedPlacementGroup | None) -> Values:
    """Return the labels that nodes in a placement group have; absent outside of one."""
    partitions = 0 if group is None else group.partitions
    return (
        (labels.PLACEMENT_GROUP_ID, _one("" if group is None else group.id)),
        (
            labels.PLACEMENT_GROUP_PARTITION,
            tuple(str(number) for number in range(1, partitions + 1)),
        ),
    )


@final
class TypeRequirements:
    """The requirements of a region's types; callable from any thread.

    NodeClasses with the same zones and family share the sets of a thousand types.
    """

    def __init__(self, region: str) -> None:
        self._region: Final = region
        self._sets: Final[dict[tuple[str, Values], Requirements]] = {}

    def find(self, info: InstanceTypeInfo, values: Values) -> Requirements:
        """Return what nodes of a type have, `values` by their NodeClass and the rest by the type."""
        key = (info.name, values)
        requirements = self._sets.get(key)
        if requirements is None:
            requirements = Requirements(
                (
                    *type_requirements(info, self._region),
                    *(is_any_of(key, *texts) for key, texts in values),
                )
            )
            if len(self._sets) >= _MOST_SETS:
                self._sets.clear()
            self._sets[key] = requirements
        return requirements


def interruptible_text(reservation: CapacityReservation) -> str:
    """Return the value of the label that says whether the owner may take the capacity back."""
    return _TRUE_FALSE[bool(reservation.interruptible)]


def _kebab(text: str) -> str:
    return text.lower().replace(" ", "-")


def _one(text: str) -> tuple[str, ...]:
    return (text,) if text else ()


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({text for text in texts if text}))
