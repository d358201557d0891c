"""Maps image families to AKS's image definitions; builds and reads image ids.

Names of definitions and distributions are those of AKS's galleries (Azure/AgentBaker,
`pkg/agent/datamodel`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

from karpenter_provider_azure.api.os_config import ImageFamily
from karpenter_provider_azure.kubernetes_versions import KubernetesVersion, parse_version
from karpenter_provider_azure.labels import OS_SKU_AZURE_LINUX, OS_SKU_UBUNTU

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "AZURE_LINUX_GALLERY",
    "UBUNTU_GALLERY",
    "EffectiveFamily",
    "ImageDefinition",
    "ImageGallery",
    "ImageVariant",
    "community_image_id",
    "definition_id",
    "definition_name",
    "effective_family",
    "image_definitions",
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


_AMD64: Final = "amd64"
_ARM64: Final = "arm64"
_UBUNTU_2404_SINCE: Final = KubernetesVersion(1, 34)
_AZURE_LINUX_3_SINCE: Final = KubernetesVersion(1, 32)


class EffectiveFamily(StrEnum):
    """A release of an operating system; the value is that of the label `os-sku-effective`."""

    UBUNTU_2004 = "Ubuntu"
    UBUNTU_2204 = "Ubuntu2204"
    UBUNTU_2404 = "Ubuntu2404"
    AZURE_LINUX_2 = "AzureLinux2"
    AZURE_LINUX_3 = "AzureLinux3"

    @property
    def os_sku(self) -> str:
        """Value of the label `kubernetes.azure.com/os-sku`."""
        is_ubuntu = self.value.startswith(OS_SKU_UBUNTU)
        return OS_SKU_UBUNTU if is_ubuntu else OS_SKU_AZURE_LINUX

    @property
    def gallery(self) -> ImageGallery:
        """The gallery of its images."""
        return AZURE_LINUX_GALLERY if self.os_sku == OS_SKU_AZURE_LINUX else UBUNTU_GALLERY


_FIXED_FAMILIES: Final[Mapping[str, EffectiveFamily]] = MappingProxyType(
    {
        ImageFamily.UBUNTU_2204: EffectiveFamily.UBUNTU_2204,
        ImageFamily.UBUNTU_2404: EffectiveFamily.UBUNTU_2404,
    }
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ImageVariant:
    """The properties of a NodeClass that choose among the images of a family."""

    fips: bool
    trusted_launch: bool


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDefinition:
    """An image of a gallery, in any version."""

    name: str
    gallery: ImageGallery
    architecture: str
    """Value of the label `kubernetes.io/arch`."""
    hyperv_generation: str
    """Value of the label `karpenter.azure.com/sku-hyperv-generation`."""
    distribution: str
    """Name by which the node bootstrapping service identifies the image."""


def effective_family(
    image_family: str, kubernetes_version: str, variant: ImageVariant
) -> EffectiveFamily | None:
    """Return the release that `spec.imageFamily` means; None for an unknown family.

    An unreadable version counts as older than all others.
    """
    version = parse_version(kubernetes_version) or KubernetesVersion(0, 0)
    if image_family == ImageFamily.AZURE_LINUX:
        is_third = version >= _AZURE_LINUX_3_SINCE
        return EffectiveFamily.AZURE_LINUX_3 if is_third else EffectiveFamily.AZURE_LINUX_2
    if image_family not in {"", ImageFamily.UBUNTU}:
        return _FIXED_FAMILIES.get(image_family)
    if variant.trusted_launch:
        return EffectiveFamily.UBUNTU_2204
    if variant.fips:
        return EffectiveFamily.UBUNTU_2004
    is_newest = version >= _UBUNTU_2404_SINCE
    return EffectiveFamily.UBUNTU_2404 if is_newest else EffectiveFamily.UBUNTU_2204


def image_definitions(
    family: EffectiveFamily, variant: ImageVariant
) -> tuple[ImageDefinition, ...]:
    """Return the definitions in the order of preference; none if AKS publishes none."""
    rows = _DEFINITIONS.get((family, variant.fips, variant.trusted_launch), ())
    return tuple(
        ImageDefinition(
            name=name,
            gallery=family.gallery,
            architecture=architecture,
            hyperv_generation=generation,
            distribution=distribution,
        )
        for name, architecture, generation, distribution in rows
    )


_Row = tuple[str, str, str, str]


def _ubuntu(release: str) -> tuple[_Row, ...]:
    name, dotted = release, f"{release[:2]}.{release[2:]}"
    return (
        (f"{name}gen2containerd", _AMD64, "2", f"aks-ubuntu-containerd-{dotted}-gen2"),
        (f"{name}containerd", _AMD64, "1", f"aks-ubuntu-containerd-{dotted}"),
        (f"{name}gen2arm64containerd", _ARM64, "2", f"aks-ubuntu-arm64-containerd-{dotted}-gen2"),
    )


def _ubuntu_trusted_launch(release: str) -> tuple[_Row, ...]:
    distribution = f"aks-ubuntu-containerd-{release[:2]}.{release[2:]}-tl-gen2"
    return ((f"{release}gen2TLcontainerd", _AMD64, "2", distribution),)


def _azure_linux(prefix: str) -> tuple[_Row, ...]:
    name = prefix.upper()
    return (
        (f"{name}gen2", _AMD64, "2", f"aks-azurelinux-{prefix}-gen2"),
        (name, _AMD64, "1", f"aks-azurelinux-{prefix}"),
        (f"{name}gen2arm64", _ARM64, "2", f"aks-azurelinux-{prefix}-arm64-gen2"),
    )


def _azure_linux_trusted_launch(prefix: str) -> tuple[_Row, ...]:
    return ((f"{prefix.upper()}gen2TL", _AMD64, "2", f"aks-azurelinux-{prefix}-gen2-tl"),)


def _azure_linux_fips(prefix: str) -> tuple[_Row, ...]:
    name = prefix.upper()
    return (
        (f"{name}gen2fips", _AMD64, "2", f"aks-azurelinux-{prefix}-gen2-fips"),
        (f"{name}fips", _AMD64, "1", f"aks-azurelinux-{prefix}-fips"),
    )


_DEFINITIONS: Final[Mapping[tuple[EffectiveFamily, bool, bool], tuple[_Row, ...]]] = {
    (EffectiveFamily.UBUNTU_2204, False, False): _ubuntu("2204"),
    (EffectiveFamily.UBUNTU_2204, False, True): _ubuntu_trusted_launch("2204"),
    (EffectiveFamily.UBUNTU_2204, True, True): (
        ("2204gen2fipsTLcontainerd", _AMD64, "2", "aks-ubuntu-fips-containerd-22.04-tl-gen2"),
    ),
    (EffectiveFamily.UBUNTU_2404, False, False): _ubuntu("2404"),
    (EffectiveFamily.UBUNTU_2404, False, True): _ubuntu_trusted_launch("2404"),
    (EffectiveFamily.UBUNTU_2004, True, False): (
        ("2004gen2fipscontainerd", _AMD64, "2", "aks-ubuntu-fips-containerd-20.04-gen2"),
        ("2004fipscontainerd", _AMD64, "1", "aks-ubuntu-fips-containerd-20.04"),
    ),
    (EffectiveFamily.AZURE_LINUX_2, False, False): _azure_linux("v2"),
    (EffectiveFamily.AZURE_LINUX_2, False, True): _azure_linux_trusted_launch("v2"),
    (EffectiveFamily.AZURE_LINUX_2, True, False): _azure_linux_fips("v2"),
    (EffectiveFamily.AZURE_LINUX_3, False, False): _azure_linux("v3"),
    (EffectiveFamily.AZURE_LINUX_3, False, True): _azure_linux_trusted_launch("v3"),
    (EffectiveFamily.AZURE_LINUX_3, True, False): (
        *_azure_linux_fips("v3"),
        ("V3gen2arm64fips", _ARM64, "2", "aks-azurelinux-v3-arm64-gen2-fips"),
    ),
}
"""Rows of definitions by release, FIPS and trusted launch: name, architecture, Hyper-V generation,
distribution."""
