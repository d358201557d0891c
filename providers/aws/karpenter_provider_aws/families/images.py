"""SSM parameters of an alias's images, and the image of each type.

An image does not name the accelerators that it has drivers for: they follow from its parameter's
path alone. Its architecture comes from the image itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import WELL_KNOWN
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.provider.catalogue import Requirements
from karpenter_provider_aws.labels import (
    INSTANCE_ACCELERATOR_COUNT,
    INSTANCE_GPU_COUNT,
    LABEL_CLASSES,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_provider_aws.api.nodeclass import Ami

__all__ = [
    "LATEST",
    "NEURON",
    "NVIDIA",
    "STANDARD",
    "ImageParameter",
    "image_for",
]

LATEST: Final = "latest"
"""The version of an alias that follows new images; their parameters change their values."""

STANDARD: Final = (
    RequirementSpec(key=INSTANCE_ACCELERATOR_COUNT, operator="DoesNotExist"),
    RequirementSpec(key=INSTANCE_GPU_COUNT, operator="DoesNotExist"),
)
"""Instance types without accelerators."""
NVIDIA: Final = (RequirementSpec(key=INSTANCE_GPU_COUNT, operator="Exists"),)
"""Instance types with GPUs."""
NEURON: Final = (RequirementSpec(key=INSTANCE_ACCELERATOR_COUNT, operator="Exists"),)
"""Instance types with Inferentia or Trainium."""

_WELL_KNOWN: Final = WELL_KNOWN | LABEL_CLASSES.well_known


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageParameter:
    """An SSM parameter that holds an image id."""

    path: str
    requirement_sets: tuple[tuple[RequirementSpec, ...], ...]
    """The image serves types that meet any of these; each makes an entry of `status.amis`."""
    mutable: bool
    """Another image may come under the same path."""


def image_for(instance_type: InstanceType, amis: Sequence[Ami]) -> Ami | None:
    """Return the image that an instance of this type boots: the first in status order that fits.

    None when there is none. Status order is newest first.
    """
    for ami in amis:
        image_requirements = Requirements.from_specs(ami.requirements)
        if instance_type.requirements.compatible(image_requirements, allow_undefined=_WELL_KNOWN):
            return ami
    return None
