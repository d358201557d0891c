"""Decides which image versions of a NodeClass are kept, and which are replaced by newer ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_provider_azure.images.galleries import (
    definition_id,
    definition_name,
    is_community_image,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_provider_azure.api.node_class_status import NodeImage
    from karpenter_provider_azure.images.families import ImageDefinition

__all__ = ["completed_images", "reconciled_images"]


def completed_images(
    newest: Iterable[NodeImage],
    current: Iterable[NodeImage],
    definitions: Iterable[ImageDefinition],
    *,
    is_community: bool,
) -> tuple[NodeImage, ...]:
    """Return the newest images, and those of the status whose definition has no version in the answer.

    They are in the order of the definitions. Nodes of an image that is not named for a while run on:
    without it nothing could replace them. `is_community` tells the galleries in use.
    """
    held = (image for image in current if is_community_image(image.id) == is_community)
    by_name = {definition_name(image.id): image for image in (*held, *newest)}
    names = (definition.name.lower() for definition in definitions)
    return tuple(by_name[name] for name in names if name in by_name)


def reconciled_images(
    current: Iterable[NodeImage], newest: Iterable[NodeImage], *, is_update: bool
) -> tuple[NodeImage, ...]:
    """Return the images of the status: one for each of `newest`, in their order.

    Unless `is_update`, a definition in `current` keeps its version; a new one begins with the newest.
    """
    newest = tuple(newest)
    if is_update:
        return newest
    kept = {definition_id(image.id).lower(): image.id for image in reversed(tuple(current))}
    return tuple(
        image.model_copy(update={"id": kept.get(definition_id(image.id).lower(), image.id)})
        for image in newest
    )
