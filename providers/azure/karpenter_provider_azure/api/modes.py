"""Image families and FIPS modes, as users write them."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["FipsMode", "GpuMode", "ImageFamily"]


class ImageFamily(StrEnum):
    """Families of AKS's node images; the Kubernetes version decides which Ubuntu or Azure Linux."""

    UBUNTU = "Ubuntu"
    UBUNTU_2204 = "Ubuntu2204"
    UBUNTU_2404 = "Ubuntu2404"
    AZURE_LINUX = "AzureLinux"


class FipsMode(StrEnum):
    """FIPS 140 mode of the image."""

    FIPS = "FIPS"
    DISABLED = "Disabled"


class GpuMode(StrEnum):
    """Installation of GPU drivers at the first boot."""

    DRIVER = "Driver"
    NONE = "None"
