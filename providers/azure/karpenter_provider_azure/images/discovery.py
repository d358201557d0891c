"""Finds the newest versions of image definitions in AKS's galleries."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import ARCH
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_azure.api.node_class_status import NodeImage
from karpenter_provider_azure.arm.errors import ArmNotFoundError
from karpenter_provider_azure.images.families import (
    AZURE_LINUX_GALLERY,
    UBUNTU_GALLERY,
    community_image_id,
    shared_image_id,
)
from karpenter_provider_azure.images.versions import (
    newest_community_version,
    newest_node_image_versions,
)
from karpenter_provider_azure.labels import SKU_HYPERV_GENERATION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.clock import Clock
    from karpenter_provider_azure.arm.client import ArmClient
    from karpenter_provider_azure.images.families import ImageDefinition

__all__ = [
    "COMMUNITY_API_VERSION",
    "NODE_IMAGE_API_VERSION",
    "CommunityGalleries",
    "ImageReader",
    "SharedGalleries",
    "node_image",
]

COMMUNITY_API_VERSION: Final = "2024-03-03"
NODE_IMAGE_API_VERSION: Final = "2026-04-02-preview"
"""Only preview versions of the API list node images, and each ends after about a year."""
TTL: Final = timedelta(days=3)
INCOMPLETE_TTL: Final = timedelta(hours=1)
"""Of an answer that lacks a definition, which may be a passing gap."""
_WIDER: Final = frozenset({"resourcegroupnotfound", "subscriptionnotfound"})
"""Codes of the status 404 that say nothing of an image."""


@final
class CommunityGalleries:
    """AKS's community galleries, which everyone can read; callable from any thread."""

    def __init__(self, arm: ArmClient) -> None:
        self._arm: Final = arm

    @property
    def name(self) -> str:
        """Their name in conditions."""
        return f"the community galleries of AKS in {self._arm.location}"

    def newest_ids(self, definitions: tuple[ImageDefinition, ...]) -> Mapping[str, str]:
        """Return the id of the newest version by the name of the definition, if there is one."""
        newest = {it.name: (it, self._newest_version(it)) for it in definitions}
        return {
            name: community_image_id(definition.gallery, name, version)
            for name, (definition, version) in newest.items()
            if version
        }

    def _newest_version(self, definition: ImageDefinition) -> str:
        path = (
            f"/subscriptions/{self._arm.subscription_id}/providers/Microsoft.Compute/locations"
            f"/{self._arm.location}/communityGalleries/{definition.gallery.community_name}"
            f"/images/{definition.name}/versions"
        )
        try:
            versions = self._arm.list_all(
                path,
                api_version=COMMUNITY_API_VERSION,
                action="communityGalleries/images/versions:list",
            )
        except ArmNotFoundError as error:
            if not _is_unpublished(error):
                raise
            return ""
        return newest_community_version(versions)


def _is_unpublished(error: ArmNotFoundError) -> bool:
    """Whether a gallery, or its image, is not published in the region.

    Codes such as `NotFound` and `GalleryImageNotFound` say so. The same status without one is a proxy's,
    or about the subscription: images of the status must stay.
    """
    code = error.code.lower()
    return code.endswith("notfound") and code not in _WIDER


@final
class SharedGalleries:
    """AKS's own galleries, for clusters that AKS manages; callable from any thread."""

    def __init__(self, arm: ArmClient, *, gallery_subscription_id: str) -> None:
        """`gallery_subscription_id` is the subscription of the galleries (`SIG_SUBSCRIPTION_ID`)."""
        self._arm: Final = arm
        self._gallery_subscription_id: Final = gallery_subscription_id

    @property
    def name(self) -> str:
        """Their name in conditions."""
        return f"the node image versions of AKS in {self._arm.location}"

    def newest_ids(self, definitions: tuple[ImageDefinition, ...]) -> Mapping[str, str]:
        """Return the id of the newest version by the name of the definition, if there is one."""
        path = (
            f"/subscriptions/{self._arm.subscription_id}/providers/Microsoft.ContainerService"
            f"/locations/{self._arm.location}/nodeImageVersions"
        )
        listed = self._arm.list_all(
            path, api_version=NODE_IMAGE_API_VERSION, action="nodeImageVersions:list"
        )
        systems = [gallery.node_image_os for gallery in (UBUNTU_GALLERY, AZURE_LINUX_GALLERY)]
        versions = newest_node_image_versions(listed, systems=systems)
        return {
            it.name: shared_image_id(
                it.gallery, it.name, version, subscription_id=self._gallery_subscription_id
            )
            for it in definitions
            if (version := versions.get((it.gallery.node_image_os, it.name), ""))
        }


@final
class ImageReader:
    """Finds the newest images of definitions; callable from any thread."""

    def __init__(self, clock: Clock, source: CommunityGalleries | SharedGalleries) -> None:
        self._source: Final = source
        self._cache: Final[
            TtlCache[tuple[tuple[ImageDefinition, ...], str], tuple[NodeImage, ...]]
        ] = TtlCache(clock, TTL)

    @property
    def source_name(self) -> str:
        """Name of the galleries in conditions."""
        return self._source.name

    def newest(
        self, definitions: tuple[ImageDefinition, ...], kubernetes_version: str
    ) -> tuple[NodeImage, ...]:
        """Return the newest images in the order of the definitions, without those that do not exist.

        They are read again for a new version of Kubernetes, and after three days, or an hour if a
        definition has no version. An answer without images is not cached.

        Raises:
            CloudProviderError: Azure refused or did not answer.
        """
        key = (definitions, kubernetes_version)
        images = self._cache.get(key)
        if images is None:
            ids = self._source.newest_ids(definitions)
            images = tuple(node_image(it, ids[it.name]) for it in definitions if it.name in ids)
            if images:
                is_complete = len(images) == len(definitions)
                self._cache.put(key, images, ttl=TTL if is_complete else INCOMPLETE_TTL)
        return images


def node_image(definition: ImageDefinition, image_id: str) -> NodeImage:
    """Return an image with the requirements of its definition, short keys first."""
    values = {
        ARCH: definition.architecture,
        SKU_HYPERV_GENERATION: definition.hyperv_generation,
    }
    return NodeImage(
        id=image_id,
        requirements=tuple(
            RequirementSpec(key=key, operator="In", values=(values[key],))
            for key in sorted(values, key=lambda key: (len(key), key))
        ),
    )
