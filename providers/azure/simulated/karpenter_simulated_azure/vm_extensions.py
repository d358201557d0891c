"""Answers calls about extensions of virtual machines."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.instances import InstancePhase
from karpenter_simulated_azure.arm_api import ArmFault, ArmReply
from karpenter_simulated_azure.json_values import object_in, texts_of
from karpenter_simulated_azure.network_interfaces import check_tags
from karpenter_simulated_azure.resources import not_found
from karpenter_simulated_azure.virtual_machines import machine_key
from karpenter_simulated_azure.vm_answers import EXTENSION_TYPE
from karpenter_simulated_azure.vm_calls import COMPUTE_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from karpenter_simulated_azure.arm_api import ArmCall, ArmRoutes
    from karpenter_simulated_azure.operations import Operations
    from karpenter_simulated_azure.virtual_machines import VirtualMachine, VirtualMachines
    from karpenter_simulated_azure.vm_answers import VmAnswers

__all__ = ["ExtensionCalls"]

_CONFLICT: Final = 409
_REQUIRED: Final = ("publisher", "type", "typeHandlerVersion")
_CHANGEABLE: Final = frozenset(
    {
        "autoUpgradeMinorVersion",
        "enableAutomaticUpgrade",
        "forceUpdateTag",
        "protectedSettings",
        "protectedSettingsFromKeyVault",
        "settings",
        "suppressFailures",
        "typeHandlerVersion",
    }
)


@final
class ExtensionCalls:
    """The calls about extensions; each succeeds at once unless a fault of its operation strikes."""

    def __init__(
        self,
        clock: Callable[[], datetime],
        machines: VirtualMachines,
        operations: Operations,
        answers: VmAnswers,
    ) -> None:
        self._clock: Final = clock
        self._machines: Final = machines
        self._operations: Final = operations
        self._answers: Final = answers

    def add_routes(self, routes: ArmRoutes) -> None:
        """Add the routes."""
        for method, handler in (
            ("PUT", self.put),
            ("GET", self.get),
            ("PATCH", self.patch),
        ):
            routes.add(method, EXTENSION_TYPE, handler, api_versions=COMPUTE_VERSIONS)

    def put(self, call: ArmCall) -> ArmReply:
        """Create or replace an extension of a virtual machine that is created."""
        machine = self._machine(call)
        phase = self._machines.phase_of(machine)
        if phase is not InstancePhase.RUNNING:
            state = self._machines.state_of(machine)
            raise ArmFault(
                "OperationNotAllowed",
                f"The VM '{machine.name}' is in the provisioning state {state}; extensions can be"
                " created only when it has succeeded.",
                status=_CONFLICT,
            )
        properties = object_in(call.body, "properties")
        for member in _REQUIRED:
            if not properties.get(member):
                raise ArmFault(
                    "InvalidParameter",
                    f"Required parameter '{member}' is missing (null).",
                    target=member,
                )
        self._check_tags(call)
        key = call.resource_name.lower()
        status = 200 if key in machine.extensions else 201
        machine.extensions[key] = {**deepcopy(call.body), "name": call.resource_name}
        return self._written(call, machine, status)

    def patch(self, call: ArmCall) -> ArmReply:
        """Change tags or settings of an extension."""
        machine, key = self._found(call)
        self._check_tags(call)
        extension = machine.extensions[key]
        if "tags" in call.body:
            extension["tags"] = texts_of(call.body["tags"])
        changes = object_in(call.body, "properties")
        fixed = sorted(changes.keys() - _CHANGEABLE)
        if fixed:
            raise ArmFault(
                "PropertyChangeNotAllowed",
                f"Changing property '{fixed[0]}' is not allowed.",
                status=_CONFLICT,
                target=fixed[0],
            )
        extension["properties"] = {**extension["properties"], **deepcopy(changes)}
        return self._written(call, machine, 200)

    def get(self, call: ArmCall) -> ArmReply:
        """Return an extension."""
        machine, key = self._found(call)
        return ArmReply(body=self._answers.extension(machine, key))

    def _written(self, call: ArmCall, machine: VirtualMachine, status: int) -> ArmReply:
        operation = self._operations.start(call, done_at=self._clock())
        body = self._answers.extension(machine, call.resource_name)
        return ArmReply(status=status, body=body, headers=operation.headers)

    def _machine(self, call: ArmCall) -> VirtualMachine:
        found = self._machines.current(machine_key(call.resource_group, call.names[0]))
        if found is None:
            raise ArmFault(
                "ParentResourceNotFound",
                f"Failed to perform '{call.method.lower()}' on resource(s) of type"
                f" 'virtualMachines/extensions', because the parent resource"
                f" '{call.path.rpartition('/extensions')[0]}' could not be found.",
                status=404,
            )
        return found

    def _found(self, call: ArmCall) -> tuple[VirtualMachine, str]:
        machine = self._machine(call)
        key = call.resource_name.lower()
        if key not in machine.extensions:
            raise not_found(call)
        return machine, key

    @staticmethod
    def _check_tags(call: ArmCall) -> None:
        check_tags(texts_of(call.body.get("tags")))
