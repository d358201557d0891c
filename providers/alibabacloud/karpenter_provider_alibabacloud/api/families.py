"""ACK's image families, and the aliases that name their images."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["LATEST", "ImageAlias", "ImageFamily", "parse_alias"]

LATEST: Final = "latest"


class ImageFamily(StrEnum):
    """Families that an alias can name, as users write them."""

    ALIBABA_CLOUD_LINUX_3 = "AlibabaCloudLinux3"
    ALIBABA_CLOUD_LINUX_3_CONTAINER_OPTIMIZED = "AlibabaCloudLinux3ContainerOptimized"
    ALIBABA_CLOUD_LINUX_4 = "AlibabaCloudLinux4"
    CONTAINER_OS = "ContainerOS"
    UBUNTU = "Ubuntu"


@dataclass(frozen=True, slots=True)
class ImageAlias:
    """A family's images, of one version or the latest."""

    name: str
    """The family as the user wrote it; of a stored object it may be an unknown one."""
    version: str
    """`latest`, or the date in the names of the images, such as `20250117`."""

    @property
    def family(self) -> ImageFamily | None:
        """The family; None when it is none that we know."""
        is_known = self.name in ImageFamily.__members__.values()
        return ImageFamily(self.name) if is_known else None

    @property
    def is_latest(self) -> bool:
        """Whether the newest image is meant."""
        return self.version == LATEST

    def __str__(self) -> str:
        """Return family and version."""
        return f"{self.name}@{self.version}"


def parse_alias(text: str) -> ImageAlias | None:
    """Read `Family`, `Family@latest` or `Family@version`; None for an empty text.

    What the API server would refuse is read as well as can be: it may be stored already.
    """
    name, _, version = text.partition("@")
    return ImageAlias(name, version or LATEST) if text else None
