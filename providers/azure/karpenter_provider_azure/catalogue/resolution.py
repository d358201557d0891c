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
from karpenter_provider_azure.labels import cluster_label_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.records import Resources
    from karpenter_core.provider.catalogue import Overhead
    from karpenter_provider_azure.catalogue.class_traits import ClassTraits
    from karpenter_provider_azure.catalogue.vm_sizes import VmSize
    from karpenter_provider_azure.settings import AzureSettings

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


@final
class TypeResolver:
    """Resolves the sizes of a region for all NodeClasses with the same traits."""

    def __init__(self, traits: ClassTraits, settings: AzureSettings) -> None:
        self.traits: Final = traits
        self._settings: Final = settings
        self._cluster: Final = cluster_label_value(settings.node_resource_group)
        self._images: Final = tuple(
            (image.id, Requirements.from_specs(image.requirements)) for image in traits.images
        )

    def resolve(self, inputs: TypeInputs) -> ResolvedType:
        """Resolve one size."""
        requirements = requirements_of(
            inputs.size,
            self._settings.location,
            cluster=self._cluster,
            os_sku=self.traits.os_sku,
            fips=self.traits.fips,
        )
        image = self._image_for(requirements)
        memory_bytes = inputs.memory_bytes.get(image) or estimated_memory_bytes(
            inputs.size, overhead_percent=self._settings.vm_memory_overhead_percent
        )
        return ResolvedType(
            inputs=inputs,
            requirements=requirements,
            capacity=capacity_of(
                inputs.size,
                pods=self.traits.max_pods,
                memory_bytes=memory_bytes,
                os_disk_size_gb=self.traits.os_disk_size_gb,
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
