"""Models of a node's operating system: security, GPUs, image streaming."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Final

from karpenter_core.api.base import Model
from karpenter_core.api.facets import Facets
from karpenter_provider_azure.api.sysctls import Sysctls

__all__ = [
    "SIZE_PATTERN",
    "ArtifactStreaming",
    "FipsMode",
    "Gpu",
    "GpuMode",
    "ImageFamily",
    "LinuxOSConfig",
    "Security",
    "TrustedLaunch",
    "mebibytes",
]


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


SIZE_PATTERN: Final = r"^\d+(E|P|T|G|M|K|Ei|Pi|Ti|Gi|Mi|Ki)$"
"""Digits and a suffix; unlike other quantities of Kubernetes, with a capital K."""

_MIB: Final = 2**20
_POWERS: Final = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def mebibytes(size: str) -> int | None:
    """Return the size in MiB, rounded to the nearest: 50 for `50Mi`, 48 for `50M`.

    None for a text that the API server would refuse: it may be stored already.
    """
    match = re.fullmatch(r"([0-9]+)([KMGTPE])(i?)", size)
    if match is None:
        return None
    number, suffix, binary = match.groups()
    size_bytes = int(number) * (1024 if binary else 1000) ** _POWERS[suffix]
    return (size_bytes + _MIB // 2) // _MIB


class TrustedLaunch(Model):
    """Trusted Launch: protection of the boot; enabled by either field."""

    vtpm: bool | None = None
    """Whether the instance has a virtual TPM."""
    secure_boot: bool | None = None
    """Whether only signed boot loaders, kernels and drivers are loaded."""


class Security(Model):
    """Security of the virtual machine."""

    encryption_at_host: bool | None = None
    """Whether the host encrypts disks and caches; unset, the subscription's default applies."""
    trusted_launch: TrustedLaunch | None = None
    """Trusted Launch of the virtual machine; only sizes that support it are used."""


class Gpu(Model):
    """GPUs of the node."""

    mode: Annotated[str, Facets(enum=tuple(item.value for item in GpuMode))] = GpuMode.DRIVER.value
    """Driver installs NVIDIA drivers; None installs none, and also uses sizes with GPUs of AMD."""


class ArtifactStreaming(Model):
    """Streaming of container images."""

    enabled: bool | None = None
    """Whether containers start before their image is complete; unset means no. Not on arm64."""


class LinuxOSConfig(Model):
    """Settings of the operating system; those that are unset are as the image has them."""

    swap_file_size: Annotated[str, Facets(pattern=SIZE_PATTERN)] = ""
    """Size of a swap file, such as 2Gi; needs kubelet.failSwapOn: false."""
    transparent_huge_page_defrag: Annotated[
        str, Facets(enum=("always", "defer", "defer+madvise", "madvise", "never"))
    ] = ""
    """Effort of the kernel to make huge pages available."""
    transparent_huge_page_enabled: Annotated[str, Facets(enum=("always", "madvise", "never"))] = ""
    """Use of transparent huge pages."""
    sysctls: Sysctls | None = None
    """Kernel parameters."""

    @property
    def swap_file_mib(self) -> int | None:
        """Size of the swap file in MiB; None without one, or if it cannot be read."""
        return mebibytes(self.swap_file_size) if self.swap_file_size else None
