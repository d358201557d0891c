"""The AKSNodeClass resource (`karpenter.azure.com/v1beta1`), its spec.

Fields and defaults are those of Karpenter's Azure provider, so that its manifests mean the same
here. Models read leniently, as the core's do: what the API server let in, maybe under another CRD,
is read. The API server fills in defaults below `spec` alone; an object without `spec` gets the same
ones from the model.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from karpenter_core.api.base import CustomResource, Model, PrinterColumn, ServedVersion
from karpenter_core.api.cel import CEL
from karpenter_core.api.facets import Facets
from karpenter_core.api.nodeclass import NodeClass
from karpenter_provider_azure.api.kubelet import KubeletConfiguration
from karpenter_provider_azure.api.local_dns import (
    LocalDNS,
    LocalDNSMode,
    LocalDNSState,
    LocalDNSZone,
)
from karpenter_provider_azure.api.node_class_status import AKSNodeClassStatus, NodeImage
from karpenter_provider_azure.api.os_config import (
    ArtifactStreaming,
    FipsMode,
    Gpu,
    GpuMode,
    ImageFamily,
    LinuxOSConfig,
    Security,
    TrustedLaunch,
)
from karpenter_provider_azure.api.sysctls import Sysctls
from karpenter_provider_azure.labels import GROUP

__all__ = [
    "DEFAULT_OS_DISK_GB",
    "AKSNodeClass",
    "AKSNodeClassSpec",
    "AKSNodeClassStatus",
    "ArtifactStreaming",
    "FipsMode",
    "Gpu",
    "GpuMode",
    "ImageFamily",
    "KubeletConfiguration",
    "LinuxOSConfig",
    "LocalDNS",
    "LocalDNSMode",
    "LocalDNSState",
    "LocalDNSZone",
    "NodeImage",
    "Security",
    "Sysctls",
    "TrustedLaunch",
]

DEFAULT_OS_DISK_GB: Final = 128

MAX_TAG_KEY_LENGTH: Final = 512
MAX_TAG_VALUE_LENGTH: Final = 256
"""Characters in keys and values of tags (Azure Resource Manager)."""

_SUBNET_ID: Final = (
    r"(?i)^/subscriptions/[^/]+/resourceGroups/[a-zA-Z0-9_\-().]{0,89}[a-zA-Z0-9_\-()]"
    r"/providers/Microsoft\.Network/virtualNetworks/[^/]+/subnets/[^/]+$"
)
_HAS_FIPS: Final = f"(has(self.fipsMode) && self.fipsMode == '{FipsMode.FIPS}')"
_HAS_TRUSTED_LAUNCH: Final = (
    "(has(self.security) && has(self.security.trustedLaunch) && ("
    "(has(self.security.trustedLaunch.vtpm) && self.security.trustedLaunch.vtpm) || "
    "(has(self.security.trustedLaunch.secureBoot) && self.security.trustedLaunch.secureBoot)))"
)


class AKSNodeClassSpec(Model):
    """Desired configuration of the nodes."""

    cel: ClassVar = (
        CEL(
            f"!{_HAS_FIPS} || "
            f"(has(self.imageFamily) && self.imageFamily != '{ImageFamily.UBUNTU_2404}')",
            "fipsMode FIPS needs an imageFamily other than Ubuntu2404",
        ),
        CEL(
            f"!{_HAS_FIPS} || !has(self.imageFamily) || "
            f"self.imageFamily != '{ImageFamily.UBUNTU_2204}' || {_HAS_TRUSTED_LAUNCH}",
            "fipsMode FIPS with imageFamily Ubuntu2204 needs vtpm or secureBoot of "
            "security.trustedLaunch",
        ),
        CEL(
            f"!{_HAS_FIPS} || !{_HAS_TRUSTED_LAUNCH} || !has(self.imageFamily) || "
            f"self.imageFamily in ['{ImageFamily.UBUNTU}', '{ImageFamily.UBUNTU_2204}', "
            # The first rule refuses this family; one error is enough.
            f"'{ImageFamily.UBUNTU_2404}']",
            "fipsMode FIPS with security.trustedLaunch needs imageFamily Ubuntu or Ubuntu2204",
        ),
        CEL(
            "!has(self.linuxOSConfig) || !has(self.linuxOSConfig.swapFileSize) || "
            "(has(self.kubelet) && has(self.kubelet.failSwapOn) && !self.kubelet.failSwapOn)",
            "linuxOSConfig.swapFileSize needs kubelet.failSwapOn: false",
        ),
    )

    vnet_subnet_id: Annotated[str, Facets(pattern=_SUBNET_ID), Field(alias="vnetSubnetID")] = ""
    """Resource id of the nodes' subnet, in the cluster's virtual network; unset, the setting vnet-subnet-id."""
    os_disk_size_gb: Annotated[
        int, Facets(format="int32", minimum=30, maximum=2048), Field(alias="osDiskSizeGB")
    ] = DEFAULT_OS_DISK_GB
    """Size of the disk that nodes boot from, in GiB, which Azure calls GB."""
    image_family: Annotated[str, Facets(enum=tuple(item.value for item in ImageFamily))] = (
        ImageFamily.UBUNTU.value
    )
    """Family of the node image."""
    fips_mode: Annotated[str, Facets(enum=tuple(item.value for item in FipsMode))] = ""
    """Whether nodes run an image that complies with FIPS 140; unset means no."""
    tags: Annotated[
        dict[str, str],
        CEL(
            f"self.all(k, k.size() <= {MAX_TAG_KEY_LENGTH})",
            f"the key of a tag has {MAX_TAG_KEY_LENGTH} characters at most",
        ),
        CEL(
            r"self.all(k, !k.matches('[<>%&?\\\\]'))",
            r"the key of a tag may have none of < > % & ? \ in it",
        ),
        CEL(
            f"self.all(k, self[k].size() <= {MAX_TAG_VALUE_LENGTH})",
            f"the value of a tag has {MAX_TAG_VALUE_LENGTH} characters at most",
        ),
    ] = Field(default_factory=dict)
    """Tags of the virtual machine, its disk, interface and extensions; / in a key is written as _."""
    kubelet: KubeletConfiguration | None = None
    """Settings of the kubelet."""
    max_pods: Annotated[int | None, Facets(format="int32", minimum=10, maximum=250)] = None
    """Maximum number of pods on a node; unset, 30 if pods have addresses of the subnet, else 250."""
    security: Security | None = None
    """Security of the virtual machine."""
    local_dns: Annotated[LocalDNS | None, Field(alias="localDNS")] = None
    """The DNS cache on each node."""
    gpu: Gpu | None = None
    """GPUs of the node."""
    artifact_streaming: ArtifactStreaming | None = None
    """Streaming of container images."""
    linux_os_config: Annotated[LinuxOSConfig | None, Field(alias="linuxOSConfig")] = None
    """Settings of the operating system."""

    @property
    def uses_fips(self) -> bool:
        """Whether nodes run a FIPS image."""
        return self.fips_mode == FipsMode.FIPS

    @property
    def uses_vtpm(self) -> bool:
        """Whether instances have a virtual TPM."""
        return bool(self._trusted_launch.vtpm)

    @property
    def uses_secure_boot(self) -> bool:
        """Whether instances boot with Secure Boot."""
        return bool(self._trusted_launch.secure_boot)

    @property
    def uses_trusted_launch(self) -> bool:
        """Whether instances are Trusted Launch virtual machines."""
        return self.uses_vtpm or self.uses_secure_boot

    @property
    def encryption_at_host(self) -> bool | None:
        """Whether hosts encrypt disks; None if the user leaves it to the subscription."""
        return self.security.encryption_at_host if self.security is not None else None

    @property
    def gpu_mode(self) -> str:
        """Value of `GpuMode`: whether GPU drivers are installed."""
        return self.gpu.mode if self.gpu is not None else GpuMode.DRIVER.value

    @property
    def installs_gpu_drivers(self) -> bool:
        """Whether nodes with GPUs get drivers at their first boot."""
        return self.gpu_mode != GpuMode.NONE

    @property
    def uses_artifact_streaming(self) -> bool:
        """Whether images are streamed; also true for arm64, where it has no effect."""
        return bool(self.artifact_streaming is not None and self.artifact_streaming.enabled)

    @property
    def local_dns_mode(self) -> str:
        """Value of `LocalDNSMode`; Disabled without the field."""
        return self.local_dns.mode if self.local_dns is not None else LocalDNSMode.DISABLED.value

    @property
    def _trusted_launch(self) -> TrustedLaunch:
        chosen = self.security.trusted_launch if self.security is not None else None
        return chosen if chosen is not None else TrustedLaunch()


class AKSNodeClass(NodeClass):
    """AKSNodeClass configures nodes of AKS: image, disk, subnet, tags and kubelet."""

    resource: ClassVar[CustomResource] = CustomResource(
        group=GROUP,
        version="v1beta1",
        kind="AKSNodeClass",
        plural="aksnodeclasses",
        singular="aksnodeclass",
        short_names=("aksnc", "aksncs"),
        categories=("karpenter", "nap"),
        printer_columns=(
            PrinterColumn(name="Ready", json_path='.status.conditions[?(@.type=="Ready")].status'),
            PrinterColumn(name="Age", json_path=".metadata.creationTimestamp", type="date"),
            PrinterColumn(name="ImageFamily", json_path=".spec.imageFamily", priority=1),
        ),
        served_versions=(
            ServedVersion(name="v1alpha2", deprecation_warning="use v1beta1.AKSNodeClass instead"),
        ),
    )

    spec: AKSNodeClassSpec = Field(default_factory=AKSNodeClassSpec)
    status: AKSNodeClassStatus = Field(  # pyright: ignore[reportIncompatibleVariableOverride] - frozen, so a narrower type is safe
        default_factory=AKSNodeClassStatus
    )
