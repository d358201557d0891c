"""Quotas of cores: per family, of the region, and of all spot VMs.

A virtual machine counts from the moment its PUT is accepted until its deletion is complete. Regular
ones count against their family and `cores`, spot ones against `lowPriorityCores`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_simulated_azure.arm_api import ArmFault
from karpenter_simulated_azure.usages import CORES, LOW_PRIORITY_CORES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_simulated_azure.usages import Usages
    from karpenter_simulated_azure.virtual_machines import VirtualMachines

__all__ = ["CoreQuotas"]

_CONFLICT: Final = 409


@final
class CoreQuotas:
    """The quotas of a subscription in a region."""

    def __init__(self, machines: VirtualMachines, usages: Usages, location: str) -> None:
        """Judge by the limits of `usages`, which tells what is used from then on."""
        self._machines: Final = machines
        self._usages: Final = usages
        self._location: Final = location
        self._others: Final[dict[str, int]] = {}
        usages.used = lambda: self.used

    def use_elsewhere(self, name: str, cores: int) -> None:
        """Let virtual machines outside of the simulation use so many cores of a quota."""
        self._others[name.lower()] = cores

    def clear(self) -> None:
        """Forget the virtual machines outside of the simulation."""
        self._others.clear()

    @property
    def used(self) -> Mapping[str, int]:
        """The cores in use, by name of the quota in lower case."""
        used = dict(self._others)
        for each in self._machines.living:
            for name in _names(each.quota_family, is_spot=each.is_spot):
                used[name.lower()] = used.get(name.lower(), 0) + each.cpus
        return used

    def refusal(self, family: str, cpus: int, *, is_spot: bool) -> ArmFault | None:
        """Return the refusal of a launch that exceeds a quota; None if all suffice."""
        used = self.used
        for name in _names(family, is_spot=is_spot):
            limit, usage = self._usages.limit(name), used.get(name.lower(), 0)
            if usage + cpus > limit:
                return self._exceeded(name, limit=limit, usage=usage, required=cpus)
        return None

    def _exceeded(self, name: str, *, limit: int, usage: int, required: int) -> ArmFault:
        # The texts are those that Azure's callers match on.
        titles = {CORES: "Total Regional Cores quota", LOW_PRIORITY_CORES: "LowPriorityCores quota"}
        title = titles.get(name, f"{name} Cores quota")
        kind = "regional" if name == CORES else "per-vm"
        return ArmFault(
            "OperationNotAllowed",
            f"Operation could not be completed as it results in exceeding approved {title}."
            f" Additional details - Deployment Model: Resource Manager, Location: {self._location},"
            f" Current Limit: {limit}, Current Usage: {usage}, Additional Required: {required},"
            f" (Minimum) New Limit Required: {usage + required}. Submit a request for Quota increase"
            " at https://aka.ms/ProdportalCRP by specifying parameters listed in the 'Details'"
            " section for deployment to succeed. Please read more about quota limits at"
            f" https://docs.microsoft.com/en-us/azure/azure-supportability/{kind}-quota-requests",
            status=_CONFLICT,
        )


def _names(family: str, *, is_spot: bool) -> tuple[str, ...]:
    return (LOW_PRIORITY_CORES,) if is_spot else (family, CORES)
