"""Serves node images: community galleries, AKS's list of shared versions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_simulated_azure.arm_api import ApiVersions, ArmFault, ArmReply
from karpenter_simulated_azure.resources import page

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_simulated_azure.arm_api import ArmCall, ArmRoutes
    from karpenter_simulated_azure.world import AzureWorld

__all__ = ["COMMUNITY_GALLERIES", "Galleries", "GalleryImage", "ImageVersion"]

COMMUNITY_GALLERIES: Final = {
    "AKSUbuntu": "AKSUbuntu-38d80f77-467a-481f-a8d4-09b6d4220bd2",
    "AKSAzureLinux": "AKSAzureLinux-f7c7cda5-1c9a-4bdc-a222-9614c968580b",
}
"""The community gallery of each shared gallery."""
SIG_SUBSCRIPTION: Final = "10945678-1234-1234-1234-123456789012"
"""The subscription of AKS that has the shared galleries."""
_IMAGE_TYPE: Final = "Microsoft.Compute/locations/communityGalleries/images"
_VERSIONS: Final = ApiVersions(earliest="2021-07-01")
_PREVIEWS: Final = ApiVersions(earliest="2023-01-01")
_COMMUNITY_ID: Final = re.compile(
    r"/CommunityGalleries/([^/]+)/images/([^/]+)/versions/([^/]+)", re.IGNORECASE
)
_SHARED_ID: Final = re.compile(
    r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Compute/galleries/([^/]+)"
    r"/images/([^/]+)/versions/([^/]+)",
    re.IGNORECASE,
)
_FIRST_VERSIONS: Final = ("202510.19.1", "202511.07.0")
_UBUNTU: Final = (
    "2204gen2containerd", "2204containerd", "2204gen2arm64containerd", "2204gen2TLcontainerd",
    "2204gen2fipsTLcontainerd", "2404gen2containerd", "2404containerd", "2404gen2arm64containerd",
    "2404gen2TLcontainerd", "2004gen2fipscontainerd", "2004fipscontainerd",
)  # fmt: skip
_AZURE_LINUX: Final = (
    "V2gen2", "V2", "V2gen2arm64", "V2gen2TL", "V2gen2fips", "V2fips",
    "V3gen2", "V3", "V3gen2arm64", "V3gen2TL", "V3gen2fips", "V3fips", "V3gen2arm64fips",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class GalleryImage:
    """An image definition; its name says what it boots on."""

    gallery: str
    """The shared gallery: `AKSUbuntu`."""
    name: str

    @property
    def generation(self) -> str:
        """`V1` or `V2`."""
        return "V2" if "gen2" in self.name else "V1"

    @property
    def architecture(self) -> str:
        """`x64` or `Arm64`."""
        return "Arm64" if "arm64" in self.name else "x64"

    @property
    def trusted_launch(self) -> bool:
        """Whether it boots with Trusted Launch."""
        return "TL" in self.name

    @property
    def fips(self) -> bool:
        """Whether it is in the shared gallery alone."""
        return "fips" in self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageVersion:
    """A published version of an image definition."""

    image: GalleryImage
    version: str
    published_at: datetime


@final
class Galleries:
    """The node images of AKS."""

    def __init__(self, world: AzureWorld, clock: Callable[[], datetime]) -> None:
        self._world: Final = world
        self._clock: Final = clock
        self._versions: Final[list[ImageVersion]] = []
        self.page_size = 100

    def reset(self) -> None:
        """Publish two versions of every image, 14 and 5 days ago."""
        self._versions.clear()
        self.page_size = 100
        now = self._clock()
        for version, days in zip(_FIRST_VERSIONS, (14, 5), strict=True):
            for gallery, names in (("AKSUbuntu", _UBUNTU), ("AKSAzureLinux", _AZURE_LINUX)):
                for name in names:
                    self.publish(gallery, name, version, at=now - timedelta(days=days))

    def publish(
        self, gallery: str, name: str, version: str, *, at: datetime | None = None
    ) -> ImageVersion:
        """Publish a version of an image definition, now by default."""
        made = ImageVersion(
            image=GalleryImage(gallery=gallery, name=name),
            version=version,
            published_at=at or self._clock(),
        )
        self._versions.append(made)
        return made

    def publish_all(self, version: str) -> None:
        """Publish a version of every image definition now."""
        for image in dict.fromkeys(each.image for each in self._versions):
            self.publish(image.gallery, image.name, version)

    def withdraw(self, name: str, version: str = "") -> None:
        """Remove a version of an image definition, or all of them."""
        self._versions[:] = [
            each
            for each in self._versions
            if each.image.name != name or version not in {"", each.version}
        ]

    def community_id(self, name: str, version: str = "") -> str:
        """Return the id of a version in the community gallery, by default of the last one."""
        found = self._last(name, version)
        gallery = COMMUNITY_GALLERIES[found.image.gallery]
        return f"/CommunityGalleries/{gallery}/images/{name}/versions/{found.version}"

    def shared_id(self, name: str, version: str = "") -> str:
        """Return the id of a version in the shared gallery, by default of the last one."""
        found = self._last(name, version)
        gallery = found.image.gallery
        return (
            f"/subscriptions/{SIG_SUBSCRIPTION}/resourceGroups/{_group_of(gallery)}/providers"
            f"/Microsoft.Compute/galleries/{gallery}/images/{name}/versions/{found.version}"
        )

    def find(self, image_id: str) -> ImageVersion | None:
        """Return the version that an id of a community or shared gallery names; None if none."""
        if found := _COMMUNITY_ID.fullmatch(image_id):
            gallery = _shared_gallery(found[1])
        elif found := _SHARED_ID.fullmatch(image_id):
            gallery = found[1]
        else:
            return None
        wanted = (gallery.lower(), found[2].lower(), found[3])
        named = (
            each
            for each in self._versions
            if (each.image.gallery.lower(), each.image.name.lower(), each.version) == wanted
        )
        return next(named, None)

    def _last(self, name: str, version: str) -> ImageVersion:
        found = [
            each
            for each in self._versions
            if each.image.name == name and version in {"", each.version}
        ]
        if not found:
            raise LookupError(f"there is no image {name} {version}")
        return max(found, key=lambda each: each.published_at)

    # -- calls -----------------------------------------------------------------------------------

    def add_routes(self, routes: ArmRoutes) -> None:
        """Add the routes."""
        routes.add(
            "LIST",
            f"{_IMAGE_TYPE}/versions",
            self._list_versions,
            api_versions=_VERSIONS,
            action="communityGalleryImageVersions:list",
        )
        routes.add(
            "LIST",
            "Microsoft.ContainerService/locations/nodeImageVersions",
            self._list_node_image_versions,
            api_versions=_PREVIEWS,
        )

    def _of_community(self, call: ArmCall) -> list[ImageVersion]:
        _location, gallery, name = call.names[:3]
        shared = _shared_gallery(gallery).lower()
        found = [
            each
            for each in self._versions
            if each.image.gallery.lower() == shared
            and each.image.name.lower() == name.lower()
            and not each.image.fips
        ]
        if not found:
            raise ArmFault(
                "GalleryImageNotFound",
                f"The gallery image {call.path} is not available in {self._world.location} region.",
                status=404,
            )
        return found

    def _list_versions(self, call: ArmCall) -> ArmReply:
        rows = [self._version(each) for each in self._of_community(call)]
        return page(call, rows, size=self.page_size)

    def _version(self, each: ImageVersion) -> JsonObject:
        gallery = COMMUNITY_GALLERIES[each.image.gallery]
        unique = f"/CommunityGalleries/{gallery}/Images/{each.image.name}/Versions/{each.version}"
        return {
            "name": each.version,
            "location": self._world.location,
            "type": "Microsoft.Compute/locations/communityGalleries/images/versions",
            "identifier": {"uniqueId": unique},
            "properties": {
                "publishedDate": each.published_at.astimezone(UTC).isoformat(),
                "excludeFromLatest": False,
                "storageProfile": {},
            },
        }

    def _list_node_image_versions(self, call: ArmCall) -> ArmReply:
        rows: list[JsonObject] = [
            {
                "os": each.image.gallery,
                "sku": each.image.name,
                "version": each.version,
                "fullName": f"{each.image.gallery}-{each.image.name}-{each.version}",
            }
            for each in self._versions
        ]
        windows = {"os": "AKSWindows", "sku": "windows-2022-containerd", "version": "20348.1.1"}
        rows.append({**windows, "fullName": "AKSWindows-2022-containerd-20348.1.1"})
        return page(call, rows, size=self.page_size)


def _shared_gallery(community: str) -> str:
    return next(
        (
            name
            for name, public in COMMUNITY_GALLERIES.items()
            if public.lower() == community.lower()
        ),
        "",
    )


def _group_of(gallery: str) -> str:
    return {"AKSUbuntu": "AKS-Ubuntu"}.get(gallery, "AKS-AzureLinux")
