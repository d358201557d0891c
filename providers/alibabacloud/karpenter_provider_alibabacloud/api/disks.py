"""Models of the system disk and the data disks in the spec."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from karpenter_core.api.base import Model
from karpenter_core.api.facets import Facets
from karpenter_core.api.quantities import parse_quantity

__all__ = ["DISK_CATEGORIES", "SMALLEST_GIB", "DataDisk", "DiskCategory", "SystemDisk", "size_gib"]

DISK_CATEGORIES: Final = (
    "cloud",
    "cloud_efficiency",
    "cloud_ssd",
    "cloud_essd",
    "cloud_auto",
    "cloud_essd_entry",
)
"""Every category that can be asked for, in the order in which they are tried."""

DiskCategory = Annotated[str, Facets(enum=DISK_CATEGORIES)]

SMALLEST_GIB: Final = 20
"""Minimum size of system disks (API reference), and of most categories of data disks."""

_GIB: Final = 2**30
_PERFORMANCE_LEVELS: Final = ("PL0", "PL1", "PL2", "PL3")
_LARGEST_IOPS: Final = 50_000  # of an ESSD AutoPL disk

# 1 to 59,000 GiB, 64,000 GB, 58 TiB or 64 TB
_VOLUME_SIZE: Final = (
    r"^(([1-9][0-9]{0,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000)Gi"
    r"|([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000)G"
    r"|([1-9]|[1-4][0-9]|5[0-8])Ti"
    r"|([1-9]|[1-5][0-9]|6[0-4])T)$"
)
# The same from 20 GiB (22 GB) on
_SYSTEM_VOLUME_SIZE: Final = (
    r"^(([2-9][0-9]|[1-9][0-9]{2,3}|[1-4][0-9]{4}|5[0-8][0-9]{3}|59000)Gi"
    r"|(2[2-9]|[3-9][0-9]|[1-9][0-9]{2,3}|[1-5][0-9]{4}|6[0-3][0-9]{3}|64000)G"
    r"|([1-9]|[1-4][0-9]|5[0-8])Ti"
    r"|([1-9]|[1-5][0-9]|6[0-4])T)$"
)


def size_gib(volume_size: str) -> int | None:
    """Return the GiB that ECS is asked for, whole ones: 59 for `64G`, and 20 at least.

    None for an empty text, and for what is no size, which an API server with another CRD lets in.
    """
    try:
        size = int(parse_quantity(volume_size)) if volume_size else 0
    except ValueError:
        return None
    return max(SMALLEST_GIB, size // _GIB) if size > 0 else None


class SystemDisk(Model):
    """The disk that an instance boots from."""

    categories: tuple[DiskCategory, ...] = DISK_CATEGORIES
    """Permitted categories; the first available one is used."""
    volume_size: Annotated[str, Facets(pattern=_SYSTEM_VOLUME_SIZE)] = ""
    """Size in Gi, G, Ti or T: 20Gi to 59000Gi."""
    size: Annotated[int | None, Facets(format="int32", minimum=SMALLEST_GIB)] = None
    """Size in GiB; deprecated, volumeSize takes precedence."""
    performance_level: Annotated[str, Facets(enum=_PERFORMANCE_LEVELS)] = "PL0"
    """Performance level; only for the category cloud_essd."""
    encrypted: bool | None = None
    """Whether the disk is encrypted."""
    kms_key_id: Annotated[str, Field(alias="kmsKeyId")] = ""
    """Id of the KMS key to encrypt with."""
    provisioned_iops: Annotated[
        int | None, Facets(format="int64", minimum=0, maximum=_LARGEST_IOPS)
    ] = None
    """Operations per second in addition to those of the size; only for the category cloud_auto."""
    bursting_enabled: bool | None = None
    """Whether the disk may burst; only for the category cloud_auto."""

    @property
    def size_gib(self) -> int:
        """The size in effect, in GiB."""
        return size_gib(self.volume_size) or max(SMALLEST_GIB, self.size or 0)


class DataDisk(Model):
    """Another disk of each instance."""

    volume_size: Annotated[str, Facets(pattern=_VOLUME_SIZE)] = "20Gi"
    """Size in Gi, G, Ti or T: 1Gi to 59000Gi; smaller sizes become 20Gi."""
    device: str = ""
    """Device name of the disk, such as /dev/xvdb."""
    performance_level: Annotated[str, Facets(enum=_PERFORMANCE_LEVELS)] = ""
    """Performance level; only for the category cloud_essd."""
    encrypted: bool | None = None
    """Whether the disk is encrypted."""
    kms_key_id: Annotated[str, Field(alias="kmsKeyId")] = ""
    """Id of the KMS key to encrypt with."""
    snapshot_id: Annotated[str, Facets(pattern=r"^s-[0-9a-z]+$"), Field(alias="snapshotId")] = ""
    """Snapshot from which the disk is created."""
    delete_with_instance: bool | None = None
    """Whether the disk is deleted with its instance; unset means yes."""

    @property
    def size_gib(self) -> int:
        """The size in effect, in GiB."""
        return size_gib(self.volume_size) or SMALLEST_GIB
