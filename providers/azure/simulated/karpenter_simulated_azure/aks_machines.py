"""AKS machines of one agent pool; their calls list, get, `deleteMachines`.

A machine has a virtual machine in the node resource group, and follows it: its state is that of the
virtual machine, and it is gone with it. Errors are flat, as those of AKS. Stable api-versions describe a
machine by its zones and the id of its virtual machine alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.provider.kit.simulated.instances import InstancePhase
from karpenter_simulated_azure.arm_api import ApiVersions, ArmFault, ArmReply
from karpenter_simulated_azure.resources import ResourceTable, not_found, page
from karpenter_simulated_azure.virtual_machines import machine_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.provider.kit.simulated.cloud_time import CloudTime
    from karpenter_simulated_azure.arm_api import ArmCall, ArmRoutes
    from karpenter_simulated_azure.behaviour import AzureBehaviour
    from karpenter_simulated_azure.operations import Operations
    from karpenter_simulated_azure.virtual_machines import VirtualMachine, VirtualMachines
    from karpenter_simulated_azure.world import AzureWorld

__all__ = ["AksMachine", "AksMachines"]

_POOL: Final = "Microsoft.ContainerService/managedClusters/agentPools"
_TYPE: Final = f"{_POOL}/machines"
_VERSIONS: Final = ApiVersions(earliest="2024-02-01")
_NUMBER: Final = "10101010"
"""In the names of virtual machines."""
_PREVIEW: Final = "-preview"
_STABLE: Final = ("network", "resourceId")
"""Properties that stable api-versions answer with."""
_NOT_FOUND: Final = 404


@final
@dataclass(slots=True, kw_only=True, eq=False)
class AksMachine:
    """An AKS machine."""

    name: str
    vm: VirtualMachine
    has_vm: bool = True
    """Whether the machine says its virtual machine."""
    node_image_version: str = ""
    """Empty for the image of its virtual machine."""
    drift_action: str = ""
    """`status.driftAction`; empty if AKS does not say it."""

    @property
    def image_version(self) -> str:
        """The `nodeImageVersion`."""
        if self.node_image_version:
            return self.node_image_version
        gallery, _, definition, _, version = self.vm.image_id.split("/")[-5:]
        return f"{gallery.partition('-')[0]}-{definition}-{version}"


@final
class AksMachines:
    """The machines of the world's pool."""

    def __init__(
        self,
        world: AzureWorld,
        time: CloudTime,
        behaviour: AzureBehaviour,
        *,
        vms: VirtualMachines,
        operations: Operations,
    ) -> None:
        self._world: Final = world
        self._time: Final = time
        self._behaviour: Final = behaviour
        self._vms: Final = vms
        self._operations: Final = operations
        self._machines: Final[ResourceTable[AksMachine]] = ResourceTable()

    def clear(self) -> None:
        """Remove all machines."""
        self._machines.clear()

    def vm_name(self, machine: str) -> str:
        """Return the name of the virtual machine of a machine."""
        return f"aks-{self._world.machines_pool}-{machine}-{_NUMBER}-vm"

    def add(self, name: str) -> AksMachine:
        """Make the machine of a virtual machine that exists."""
        vm = self._vms.current(machine_key(self._world.node_group, self.vm_name(name)))
        if vm is None:
            raise LookupError(f"there is no virtual machine {self.vm_name(name)}")
        machine = AksMachine(name=name, vm=vm)
        self._machines.put(name, machine)
        return machine

    def get(self, name: str) -> AksMachine:
        """Return a machine that was made; it may be gone."""
        found = self._machines.get(name)
        if found is None:
            raise LookupError(f"there is no machine {name}")
        return found

    @property
    def current(self) -> Sequence[AksMachine]:
        """The machines that are not gone, in the order in which they were made."""
        return [each for each in self._machines if not self._is_gone(each)]

    # -- calls -----------------------------------------------------------------------------------

    def add_routes(self, routes: ArmRoutes) -> None:
        """Add the routes."""
        for method, kind, handler in (
            ("GET", _TYPE, self._get),
            ("LIST", _TYPE, self._list),
            ("POST", f"{_POOL}/deleteMachines", self._delete),
        ):
            routes.add(method, kind, handler, api_versions=_VERSIONS)

    def _list(self, call: ArmCall) -> ArmReply:
        self._check_pool(call)
        items = [self._body(each, call) for each in self.current]
        return page(call, items, size=self._behaviour.instances_per_page)

    def _get(self, call: ArmCall) -> ArmReply:
        self._check_pool(call)
        found = self._machines.get(call.resource_name)
        if found is None or self._is_gone(found):
            raise _flat("NotFound", f"Could not find the machine {call.resource_name}.")
        return ArmReply(body=self._body(found, call))

    def _delete(self, call: ArmCall) -> ArmReply:
        """Delete the machines that exist; refuse a request that names none of them."""
        self._check_pool(call)
        wanted = {str(each).lower() for each in cast("list[object]", call.body["machineNames"])}
        found = [each for each in self.current if each.name.lower() in wanted]
        if not found:
            valid = ", ".join(each.name for each in self.current)
            raise _flat(
                "InvalidParameter",
                "Cannot find any valid machines to delete. Please check your input machine names."
                f" The valid machines to delete in agent pool '{call.names[1]}' are: {valid}.",
                status=400,
            )
        operation = self._operations.start(call, done_at=self._time())
        if operation.done_at is None or operation.error is not None or operation.canceled:
            # A deletion that does not succeed leaves the machines where they are.
            return ArmReply(status=202, headers=operation.headers)
        for each in found:
            if self._vms.phase_of(each.vm) is not InstancePhase.TERMINATING:
                self._vms.end(each.vm, reason="deleted")
        operation.done_at = max(
            (at for each in found if (at := self._vms.gone_at(each.vm)) is not None),
            default=self._time(),
        )
        return ArmReply(status=202, headers=operation.headers)

    def _check_pool(self, call: ArmCall) -> None:
        """Check that cluster and pool exist; of a missing cluster Azure Resource Manager tells."""
        cluster, pool = call.names[0].lower(), call.names[1].lower()
        world = self._world
        place = (world.cluster_group.lower(), world.cluster_name.lower())
        if (call.resource_group.lower(), cluster) != place:
            raise not_found(call)
        if pool != world.machines_pool.lower():
            raise _flat("NotFound", f"Could not find the agent pool {pool} in the cluster.")

    def _is_gone(self, machine: AksMachine) -> bool:
        return self._vms.phase_of(machine.vm) is InstancePhase.GONE

    def _body(self, machine: AksMachine, call: ArmCall) -> JsonObject:
        vm, world = machine.vm, self._world
        pool = world.machines_pool
        status: JsonObject = {"creationTimestamp": vm.launched_at.isoformat(), "vmState": "Running"}
        if machine.drift_action:
            status["driftAction"] = machine.drift_action
        properties: JsonObject = {
            "network": {"ipAddresses": []},
            "hardware": {"vmSize": vm.instance_type},
            "mode": "User",
            "nodeImageVersion": machine.image_version,
            "provisioningState": str(self._vms.state_of(vm)),
            "tags": dict(vm.tags),
            "eTag": vm.etag.strip('"'),
            "status": status,
        }
        if machine.has_vm:
            properties["resourceId"] = vm.resource_id
        if vm.is_spot:  # AKS writes no priority for others
            properties["priority"] = "Spot"
        if not call.api_version.endswith(_PREVIEW):
            properties = {key: properties[key] for key in _STABLE if key in properties}
        body: JsonObject = {
            "id": f"{world.cluster_id}/agentPools/{pool}/machines/{machine.name}",
            "name": machine.name,
            "type": _TYPE,
            "properties": properties,
        }
        return body | ({"zones": list(vm.body["zones"])} if vm.body.get("zones") else {})


def _flat(code: str, message: str, *, status: int = _NOT_FOUND) -> ArmFault:
    return ArmFault(code, message, status=status, is_flat=True)
