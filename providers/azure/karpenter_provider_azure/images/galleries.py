"""Declares the galleries of AKS's images, and builds and reads the ids of image versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

__all__ = [
    "AZURE_LINUX_GALLERY",
    "UBUNTU_GALLERY",
    "ImageGallery",
    "community_image_id",
    "definition_id",
    "definition_name",
    "is_community_image",
    "node_image_version",
    "shared_image_id",
]

_COMMUNITY: Final = "/communitygalleries/"
_VERSIONS: Final = "/versions/"
_VERSION_PARTS: Final = 5
"""Segments at the end of an id: `GALLERY/images/DEFINITION/versions/VERSION`."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ImageGallery:
    """A gallery, which is published to the community and shared with AKS's own clients."""

    community_name: str
    shared_name: str
    shared_resource_group: str
    node_image_os: str
    """`os` of its images in the answer of nodeImageVersions."""


UBUNTU_GALLERY: Final = ImageGallery(
    community_name="AKSUbuntu-38d80f77-467a-481f-a8d4-09b6d4220bd2",
    shared_name="AKSUbuntu",
    shared_resource_group="AKS-Ubuntu",
    node_image_os="AKSUbuntu",
)
AZURE_LINUX_GALLERY: Final = ImageGallery(
    community_name="AKSAzureLinux-f7c7cda5-1c9a-4bdc-a222-9614c968580b",
    shared_name="AKSAzureLinux",
    shared_resource_group="AKS-AzureLinux",
    node_image_os="AKSAzureLinux",
)


def community_image_id(gallery: ImageGallery, definition: str, version: str) -> str:
    """Return the id of a version in the community gallery."""
    return f"/CommunityGalleries/{gallery.community_name}/images/{definition}/versions/{version}"


def shared_image_id(
    gallery: ImageGallery, definition: str, version: str, *, subscription_id: str
) -> str:
    """Return the id of a version in the shared gallery, which is in AKS's subscription."""
    return (
        f"/subscriptions/{subscription_id}/resourceGroups/{gallery.shared_resource_group}"
        f"/providers/Microsoft.Compute/galleries/{gallery.shared_name}"
        f"/images/{definition}/versions/{version}"
    )


def definition_id(image_id: str) -> str:
    """Return the id of an image without its version."""
    return image_id.rpartition(_VERSIONS)[0] or image_id


def definition_name(image_id: str) -> str:
    """Return the name of the definition in the id of an image, in lower case."""
    return definition_id(image_id).rpartition("/")[2].lower()


def is_community_image(image_id: str) -> bool:
    """Whether an image is of a community gallery: a virtual machine names it by another field."""
    return image_id.lower().startswith(_COMMUNITY)


def node_image_version(image_id: str) -> str:
    """Return how AKS names an image version: `AKSUbuntu-2204gen2containerd-202410.15.0`.

    It is the same for the community gallery and the shared one; empty for an image of another gallery.
    """
    parts = image_id.split("/")[-_VERSION_PARTS:]
    for known in (UBUNTU_GALLERY, AZURE_LINUX_GALLERY):
        if parts[0].lower() in {known.community_name.lower(), known.shared_name.lower()}:
            return f"{known.node_image_os}-{parts[2]}-{parts[-1]}"
    return ""
