"""Chooses the error code of a launch that finds no capacity in the region."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import SPOT
from karpenter_core.provider.kit.simulated import capacity
from karpenter_core.provider.kit.simulated.faults import CloudError
from karpenter_simulated_azure.arm_api import ArmFault
from karpenter_simulated_azure.virtual_machines import VirtualMachine

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.provider.kit.simulated.pools import InstancePool
    from karpenter_simulated_azure.virtual_machines import VirtualMachines

__all__ = ["REGIONAL_ZONE", "AllocationCode", "AllocationLimits", "as_conflict"]

REGIONAL_ZONE: Final = "0"
"""The zone of pools of virtual machines that are in no zone."""
_CONFLICT: Final = 409


class AllocationCode(StrEnum):
    """The codes of launches without capacity."""

    ZONAL = "ZonalAllocationFailed"
    REGIONAL = "AllocationFailed"
    OVERCONSTRAINED_ZONAL = "OverconstrainedZonalAllocationRequest"
    OVERCONSTRAINED = "OverconstrainedAllocationRequest"
    NOT_AVAILABLE = "SkuNotAvailable"


_TEXTS: Final = {
    AllocationCode.ZONAL: "Allocation failed. We do not have sufficient capacity for the requested VM"
    " size in this zone. Read more about improving likelihood of allocation success at"
    " http://aka.ms/allocation-guidance",
    AllocationCode.REGIONAL: "Allocation failed. We do not have sufficient capacity for the requested"
    " VM size in this region. Read more about improving likelihood of allocation success at"
    " http://aka.ms/allocation-guidance",
    AllocationCode.OVERCONSTRAINED_ZONAL: "Allocation failed. VM(s) with the following constraints"
    " cannot be allocated, because the condition is too restrictive. Please remove some constraints"
    " and try again. Constraints applied are: - Low Priority VMs - Networking Constraints (such as"
    " Accelerated Networking or IPv6) - VM Size - Availability Zone",
    AllocationCode.OVERCONSTRAINED: "Allocation failed. VM(s) with the following constraints cannot be"
    " allocated, because the condition is too restrictive. Please remove some constraints and try"
    " again. Constraints applied are: - Low Priority VMs - Networking Constraints (such as Accelerated"
    " Networking or IPv6) - VM Size",
    AllocationCode.NOT_AVAILABLE: "The requested VM size for resource 'Following SKUs have failed for"
    " Capacity Restrictions: {size}' is currently not available in location '{location}'. Please try"
    " another size or deploy to a different location or different zone. See"
    " https://aka.ms/azureskunotavailable for details.",
}


@final
class AllocationLimits(capacity.CapacityLimits[VirtualMachine]):
    """The capacity of each pool; without rules it is endless.

    A pool is a size, a zone (`westus2-1`, or `0` for no zone), and spot or on-demand.
    """

    def __init__(self, machines: VirtualMachines, location: str) -> None:
        super().__init__(machines, sold_out=self._sold_out)
        self._location: Final = location
        self.code_of: Callable[[InstancePool], AllocationCode] = _usual_code
        """Chooses the code for a pool that has nothing left."""

    def clear(self) -> None:
        """Make capacity endless, and restore the usual codes."""
        super().clear()
        self.code_of = _usual_code

    def failure(self, code: AllocationCode, pool: InstancePool) -> ArmFault:
        """Return the error of a code in Azure's words."""
        text = _TEXTS[code].format(size=pool.instance_type, location=self._location)
        return ArmFault(code, text, status=_CONFLICT)

    def _sold_out(self, pool: InstancePool) -> CloudError:
        return self.failure(self.code_of(pool), pool)


def _usual_code(pool: InstancePool) -> AllocationCode:
    regional = pool.zone == REGIONAL_ZONE
    if pool.capacity_type == SPOT:
        return AllocationCode.OVERCONSTRAINED if regional else AllocationCode.OVERCONSTRAINED_ZONAL
    return AllocationCode.REGIONAL if regional else AllocationCode.ZONAL


def as_conflict(error: CloudError) -> ArmFault:
    """Return an error of a pool as Azure answers it, with the status 409 unless it has another."""
    if isinstance(error, ArmFault):
        return error
    status = _CONFLICT if error.status == 400 else error.status  # noqa: PLR2004 - the kit's default
    return ArmFault(
        error.code, error.message, status=status, retry_after_seconds=error.retry_after_seconds
    )
