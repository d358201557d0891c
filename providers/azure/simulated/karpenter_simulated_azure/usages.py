"""Serves the region's quotas: limits, and their use by virtual machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_simulated_azure.arm_api import ApiVersions, ArmFault, ArmReply
from karpenter_simulated_azure.resources import page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_simulated_azure.arm_api import ArmCall, ArmRoutes
    from karpenter_simulated_azure.sizes import Sizes
    from karpenter_simulated_azure.world import AzureWorld

__all__ = ["CORES", "LOW_PRIORITY_CORES", "Usages"]

CORES: Final = "cores"
"""vCPUs of regular virtual machines."""
LOW_PRIORITY_CORES: Final = "lowPriorityCores"
"""vCPUs of spot virtual machines."""
_DISPLAY_NAMES: Final = {
    CORES: "Total Regional vCPUs",
    LOW_PRIORITY_CORES: "Total Regional Low-priority vCPUs",
    "virtualMachines": "Virtual Machines",
    "availabilitySets": "Availability Sets",
}
_PLENTY: Final = 100_000
_PAGE: Final = 1000


def _nothing() -> Mapping[str, int]:
    return {}


@final
class Usages:
    """The quotas of a subscription in a region."""

    def __init__(self, world: AzureWorld, sizes: Sizes) -> None:
        self._world: Final = world
        self._sizes: Final = sizes
        self._limits: Final[dict[str, int]] = {}
        self.used: Callable[[], Mapping[str, int]] = _nothing
        """Returns what is used of each quota, by its name; the virtual machines set it."""

    def clear(self) -> None:
        """Restore the limits."""
        self._limits.clear()

    def limit(self, name: str) -> int:
        """Return the limit of a quota, named in any casing."""
        return self._limits.get(name.lower(), _PLENTY)

    def set_limit(self, name: str, limit: int) -> None:
        """Set the limit of a quota: of a family, `cores` or `lowPriorityCores`."""
        self._limits[name.lower()] = limit

    def add_routes(self, routes: ArmRoutes) -> None:
        """Add the route."""
        routes.add(
            "LIST",
            "Microsoft.Compute/locations/usages",
            self._list,
            api_versions=ApiVersions(earliest="2023-01-01"),
        )

    def _list(self, call: ArmCall) -> ArmReply:
        if call.names[0].lower() != self._world.location:
            raise ArmFault(
                "NoRegisteredProviderFound",
                f"No registered resource provider found for location '{call.names[0]}'.",
            )
        used = {name.lower(): amount for name, amount in self.used().items()}
        families = sorted({each.family for each in self._sizes.all})
        rows = [self._row(name, used.get(name.lower(), 0)) for name in (*_DISPLAY_NAMES, *families)]
        return page(call, rows, size=_PAGE)

    def _row(self, name: str, used: int) -> JsonObject:
        shown = _DISPLAY_NAMES.get(name) or f"{name.removesuffix('Family')} Family vCPUs"
        return {
            "limit": self.limit(name),
            "unit": "Count",
            "currentValue": used,
            "name": {"value": name, "localizedValue": shown},
        }
