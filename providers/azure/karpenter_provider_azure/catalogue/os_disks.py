"""Decides between an ephemeral and a managed OS disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.catalogue.vm_sizes import VmSize

__all__ = ["OsDisk", "os_disk_of"]


class OsDisk(NamedTuple):
    """The OS disk of a virtual machine."""

    size_gb: int
    """Decimal GB."""
    placement: str = ""
    """Placement of an ephemeral disk (`NvmeDisk`, `CacheDisk`, `ResourceDisk`); empty = managed."""

    @property
    def is_ephemeral(self) -> bool:
        """Whether the disk is on the host and vanishes with the virtual machine."""
        return bool(self.placement)


def os_disk_of(size: VmSize, node_class: AKSNodeClass) -> OsDisk:
    """Return the OS disk of a node: ephemeral if the size has room for it, else managed."""
    size_gb = node_class.spec.os_disk_size_gb
    fits = bool(size.ephemeral_placement) and size_gb <= size.max_ephemeral_os_disk_gb
    return OsDisk(size_gb, size.ephemeral_placement if fits else "")
