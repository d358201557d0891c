"""Chooses images: newest versions in galleries, one per instance type."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from karpenter_core.errors import LaunchFailedError
from karpenter_core.provider.catalogue import Requirements
from karpenter_provider_azure.images.families import (
    definition_id,
    definition_name,
    is_community_image,
)
from karpenter_provider_azure.json_values import properties_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.json_objects import JsonMapping
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_provider_azure.api.node_class_status import NodeImage
    from karpenter_provider_azure.images.families import ImageDefinition

__all__ = [
    "NO_IMAGE_REASON",
    "completed_images",
    "image_for",
    "is_newer",
    "newest_community_version",
    "newest_node_image_versions",
    "reconciled_images",
]


def newest_community_version(versions: Iterable[JsonMapping]) -> str:
    """Return the name of the version that was published last; empty if there is none.

    `versions` is the list of an image definition of a community gallery. A version without a date of
    publication is not yet published, and one that the publisher excludes from the latest has been withdrawn.
    """
    dated = [
        (published, str(version.get("name") or ""))
        for version in versions
        if (published := _published(version)) is not None
        and properties_of(version).get("excludeFromLatest") is not True
    ]
    return max(dated)[1] if dated else ""


def _published(version: JsonMapping) -> datetime | None:
    try:
        published = datetime.fromisoformat(str(properties_of(version).get("publishedDate")))
    except ValueError:
        return None
    return published if published.tzinfo is not None else published.replace(tzinfo=UTC)


def newest_node_image_versions(
    listed: Iterable[JsonMapping], *, systems: Iterable[str]
) -> Mapping[tuple[str, str], str]:
    """Return the newest version by operating system and SKU, which is the name of the definition.

    `listed` is the answer of nodeImageVersions. Entries of other operating systems than `systems` are
    left out.
    """
    wanted = frozenset(systems)
    newest: dict[tuple[str, str], str] = {}
    for entry in listed:
        key = (str(entry.get("os") or ""), str(entry.get("sku") or ""))
        version = str(entry.get("version") or "")
        if key[0] in wanted and is_newer(version, newest.get(key, "")):
            newest[key] = version
    return newest


def is_newer(version: str, other: str) -> bool:
    """Whether a version is newer than another; every readable one is newer than an empty one.

    Versions are numbers between dots, and of two that begin alike the longer one is newer. A version
    with other parts is never newer.
    """
    numbers = _numbers(version)
    return numbers is not None and numbers > (_numbers(other) or ())


def _numbers(version: str) -> tuple[int, ...] | None:
    parts = version.split(".")
    if not all(part.isascii() and part.isdigit() for part in parts):
        return None
    return tuple(int(part) for part in parts)


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
