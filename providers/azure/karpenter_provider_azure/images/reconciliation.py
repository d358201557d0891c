"""Decides which image versions of a NodeClass are kept, and which are replaced by newer ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_provider_azure.images.galleries import definition_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_provider_azure.api.node_class_status import NodeImage

__all__ = ["reconciled_images"]


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
