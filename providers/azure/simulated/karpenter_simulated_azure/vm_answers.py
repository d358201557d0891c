"""Writes VMs, instance views, extensions and disks as Azure answers them."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.instances import InstancePhase
from karpenter_simulated_azure.json_values import object_in, texts_of
from karpenter_simulated_azure.virtual_machines import ProvisioningState

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_simulated_azure.virtual_machines import VirtualMachine, VirtualMachines
    from karpenter_simulated_azure.world import AzureWorld

__all__ = ["DISK_TYPE", "EXTENSION_TYPE", "VM_TYPE", "VmAnswers"]

VM_TYPE: Final = "Microsoft.Compute/virtualMachines"
EXTENSION_TYPE: Final = f"{VM_TYPE}/extensions"
DISK_TYPE: Final = "Microsoft.Compute/disks"
_SECRETS: Final = ("customData", "adminPassword", "secrets")
"""Members of `osProfile` that Azure never returns."""
_DISPLAY: Final = {
    ProvisioningState.CREATING: "Creating",
    ProvisioningState.SUCCEEDED: "Provisioning succeeded",
    ProvisioningState.FAILED: "Provisioning failed",
    ProvisioningState.DELETING: "Deleting",
}


@final
class VmAnswers:
    """The JSON of virtual machines."""

    def __init__(
        self, world: AzureWorld, clock: Callable[[], datetime], machines: VirtualMachines
    ) -> None:
        self._world: Final = world
        self._clock: Final = clock
        self._machines: Final = machines

    def machine(self, machine: VirtualMachine, *, instance_view: bool = False) -> JsonObject:
        """Return a virtual machine as GET and the lists answer it."""
        state = self._machines.state_of(machine)
        properties: JsonObject = deepcopy(machine.body["properties"])
        for secret in _SECRETS:
            object_in(properties, "osProfile").pop(secret, None)
        properties["vmId"] = machine.vm_id
        properties["timeCreated"] = machine.launched_at.isoformat()
        properties["provisioningState"] = state
        properties["networkProfile"] = {"networkInterfaces": self._interfaces(machine)}
        self._complete_disk(properties["storageProfile"]["osDisk"], machine)
        if instance_view:
            properties["instanceView"] = self.instance_view(machine)
        answer: JsonObject = {
            "name": machine.name,
            "id": machine.resource_id,
            "type": VM_TYPE,
            "location": self._world.location,
            "etag": machine.etag,
            "tags": dict(machine.tags),
            "properties": properties,
        }
        if machine.body.get("zones"):
            answer["zones"] = list(machine.body["zones"])
        if machine.body.get("identity"):
            answer["identity"] = self._identity(machine)
        if machine.extensions:
            answer["resources"] = [
                self.extension(machine, name) for name in sorted(machine.extensions)
            ]
        return answer

    def instance_view(self, machine: VirtualMachine) -> JsonObject:
        """Return the instance view, whose first status has the code of a failure."""
        state = self._machines.state_of(machine)
        code = f"ProvisioningState/{state.lower()}"
        status: JsonObject = {
            "code": code,
            "level": "Info",
            "displayStatus": _DISPLAY[state],
            "time": self._since(machine, state).isoformat(),
        }
        failure = machine.failure
        if state is ProvisioningState.FAILED and failure is not None:
            status |= {
                "code": f"{code}/{failure.code}",
                "level": "Error",
                "message": failure.message,
            }
        view: JsonObject = {"statuses": [status]}
        if state is ProvisioningState.SUCCEEDED:
            view["statuses"].append(
                {"code": "PowerState/running", "level": "Info", "displayStatus": "VM running"}
            )
            view |= {"computerName": machine.name, "hyperVGeneration": "V2"}
        return view

    def extension(self, machine: VirtualMachine, name: str) -> JsonObject:
        """Return an extension; its protected settings are never returned."""
        body = deepcopy(machine.extensions[name.lower()])
        properties = object_in(body, "properties")
        properties.pop("protectedSettings", None)
        own_name = str(body.get("name", name))
        return {
            "name": own_name,
            "id": f"{machine.resource_id}/extensions/{own_name}",
            "type": EXTENSION_TYPE,
            "location": self._world.location,
            "tags": texts_of(body.get("tags")),
            "properties": {**properties, "provisioningState": "Succeeded"},
        }

    def disk(self, machine: VirtualMachine) -> JsonObject:
        """Return the managed OS disk of a virtual machine."""
        disk = machine.os_disk
        attached = self._machines.phase_of(machine) is not InstancePhase.GONE
        answer: JsonObject = {
            "name": disk["name"],
            "id": self.disk_id(machine),
            "type": DISK_TYPE,
            "location": self._world.location,
            "sku": {"name": self._storage(machine), "tier": "Premium"},
            "tags": {},
            "properties": {
                "osType": "Linux",
                "diskSizeGB": disk.get("diskSizeGB"),
                "creationData": {"createOption": "FromImage"},
                "timeCreated": machine.launched_at.isoformat(),
                "provisioningState": "Succeeded",
                "diskState": "Attached" if attached else "Unattached",
            },
        }
        if attached:
            answer["managedBy"] = machine.resource_id
        if machine.body.get("zones"):
            answer["zones"] = list(machine.body["zones"])
        return answer

    def disk_id(self, machine: VirtualMachine) -> str:
        """Return the id of the OS disk."""
        group_path = machine.resource_id.partition("/providers/")[0]
        return f"{group_path}/providers/{DISK_TYPE}/{machine.os_disk['name']}"

    def _since(self, machine: VirtualMachine, state: ProvisioningState) -> datetime:
        since = {
            ProvisioningState.SUCCEEDED: machine.runs_at,
            ProvisioningState.FAILED: machine.fails_at,
            ProvisioningState.DELETING: machine.ends_at,
        }
        return since.get(state) or machine.launched_at

    def _interfaces(self, machine: VirtualMachine) -> list[JsonObject]:
        return [
            {
                "id": each,
                "properties": {
                    "primary": number == 0,
                    "deleteOption": "Detach" if each in machine.kept_interface_ids else "Delete",
                },
            }
            for number, each in enumerate(machine.interface_ids)
        ]

    def _identity(self, machine: VirtualMachine) -> JsonObject:
        identity: JsonObject = deepcopy(machine.body["identity"])
        named = object_in(identity, "userAssignedIdentities")
        identity["userAssignedIdentities"] = {
            each: {"principalId": self._world.object_id, "clientId": self._world.kubelet_client_id}
            for each in named
        }
        return identity

    def _complete_disk(self, disk: JsonObject, machine: VirtualMachine) -> None:
        disk.setdefault("osType", "Linux")
        disk.setdefault("caching", "ReadWrite")
        disk.setdefault("deleteOption", "Detach")
        managed = disk.setdefault("managedDisk", {})
        managed.setdefault("storageAccountType", self._storage(machine))
        if self._machines.state_of(machine) is not ProvisioningState.CREATING:
            managed.setdefault("id", self.disk_id(machine))

    @staticmethod
    def _storage(machine: VirtualMachine) -> str:
        managed = object_in(machine.os_disk, "managedDisk")
        return str(managed.get("storageAccountType") or "Premium_LRS")
