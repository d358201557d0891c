"""Checks a request for a virtual machine against sizes, images and identities, in Azure's order.

Codes and texts marked "unverified" follow the reference and reports; nobody saw them from Azure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, final

from karpenter_simulated_azure.arm_api import ArmFault

if TYPE_CHECKING:
    from collections.abc import Collection

    from karpenter_simulated_azure.size_facts import SizeFacts
    from karpenter_simulated_azure.vm_requests import VmRequest

__all__ = ["ImageFacts", "RegionFacts", "VmChecks"]

_CONFLICT: Final = 409
_NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """One version of an image."""

    arch: str
    """`x64` or `Arm64`."""
    generation: str
    """`V1` or `V2`."""
    trusted_launch: bool
    """Whether it boots under Trusted Launch."""
    size_gb: int


class RegionFacts(Protocol):
    """What a region has."""

    @property
    def location(self) -> str:
        """The name of the region."""
        ...

    @property
    def zones(self) -> Collection[str]:
        """The logical zones of the region."""
        ...

    def size(self, name: str) -> SizeFacts | None:
        """Return a size by name; None if there is none."""
        ...

    def image(self, image_id: str) -> ImageFacts | None:
        """Return a version of an image by id; None if there is none."""
        ...

    def has_identity(self, identity_id: str) -> bool:
        """Return whether there is a user-assigned identity with this id."""
        ...


@final
class VmChecks:
    """The checks of one region."""

    def __init__(self, region: RegionFacts) -> None:
        self._region: Final = region

    def check(self, request: VmRequest) -> SizeFacts:
        """Return the size that a request asks for, if it can be had with everything else.

        Raises:
            ArmFault: the first check that fails.
        """
        self._check_place(request)
        size = self._size(request)
        image = self._image(request)
        _check_image(request, size, image)
        _check_disk(request, size, image)
        _check_features(request, size)
        for each in request.identity_ids:
            if not self._region.has_identity(each):
                raise ArmFault(
                    "FailedIdentityOperation",
                    f"Identity operation for resource '{request.name}' failed with error 'Failed to"
                    " perform resource identity operation. Status: 'BadRequest'. Response:"
                    f" 'Resource '{each}' was not found.''.",
                )
        return size

    def _check_place(self, request: VmRequest) -> None:
        wanted = request.location.lower().replace(" ", "")
        if wanted != self._region.location.lower():
            raise ArmFault(
                "LocationNotAvailableForResourceType",
                f"The provided location '{request.location}' is not available for resource type"
                " 'Microsoft.Compute/virtualMachines'. List of available regions for the resource"
                f" type is '{self._region.location}'.",
            )
        if request.zone and request.zone not in self._region.zones:
            zones = ",".join(sorted(self._region.zones))
            raise ArmFault(  # unverified: the code
                "InvalidAvailabilityZone",
                f"The zone(s) '{request.zone}' for resource 'Microsoft.Compute/virtualMachines/"
                f"{request.name}' is not supported. The supported zones for location"
                f" '{self._region.location}' are '{zones}'.",
            )

    def _size(self, request: VmRequest) -> SizeFacts:
        size = self._region.size(request.size)
        if size is None:
            raise ArmFault(
                "InvalidParameter",
                f"The value {request.size} provided for the VM size is not valid. The valid sizes in"
                " the current region are listed by Microsoft.Compute/skus.",
                target="vmSize",
            )
        no_spot = request.is_spot and not size.can("LowPriorityCapable")
        not_in_zone = bool(request.zone) and request.zone not in size.zones
        if size.is_restricted or not_in_zone or no_spot:
            raise ArmFault(
                "SkuNotAvailable",
                "The requested VM size for resource 'Following SKUs have failed for Capacity"
                f" Restrictions: {request.size}' is currently not available in location"
                f" '{self._region.location}'. Please try another size or deploy to a different"
                " location or different zone. See https://aka.ms/azureskunotavailable for details.",
                status=_CONFLICT,
            )
        return size

    def _image(self, request: VmRequest) -> ImageFacts:
        image = self._region.image(request.image_id)
        if image is not None:
            return image
        gallery = request.image_id.lower().startswith("/subscriptions/")
        raise ArmFault(  # unverified: the codes
            "GalleryImageNotFound" if gallery else "ImageNotFound",
            f"The gallery image {request.image_id} is not available in {self._region.location}"
            " region.",
            status=_NOT_FOUND,
            target="imageReference",
        )


def _check_image(request: VmRequest, size: SizeFacts, image: ImageFacts) -> None:
    if image.arch != size.arch:
        raise ArmFault(
            "BadRequest",
            f"Cannot create a VM of size '{size.name}' because this VM size only supports a CPU"
            f" Architecture of '{size.arch}', but an image or disk with CPU Architecture"
            f" '{image.arch}' was given.",
        )
    if image.generation not in size.generations:
        raise ArmFault(
            "BadRequest",
            f"The selected VM size '{size.name}' cannot boot Hypervisor Generation"
            f" '{image.generation.removeprefix('V')}'. If this was a Create operation please check"
            " that the Hypervisor Generation of the Image matches the Hypervisor Generation of the"
            " selected VM Size.",
        )
    if not request.trusted_launch:
        return
    if "V2" not in size.generations or size.can("TrustedLaunchDisabled"):
        raise _unsupported(
            f"The VM size '{size.name}' does not support Trusted Launch.", "securityType"
        )
    if not image.trusted_launch:
        raise ArmFault(
            "BadRequest", "Security type TrustedLaunch is not supported by the provided image."
        )


def _check_disk(request: VmRequest, size: SizeFacts, image: ImageFacts) -> None:
    disk_gb = request.os_disk_gb or image.size_gb
    if disk_gb < image.size_gb:
        raise _unsupported(
            f"The specified disk size {disk_gb} GB is smaller than the size of the corresponding"
            f" disk in the VM image: {image.size_gb} GB. This is not allowed.",
            "osDisk.diskSizeGB",
        )
    if request.ephemeral_placement is None:
        return
    placement = request.ephemeral_placement
    largest = size.ephemeral_gb(placement)
    if disk_gb > largest:
        raise ArmFault(
            "OperationNotAllowed",
            f"OS disk of Ephemeral VM with size greater than {largest:.0f} GB is not allowed for VM"
            f" size {size.name} when the DiffDiskPlacement is {placement or 'CacheDisk'}.",
            status=_CONFLICT,
        )


def _check_features(request: VmRequest, size: SizeFacts) -> None:
    if request.encryption_at_host and not size.can("EncryptionAtHostSupported"):
        raise _unsupported(
            f"Encryption at host is not supported for VM size '{size.name}'.", "encryptionAtHost"
        )
    if request.ultra_ssd:
        has = (
            request.zone in size.ultra_ssd_zones if request.zone else size.can("UltraSSDAvailable")
        )
        if not has:
            raise _unsupported(
                f"'{size.name}' does not support Ultra disks in this zone or region.",
                "additionalCapabilities.ultraSSDEnabled",
            )
    if request.accelerated and not size.can("AcceleratedNetworkingEnabled"):
        raise ArmFault(
            "VMSizeIsNotPermittedToEnableAcceleratedNetworking",
            f"VM size {size.name} is not permitted to enable Accelerated Networking on its network"
            " interfaces.",
        )


def _unsupported(message: str, target: str) -> ArmFault:
    return ArmFault("InvalidParameter", message, target=target)
