"""Serves the reads of disk encryption sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_simulated_azure.arm_api import ArmReply
from karpenter_simulated_azure.resources import ResourceTable, not_found

if TYPE_CHECKING:
    from karpenter_core.api.json_objects import JsonObject
    from karpenter_simulated_azure.arm_api import ArmCall, ArmRoutes
    from karpenter_simulated_azure.world import AzureWorld

__all__ = ["ClusterResources"]

_ENCRYPTION_TYPE: Final = "Microsoft.Compute/diskEncryptionSets"


@final
class ClusterResources:
    """The disk encryption sets of the subscription."""

    def __init__(self, world: AzureWorld) -> None:
        self._world: Final = world
        self._encryption_sets: Final[ResourceTable[JsonObject]] = ResourceTable()

    def reset(self) -> None:
        """Remove the disk encryption sets."""
        self._encryption_sets.clear()

    def add_disk_encryption_set(self, name: str, *, group: str = "") -> str:
        """Make a disk encryption set, by default in the node resource group; return its id."""
        set_id = self._world.resource_id(_ENCRYPTION_TYPE, name, group=group)
        properties = {"encryptionType": "EncryptionAtRestWithCustomerKey"}
        body = {
            "id": set_id,
            "name": name,
            "type": _ENCRYPTION_TYPE,
            "location": self._world.location,
            "properties": {**properties, "provisioningState": "Succeeded"},
        }
        self._encryption_sets.put(set_id, body)
        return set_id

    def has_disk_encryption_set(self, set_id: str) -> bool:
        """Return whether a disk encryption set exists."""
        return set_id in self._encryption_sets

    def add_routes(self, routes: ArmRoutes) -> None:
        """Add the route."""
        routes.add("GET", _ENCRYPTION_TYPE, self._get_encryption_set)

    def _get_encryption_set(self, call: ArmCall) -> ArmReply:
        found = self._encryption_sets.get(call.path)
        if found is None:
            raise not_found(call)
        return ArmReply(body=found)
