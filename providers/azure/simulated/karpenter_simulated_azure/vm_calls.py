"""Answers calls about virtual machines: PUT, GET, PATCH, DELETE and lists."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.instances import InstancePhase
from karpenter_simulated_azure.arm_api import ApiVersions, ArmFault, ArmReply
from karpenter_simulated_azure.json_values import object_in, texts_of
from karpenter_simulated_azure.resources import check_etag, not_found, page_of, skip_token
from karpenter_simulated_azure.virtual_machines import machine_key
from karpenter_simulated_azure.vm_answers import VM_TYPE
from karpenter_simulated_azure.vm_requests import read_vm_request

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from karpenter_core.api.json_objects import JsonMapping, JsonObject
    from karpenter_simulated_azure.arm_api import ArmCall, ArmRoutes
    from karpenter_simulated_azure.behaviour import AzureBehaviour
    from karpenter_simulated_azure.operations import Operations
    from karpenter_simulated_azure.permissions import Permissions
    from karpenter_simulated_azure.virtual_machines import VirtualMachine, VirtualMachines
    from karpenter_simulated_azure.vm_answers import VmAnswers
    from karpenter_simulated_azure.vm_checks import VmChecks
    from karpenter_simulated_azure.vm_interfaces import VmInterfaces
    from karpenter_simulated_azure.vm_launches import VmLaunches
    from karpenter_simulated_azure.vm_requests import VmRequest

__all__ = ["COMPUTE_VERSIONS", "VmCalls"]

COMPUTE_VERSIONS: Final = ApiVersions(earliest="2023-03-01", previews=False)
_ASSIGN: Final = "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"
_CONFLICT: Final = 409
_NOTHING_SHOWN: Final = "-"
"""The token after an empty page."""
_UNCHANGEABLE: Final = (
    "zones",
    "properties.hardwareProfile.vmSize",
    "properties.priority",
    "properties.osProfile.customData",
    "properties.storageProfile.imageReference",
    "properties.storageProfile.osDisk.name",
    "properties.securityProfile.securityType",
    "properties.networkProfile",
)
"""Members that no PUT changes. Azure resizes virtual machines; a launch that is repeated does not."""


@final
class VmCalls:
    """The calls about virtual machines."""

    def __init__(
        self,
        clock: Callable[[], datetime],
        behaviour: AzureBehaviour,
        *,
        machines: VirtualMachines,
        operations: Operations,
        checks: VmChecks,
        interfaces: VmInterfaces,
        launches: VmLaunches,
        answers: VmAnswers,
        permissions: Permissions,
    ) -> None:
        self._clock: Final = clock
        self._behaviour: Final = behaviour
        self._machines: Final = machines
        self._operations: Final = operations
        self._checks: Final = checks
        self._interfaces: Final = interfaces
        self._launches: Final = launches
        self._answers: Final = answers
        self._permissions: Final = permissions
        self.rewritten: Final[list[str]] = []
        """The ids of virtual machines that existed when a PUT came."""

    def clear(self) -> None:
        """Forget the virtual machines that were written again."""
        self.rewritten.clear()

    def add_routes(self, routes: ArmRoutes) -> None:
        """Add the routes."""
        for method, handler in (
            ("PUT", self.put),
            ("GET", self.get),
            ("PATCH", self.patch),
            ("DELETE", self.delete),
            ("LIST", self.list),
        ):
            routes.add(method, VM_TYPE, handler, api_versions=COMPUTE_VERSIONS)

    def put(self, call: ArmCall) -> ArmReply:
        """Launch a virtual machine, or write one that exists."""
        existing = self._current(call)
        check_etag(call, None if existing is None else existing.etag)
        request = read_vm_request(call.resource_name, call.body, call.api_version)
        size = self._checks.check(request)
        self._interfaces.check(request, call.path)
        self._check_linked(call, request)
        if existing is not None:
            return self._write(call, existing, request)
        machine, operation = self._launches.launch(call, request, size)
        headers = {**operation.headers, "ETag": machine.etag}
        return ArmReply(status=201, body=self._answers.machine(machine), headers=headers)

    def _write(self, call: ArmCall, existing: VirtualMachine, request: VmRequest) -> ArmReply:
        """Write an existing virtual machine: only tags and identities may differ.

        A failed one stays failed, and its operation fails with the same error.
        """
        self._check_lives(existing)
        self.rewritten.append(existing.resource_id)
        for path in _UNCHANGEABLE:
            wanted = _member(request.body, path)
            if wanted is None and path.endswith("osDisk.name"):
                continue  # Azure has named it
            if _member(existing.body, path) != wanted:
                raise ArmFault(
                    "PropertyChangeNotAllowed",
                    f"Changing property '{path.removeprefix('properties.')}' is not allowed.",
                    status=_CONFLICT,
                    target=path.removeprefix("properties."),
                )
        self._change(existing, request.body)
        failed = self._machines.phase_of(existing) is InstancePhase.FAILED
        done_at = max(self._clock(), existing.fails_at or existing.runs_at)
        operation = self._operations.start(
            call, done_at=done_at, error=existing.failure if failed else None
        )
        headers = {**operation.headers, "ETag": existing.etag}
        return ArmReply(body=self._answers.machine(existing), headers=headers)

    def get(self, call: ArmCall) -> ArmReply:
        """Return a virtual machine, with `$expand=instanceView` its statuses too."""
        machine = self._found(call)
        view = "instanceview" in call.query.get("$expand", "").lower()
        body = self._answers.machine(machine, instance_view=view)
        return ArmReply(body=body, headers={"ETag": machine.etag})

    def patch(self, call: ArmCall) -> ArmReply:
        """Replace the tags; add user-assigned identities, or remove those that are null."""
        machine = self._found(call)
        check_etag(call, machine.etag)
        self._check_lives(machine)
        for each in object_in(call.body, "identity", "userAssignedIdentities"):
            self._checks.check_identity(machine.name, each)
        self._change(machine, call.body)
        operation = self._operations.start(call, done_at=self._clock())
        headers = {**operation.headers, "ETag": machine.etag}
        return ArmReply(body=self._answers.machine(machine), headers=headers)

    def delete(self, call: ArmCall) -> ArmReply:
        """Start to delete a virtual machine; 204 if there is none."""
        machine = self._current(call)
        if machine is None:
            return ArmReply(status=204)
        check_etag(call, machine.etag)
        operation = self._operations.start(call, done_at=self._clock())
        if operation.done_at is None or operation.error is not None or operation.canceled:
            # A deletion that does not succeed leaves the virtual machine where it is.
            return ArmReply(status=202, headers=operation.headers)
        if self._machines.phase_of(machine) is not InstancePhase.TERMINATING:
            machine.is_graceful = call.query.get("forcedeletion", "").lower() != "true"
            self._machines.end(machine, reason="deleted")
        operation.done_at = self._machines.gone_at(machine)
        return ArmReply(status=202, headers=operation.headers)

    def list(self, call: ArmCall) -> ArmReply:
        """List the virtual machines of a resource group, or of the subscription.

        A page begins after the last one of the page before, whatever has been deleted meanwhile.
        """
        group, after = call.resource_group.lower(), skip_token(call)
        every = list(self._machines.all)
        start = next((at for at, each in enumerate(every, 1) if each.id == after), 0)
        found = [
            each
            for each in every[start:]
            if self._machines.is_visible(each)
            and self._machines.phase_of(each) is not InstancePhase.GONE
            and group in {"", each.resource_group.lower()}
        ]
        size = self._behaviour.instances_per_page
        shown = found[:size]
        following = ""
        if len(found) > size:
            following = shown[-1].id if shown else _NOTHING_SHOWN
        return page_of(call, [self._answers.machine(each) for each in shown], following)

    # -- helpers ---------------------------------------------------------------------------------

    def _current(self, call: ArmCall) -> VirtualMachine | None:
        found = self._machines.current(machine_key(call.resource_group, call.resource_name))
        if found is None or not self._machines.is_visible(found):
            # A PUT finds what no GET shows yet.
            return found if call.method == "PUT" else None
        return found

    def _found(self, call: ArmCall) -> VirtualMachine:
        found = self._current(call)
        if found is None:
            raise not_found(call)
        return found

    def _check_linked(self, call: ArmCall, request: VmRequest) -> None:
        """Check that the caller may use what the virtual machine refers to."""
        for each in request.identity_ids:
            self._permissions.check_linked(call, _ASSIGN, each)

    def _check_lives(self, machine: VirtualMachine) -> None:
        if self._machines.phase_of(machine) is InstancePhase.TERMINATING:
            raise ArmFault(
                "Conflict",
                f"The virtual machine {machine.name} is being deleted; no other operation is"
                " allowed on it.",
                status=_CONFLICT,
            )

    @staticmethod
    def _change(machine: VirtualMachine, body: JsonMapping) -> None:
        """Write tags and identities; the ETag is another one if they differ."""
        before = (dict(machine.tags), deepcopy(machine.body.get("identity")))
        if "tags" in body:
            machine.tags = texts_of(body["tags"])
        if body.get("identity"):
            machine.body["identity"] = _merged(machine.body.get("identity"), body["identity"])
        if before != (machine.tags, machine.body.get("identity")):
            machine.etag = f'"{int(machine.etag.strip(chr(34))) + 1}"'


def _merged(before: JsonObject | None, wanted: JsonMapping) -> JsonObject:
    """Return an identity after a PATCH: null removes an identity, others are added."""
    named = dict(object_in(before, "userAssignedIdentities"))
    for identity_id, value in object_in(wanted, "userAssignedIdentities").items():
        key = next((each for each in named if each.lower() == identity_id.lower()), identity_id)
        if value is None:
            named.pop(key, None)
        else:
            named[key] = {}
    kind = wanted.get("type") or (before or {}).get("type") or "UserAssigned"
    return {"type": kind, "userAssignedIdentities": named}


def _member(body: JsonMapping, path: str) -> object:
    *parents, name = path.split(".")
    return object_in(body, *parents).get(name) or None
