"""Checks VM requests by sizes, images and identities, in Azure's order.

Codes and texts marked "unverified" follow the reference and reports; nobody saw them from Azure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_simulated_azure.arm_api import ArmFault

if TYPE_CHECKING:
    from karpenter_simulated_azure.cluster import ClusterResources
    from karpenter_simulated_azure.galleries import Galleries, GalleryImage
    from karpenter_simulated_azure.sizes import SimulatedSize, Sizes
    from karpenter_simulated_azure.vm_requests import VmRequest
    from karpenter_simulated_azure.world import AzureWorld

__all__ = ["VmChecks"]

_CONFLICT: Final = 409
_NOT_FOUND: Final = 404
_IMAGE_GB: Final = 30
_MIB: Final = 2**20
_GIB: Final = 2**30
_LARGEST_EPHEMERAL_GIB: Final = 2040


@final
class VmChecks:
    """The checks of one region."""

    def __init__(
        self, world: AzureWorld, sizes: Sizes, galleries: Galleries, cluster: ClusterResources
    ) -> None:
        self._world: Final = world
        self._cluster: Final = cluster
        self._sizes: Final = sizes
        self._galleries: Final = galleries

    def check(self, request: VmRequest) -> SimulatedSize:
        """Return the size that a request asks for, if it can be had with everything else.

        Raises:
            ArmFault: the first check that fails.
        """
        self._check_place(request)
        size = self._size(request)
        image = self._image(request)
        _check_image(request, size, image)
        _check_disk(request, size)
        _check_features(request, size)
        encryption_set = request.encryption_set_id
        if encryption_set and not self._cluster.has_disk_encryption_set(encryption_set):
            raise ArmFault(  # unverified: the code
                "InvalidResourceReference",
                f"Resource {encryption_set} referenced by resource {request.name} was not found.",
            )
        for each in request.identity_ids:
            self.check_identity(request.name, each)
        return size

    def check_identity(self, name: str, identity_id: str) -> None:
        """Check that a user-assigned identity exists; `name` is that of the virtual machine.

        Raises:
            ArmFault: it does not.
        """
        if not self._has_identity(identity_id):
            raise ArmFault(
                "FailedIdentityOperation",
                f"Identity operation for resource '{name}' failed with error 'Failed to perform"
                " resource identity operation. Status: 'BadRequest'. Response: 'Resource"
                f" '{identity_id}' was not found.''.",
            )

    def _has_identity(self, identity_id: str) -> bool:
        return identity_id.lower() in {each.lower() for each in self._world.identity_ids}

    def _check_place(self, request: VmRequest) -> None:
        wanted = request.location.lower().replace(" ", "")
        if wanted != self._world.location.lower():
            raise ArmFault(
                "LocationNotAvailableForResourceType",
                f"The provided location '{request.location}' is not available for resource type"
                " 'Microsoft.Compute/virtualMachines'. List of available regions for the resource"
                f" type is '{self._world.location}'.",
            )
        if request.zone and request.zone not in self._world.zones:
            zones = ",".join(sorted(self._world.zones))
            raise ArmFault(  # unverified: the code
                "InvalidAvailabilityZone",
                f"The zone(s) '{request.zone}' for resource 'Microsoft.Compute/virtualMachines/"
                f"{request.name}' is not supported. The supported zones for location"
                f" '{self._world.location}' are '{zones}'.",
            )

    def _size(self, request: VmRequest) -> SimulatedSize:
        size = self._sizes.get(request.size)
        if size is None:
            raise ArmFault(
                "InvalidParameter",
                f"The value {request.size} provided for the VM size is not valid. The valid sizes in"
                " the current region are listed by Microsoft.Compute/skus.",
                target="vmSize",
            )
        no_spot = request.is_spot and not size.can("LowPriorityCapable")
        not_in_zone = bool(request.zone) and request.zone not in size.zones - size.restricted_zones
        if size.restricted or not_in_zone or no_spot:
            raise ArmFault(
                "SkuNotAvailable",
                "The requested VM size for resource 'Following SKUs have failed for Capacity"
                f" Restrictions: {request.size}' is currently not available in location"
                f" '{self._world.location}'. Please try another size or deploy to a different"
                " location or different zone. See https://aka.ms/azureskunotavailable for details.",
                status=_CONFLICT,
            )
        return size

    def _image(self, request: VmRequest) -> GalleryImage:
        found = self._galleries.find(request.image_id)
        if found is not None:
            return found.image
        gallery = request.image_id.lower().startswith("/subscriptions/")
        raise ArmFault(  # unverified: the codes
            "GalleryImageNotFound" if gallery else "ImageNotFound",
            f"The gallery image {request.image_id} is not available in {self._world.location}"
            " region.",
            status=_NOT_FOUND,
            target="imageReference",
        )


def _check_image(request: VmRequest, size: SimulatedSize, image: GalleryImage) -> None:
    if image.architecture != size.architecture:
        raise ArmFault(
            "BadRequest",
            f"Cannot create a VM of size '{size.name}' because this VM size only supports a CPU"
            f" Architecture of '{size.architecture}', but an image or disk with CPU Architecture"
            f" '{image.architecture}' was given.",
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


def _check_disk(request: VmRequest, size: SimulatedSize) -> None:
    disk_gb = request.os_disk_gb or _IMAGE_GB
    if disk_gb < _IMAGE_GB:
        raise _unsupported(
            f"The specified disk size {disk_gb} GB is smaller than the size of the corresponding"
            f" disk in the VM image: {_IMAGE_GB} GB. This is not allowed.",
            "osDisk.diskSizeGB",
        )
    if request.ephemeral_placement is None:
        return
    placement = request.ephemeral_placement
    largest = _ephemeral_gib(size, placement)
    if request.trusted_launch:
        largest = max(largest - 1, 0)  # the guest state of the virtual machine
    if disk_gb > largest:
        raise ArmFault(
            "NotSupported",  # unverified: the status
            f"OS disk of Ephemeral VM with size greater than {largest} GB is not allowed for VM"
            f" size {size.name} when the DiffDiskPlacement is {placement or 'CacheDisk'}.",
            status=_CONFLICT,
        )


def _ephemeral_gib(size: SimulatedSize, placement: str) -> int:
    """Return the size of the largest ephemeral OS disk in GiB, which Azure writes as GB; 0 for none.

    Without a placement it is the cache disk's, else the temporary disk's.
    """
    if not size.can("EphemeralOSDiskSupported"):
        return 0
    listed = size.capability("SupportedEphemeralOSDiskPlacements") or "CacheDisk,ResourceDisk"
    sizes = {
        "CacheDisk": size.number("CachedDiskBytes"),
        "ResourceDisk": size.number("MaxResourceVolumeMB") * _MIB,
        "NvmeDisk": size.number("NvmeDiskSizeInMiB") * _MIB,
    }
    by_placement = {name: size if name in listed else 0 for name, size in sizes.items()}
    usual = by_placement["CacheDisk"] or by_placement["ResourceDisk"]
    found = by_placement.get(placement, 0) if placement else usual
    return min(int(found) // _GIB, _LARGEST_EPHEMERAL_GIB)


def _check_features(request: VmRequest, size: SimulatedSize) -> None:
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
