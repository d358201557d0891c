"""Resolves VM sizes for one NodeClass, without prices and availability.

Pure functions of values: the same sizes and NodeClass give the same result in every process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, final

from karpenter_core.provider.catalogue import Requirements
from karpenter_provider_azure.catalogue.capacity import (
    capacity_of,
    estimated_memory_bytes,
    overhead_of,
)
from karpenter_provider_azure.catalogue.requirements import requirements_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.records import Resources
    from karpenter_core.provider.catalogue import Overhead
    from karpenter_provider_azure.catalogue.class_traits import ClassTraits
    from karpenter_provider_azure.catalogue.vm_sizes import VmSize

__all__ = ["ResolvedType", "TypeInputs", "TypeResolver"]


class TypeInputs(NamedTuple):
    """The inputs of a resolved type besides its NodeClass."""

    size: VmSize
    memory_bytes: Mapping[str, int]
    """Memory observed on its nodes, by id of the image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedType:
    """A VM size for one NodeClass, without its offerings."""

    inputs: TypeInputs
    requirements: Requirements
    capacity: Resources
    overhead: Overhead
    image_id: str
    """The image of its nodes; empty when the NodeClass has none that fits."""
    has_image: bool
    """False if the NodeClass has images and none fits."""

    @property
    def size(self) -> VmSize:
        """The VM size."""
        return self.inputs.size

    def is_like(self, other: ResolvedType) -> bool:
        """Whether a list shows both alike, when they have the same offerings."""
        return (
            self.requirements is other.requirements
            and self.capacity == other.capacity
            and self.overhead == other.overhead
        )


@final
class TypeResolver:
    """Resolves the sizes of a region for all NodeClasses with the same traits."""

    def __init__(
        self, traits: ClassTraits, *, location: str, cluster: str, overhead_percent: float
    ) -> None:
        """`cluster` is the value of the cluster's label."""
        self._traits: Final = traits
        self._location: Final = location
        self._cluster: Final = cluster
        self._overhead_percent: Final = overhead_percent
        self._images: Final = tuple(
            (image.id, Requirements.from_specs(image.requirements)) for image in traits.images
        )

    def resolve(self, inputs: TypeInputs) -> ResolvedType:
        """Resolve one size."""
        requirements = requirements_of(
            inputs.size,
            self._location,
            cluster=self._cluster,
            os_sku=self._traits.os_sku,
            fips=self._traits.fips,
        )
        image = self._image_for(requirements)
        memory_bytes = inputs.memory_bytes.get(image) or estimated_memory_bytes(
            inputs.size, overhead_percent=self._overhead_percent
        )
        return ResolvedType(
            inputs=inputs,
            requirements=requirements,
            capacity=capacity_of(
                inputs.size,
                pods=self._traits.max_pods,
                memory_bytes=memory_bytes,
                os_disk_size_gb=self._traits.os_disk_size_gb,
            ),
            overhead=overhead_of(inputs.size),
            image_id=image,
            has_image=bool(image) or not self._images,
        )

    def _image_for(self, requirements: Requirements) -> str:
        """Return the first image in the order of the status that fits."""
        return next(
            (
                image
                for image, image_requirements in self._images
                if requirements.compatible(image_requirements)
            ),
            "",
        )
