"""Managed OS disks of virtual machines, which may outlive them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.instances import InstancePhase
from karpenter_simulated_azure.arm_api import ApiVersions, ArmFault, ArmReply
from karpenter_simulated_azure.resources import not_found, page
from karpenter_simulated_azure.vm_answers import DISK_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from karpenter_simulated_azure.arm_api import ArmCall, ArmRoutes
    from karpenter_simulated_azure.behaviour import AzureBehaviour
    from karpenter_simulated_azure.operations import Operations
    from karpenter_simulated_azure.virtual_machines import VirtualMachine, VirtualMachines
    from karpenter_simulated_azure.vm_answers import VmAnswers

__all__ = ["Disks"]

_VERSIONS: Final = ApiVersions(earliest="2023-01-02", previews=False)
_CONFLICT: Final = 409


@final
class Disks:
    """The OS disks of a subscription."""

    def __init__(
        self,
        clock: Callable[[], datetime],
        behaviour: AzureBehaviour,
        *,
        machines: VirtualMachines,
        operations: Operations,
        answers: VmAnswers,
    ) -> None:
        self._clock: Final = clock
        self._behaviour: Final = behaviour
        self._machines: Final = machines
        self._operations: Final = operations
        self._answers: Final = answers
        self._deleted: Final[set[str]] = set()
        """The `vmId`s whose disks were deleted by calls of their own."""

    def add_routes(self, routes: ArmRoutes) -> None:
        """Add the routes."""
        for method, handler in (("GET", self.get), ("LIST", self.list), ("DELETE", self.delete)):
            routes.add(method, DISK_TYPE, handler, api_versions=_VERSIONS)

    def clear(self) -> None:
        """Forget the disks that were deleted."""
        self._deleted.clear()

    @property
    def ids(self) -> Sequence[str]:
        """The ids of all disks that exist now."""
        return [self._answers.disk_id(each) for each in self._owners()]

    def get(self, call: ArmCall) -> ArmReply:
        """Return a disk."""
        return ArmReply(body=self._answers.disk(self._found(call)))

    def list(self, call: ArmCall) -> ArmReply:
        """List the disks of a resource group, or of the subscription."""
        group = call.resource_group.lower()
        found = [
            self._answers.disk(each)
            for each in self._owners()
            if group in {"", each.resource_group.lower()}
        ]
        return page(call, found, size=max(1, self._behaviour.instances_per_page))

    def delete(self, call: ArmCall) -> ArmReply:
        """Delete a disk that no virtual machine has; 204 if there is none."""
        wanted = call.path.lower()
        owner = next(
            (each for each in self._owners() if self._answers.disk_id(each).lower() == wanted), None
        )
        if owner is None:
            return ArmReply(status=204)
        if self._machines.phase_of(owner) is not InstancePhase.GONE:
            raise ArmFault(
                "OperationNotAllowed",
                f"Disk {owner.os_disk['name']} is attached to VM {owner.resource_id}.",
                status=_CONFLICT,
            )
        self._deleted.add(owner.vm_id)
        operation = self._operations.start(call, done_at=self._clock())
        return ArmReply(status=202, headers=operation.headers)

    def _owners(self) -> Iterator[VirtualMachine]:
        """Return the virtual machines, past ones too, whose managed OS disks exist."""
        now = self._clock()
        for each in self._machines.ever:
            if each.os_disk.get("diffDiskSettings") or each.vm_id in self._deleted:
                continue
            if now < each.runs_at and each.fails_at is None and each.ends_at is None:
                continue  # not made yet
            gone = self._machines.phase_of(each, now) is InstancePhase.GONE
            if not gone or each.os_disk.get("deleteOption") != "Delete":
                yield each

    def _found(self, call: ArmCall) -> VirtualMachine:
        wanted = call.path.lower()
        for each in self._owners():
            if self._answers.disk_id(each).lower() == wanted:
                return each
        raise not_found(call)
