"""Assigns ACK's images to families, and chooses the images of an alias.

Families are data: patterns of ACK's metadata of an image. Pure functions of values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from karpenter_provider_alibabacloud.api.families import ImageFamily

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_provider_alibabacloud.api.families import ImageAlias

__all__ = ["ARCHITECTURES", "FAMILIES", "FamilyMembership", "ListedImage", "chosen_images"]

ARCHITECTURES: Final = {"x86_64": "amd64", "arm64": "arm64"}
"""Kubernetes' names of the architectures that nodes can have, by the cloud's."""

_DATE: Final = re.compile(r"(?<![0-9])20[0-9]{6}(?![0-9])")
_LINUX: Final = "linux"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedImage:
    """An image as ACK lists it."""

    id: str
    name: str
    architecture: str
    """The cloud's name: `x86_64`, `arm64`."""
    kind: str
    """ACK's `image_type`."""
    system: str

    @property
    def date(self) -> str:
        """The day of its release, as in its id or name (`20250117`); empty where they have none."""
        match = _DATE.search(self.id) or _DATE.search(self.name)
        return match[0] if match else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyMembership:
    """Marks of a family's images: one of them is enough."""

    id: re.Pattern[str] | None = None
    """Matches the whole id."""
    name_prefix: str = ""
    kinds: frozenset[str] = field(default_factory=frozenset[str])
    """Values of `image_type`."""

    def has(self, image: ListedImage) -> bool:
        """Whether an image belongs to the family."""
        if image.system.lower() != _LINUX:
            return False
        return (
            (self.id is not None and self.id.fullmatch(image.id) is not None)
            or (bool(self.name_prefix) and image.name.startswith(self.name_prefix))
            or image.kind in self.kinds
        )


FAMILIES: Final[Mapping[ImageFamily, FamilyMembership]] = {
    # By id, as the type is shared by variants that are hardened, or made for containers.
    ImageFamily.ALIBABA_CLOUD_LINUX_3: FamilyMembership(
        id=re.compile(r"aliyun_3_[^.]*G_alibase_[^.]*\.vhd"),
    ),
    ImageFamily.ALIBABA_CLOUD_LINUX_3_CONTAINER_OPTIMIZED: FamilyMembership(
        id=re.compile(r"aliyun_3_[^.]*_container_optimized_[^.]*\.vhd"),
        kinds=frozenset({"AliyunLinux3ContainerOptimized"}),
    ),
    ImageFamily.ALIBABA_CLOUD_LINUX_4: FamilyMembership(
        id=re.compile(r"aliyun_4_[^.]*G_alibase_[^.]*\.vhd"),
    ),
    ImageFamily.CONTAINER_OS: FamilyMembership(name_prefix="ContainerOS"),
    ImageFamily.UBUNTU: FamilyMembership(
        id=re.compile(r"ubuntu_[^.]*\.vhd"), kinds=frozenset({"Ubuntu"})
    ),
}


def chosen_images(alias: ImageAlias, images: Iterable[ListedImage]) -> tuple[ListedImage, ...]:
    """Return the image of each architecture that an alias means, by architecture.

    `latest` is the one with the newest date, a version the one that has it in its id or name; of
    several the last by id.
    """
    membership = FAMILIES.get(alias.family) if alias.family is not None else None
    if membership is None:
        return ()
    newest: dict[str, ListedImage] = {}
    for image in images:
        if image.architecture not in ARCHITECTURES or not membership.has(image):
            continue
        if not (alias.is_latest or _has_version(image, alias.version)):
            continue
        best = newest.get(image.architecture)
        if best is None or (image.date, image.id) > (best.date, best.id):
            newest[image.architecture] = image
    return tuple(newest[key] for key in sorted(newest))


def _has_version(image: ListedImage, version: str) -> bool:
    pattern = re.compile(rf"(?<![0-9A-Za-z]){re.escape(version)}(?![0-9A-Za-z])")
    return pattern.search(image.id) is not None or pattern.search(image.name) is not None
