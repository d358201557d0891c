"""Models of the node's operating system, its security, GPUs and image streaming."""

from __future__ import annotations

from typing import Annotated

from karpenter_core.api.base import Model
from karpenter_core.api.facets import Facets
from karpenter_provider_azure.api.mebibytes import SIZE_PATTERN, mebibytes
from karpenter_provider_azure.api.modes import GpuMode
from karpenter_provider_azure.api.sysctls import Sysctls

__all__ = ["ArtifactStreaming", "Gpu", "LinuxOSConfig", "Security", "TrustedLaunch"]


class TrustedLaunch(Model):
    """Trusted Launch: protection of the boot; enabled by either field."""

    vtpm: bool | None = None
    """Whether the instance has a virtual TPM."""
    secure_boot: bool | None = None
    """Whether only signed boot loaders, kernels and drivers are loaded."""


class Security(Model):
    """Security of the virtual machine."""

    encryption_at_host: bool | None = None
    """Whether the host encrypts disks and caches; unset, as the subscription has it."""
    trusted_launch: TrustedLaunch | None = None
    """Trusted Launch of the virtual machine; only sizes that support it are used."""


class Gpu(Model):
    """GPUs of the node."""

    mode: Annotated[str, Facets(enum=tuple(item.value for item in GpuMode))] = GpuMode.DRIVER.value
    """Driver installs NVIDIA drivers, and uses only sizes for which there are some; None does not."""


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
