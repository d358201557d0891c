"""Checks, creates, attaches and frees virtual machines' network interfaces.

With `orphans_interfaces` a launch that fails does not attach them: they survive the virtual machine, and
stay reserved for it for a while.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, final

from karpenter_simulated_azure.arm_api import ArmFault
from karpenter_simulated_azure.json_values import texts_of
from karpenter_simulated_azure.network_interfaces import INTERFACE_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from karpenter_simulated_azure.arm_api import ArmCall
    from karpenter_simulated_azure.behaviour import AzureBehaviour
    from karpenter_simulated_azure.network_interfaces import NetworkInterfaces
    from karpenter_simulated_azure.permissions import Permissions
    from karpenter_simulated_azure.virtual_machines import VirtualMachine, VirtualMachines
    from karpenter_simulated_azure.vm_requests import VmRequest

__all__ = ["VmInterfaces"]


@final
class VmInterfaces:
    """The network interfaces that virtual machines declare."""

    def __init__(
        self,
        interfaces: NetworkInterfaces,
        permissions: Permissions,
        machines: VirtualMachines,
        behaviour: AzureBehaviour,
    ) -> None:
        self._interfaces: Final = interfaces
        self._permissions: Final = permissions
        self._machines: Final = machines
        self._behaviour: Final = behaviour
        machines.ended = self._free

    def check(self, request: VmRequest, vm_id: str) -> None:
        """Check the network interfaces of a request, as far as they exist.

        Raises:
            ArmFault: one belongs to another virtual machine.
        """
        for interface_id in self.inline_ids(request, vm_id):
            if self._interfaces.get(interface_id) is not None:
                self._interfaces.check_free(interface_id, vm_id)

    def inline_ids(self, request: VmRequest, vm_id: str) -> tuple[str, ...]:
        """Return the ids of the network interfaces that a request declares."""
        group_path = vm_id.partition("/providers/")[0]
        return tuple(
            f"{group_path}/providers/{INTERFACE_TYPE}/{each.name}{self._behaviour.interface_suffix}"
            for each in request.inline
        )

    def create(self, call: ArmCall, request: VmRequest) -> None:
        """Create the network interfaces that a request declares, all or none.

        Raises:
            ArmFault: the subnet is full, something that they refer to does not exist, or the caller
                may not use it.
        """
        made: list[str] = []
        ids = self.inline_ids(request, call.path)
        for interface_id, each in zip(ids, request.inline, strict=True):
            try:
                self._interfaces.create(
                    interface_id,
                    each.properties,
                    tags=texts_of(each.tags),
                    permit=partial(self._permissions.check_linked, call),
                )
            except ArmFault:
                self._remove(made)
                raise
            made.append(interface_id)

    def attach(self, machine: VirtualMachine) -> None:
        """Attach the network interfaces of a new virtual machine, until it fails if it does."""
        for each in machine.interface_ids:
            self._interfaces.attach(each, machine.resource_id)
        if machine.fails_at is None:
            return
        reserved = timedelta(seconds=self._behaviour.interface_reserved_seconds)
        for each in self._orphans(machine):
            self._interfaces.detach(each, at=machine.fails_at)
            self._interfaces.reserve(each, machine.resource_id, until=machine.fails_at + reserved)

    def _free(self, machine: VirtualMachine) -> None:
        """Let the network interfaces of a virtual machine end with it, or be detached."""
        gone_at, ends_at, fails_at = (
            self._machines.gone_at(machine),
            machine.ends_at,
            machine.fails_at,
        )
        failed = fails_at is not None and ends_at is not None and fails_at <= ends_at
        orphans = set(self._orphans(machine)) if failed else set[str]()
        for each in machine.interface_ids:
            found = self._interfaces.get(each)
            if found is None or each in orphans:
                continue
            if found.virtual_machine_id.lower() != machine.resource_id.lower():
                continue
            if each in machine.kept_interface_ids:
                found.attached_until = gone_at
            else:
                found.gone_at = gone_at

    def _orphans(self, machine: VirtualMachine) -> Iterator[str]:
        """Return the network interfaces that survive a virtual machine that failed."""
        for each in machine.interface_ids:
            if self._behaviour.orphans_interfaces:
                yield each

    def _remove(self, interface_ids: Iterable[str]) -> None:
        for each in interface_ids:
            self._interfaces.remove(each)
