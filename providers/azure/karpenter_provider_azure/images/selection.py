"""Chooses the image of an instance type among the images of a NodeClass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.errors import LaunchFailedError
from karpenter_core.provider.catalogue import Requirements

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_provider_azure.api.node_class_status import NodeImage

__all__ = ["NO_IMAGE_REASON", "image_for"]

NO_IMAGE_REASON: Final = "ImageSelectionFailed"
"""Reason of a launch for which no image fits."""


def image_for(images: Iterable[NodeImage], instance_type: InstanceType) -> NodeImage:
    """Return the first image that an instance type boots; `images` are in the order of the status.

    Raises:
        LaunchFailedError: it boots none of them.
    """
    images = tuple(images)
    for image in images:
        if instance_type.requirements.compatible(Requirements.from_specs(image.requirements)):
            return image
    listed = ", ".join(image.id for image in images) or "none"
    raise LaunchFailedError(
        f'instance type "{instance_type.name}" boots none of the images of the NodeClass: {listed}',
        reason=NO_IMAGE_REASON,
    )
