"""Quotas of cores: of each family, of the region, and of all spot virtual machines.

A virtual machine counts from the moment its PUT is accepted until its deletion is complete. Regular
ones count against their family and `cores`, spot ones against `lowPriorityCores`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_simulated_azure.arm_api import ArmFault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_simulated_azure.virtual_machines import VirtualMachines

__all__ = ["REGIONAL", "SPOT_POOL", "CoreQuotas"]

REGIONAL: Final = "cores"
"""The usage of all regular virtual machines of a region."""
SPOT_POOL: Final = "lowPriorityCores"
"""The usage of all spot virtual machines of a region."""
_CONFLICT: Final = 409
_LIMIT: Final = 10_000
"""Of each quota that nobody sets."""


@final
class CoreQuotas:
    """The quotas of a subscription in a region."""

    def __init__(self, machines: VirtualMachines, location: str) -> None:
        self._machines: Final = machines
        self._location: Final = location
        self._limits: Final[dict[str, int]] = {}
        """By name in lower case."""
        self._others: Final[dict[str, int]] = {}

    def set_limit(self, name: str, limit: int | None) -> None:
        """Set the limit of a family (`standardDSv5Family`), `cores` or `lowPriorityCores`.

        None restores the default.
        """
        self._limits.pop(name.lower(), None)
        if limit is not None:
            self._limits[name.lower()] = limit

    def use_elsewhere(self, name: str, cores: int) -> None:
        """Let virtual machines outside of the simulation use so many cores of a quota."""
        self._others[name.lower()] = cores

    def clear(self) -> None:
        """Restore all defaults."""
        self._limits.clear()
        self._others.clear()

    def limit(self, name: str) -> int:
        """Return the limit of a quota in cores."""
        return self._limits.get(name.lower(), _LIMIT)

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
            limit, usage = self.limit(name), used.get(name.lower(), 0)
            if usage + cpus > limit:
                return self._exceeded(name, limit=limit, usage=usage, required=cpus)
        return None

    def _exceeded(self, name: str, *, limit: int, usage: int, required: int) -> ArmFault:
        # The texts are those that Azure's callers match on.
        titles = {REGIONAL: "Total Regional Cores quota", SPOT_POOL: "LowPriorityCores quota"}
        title = titles.get(name, f"{name} Cores quota")
        kind = "regional" if name == REGIONAL else "per-vm"
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
    return (SPOT_POOL,) if is_spot else (family, REGIONAL)
