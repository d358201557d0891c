"""Tells which virtual machine uses a network interface; the use follows from the time.

A network interface is attached until its virtual machine is gone, and is deleted with it if its
`deleteOption` says so. After a launch that fails, an existing interface that the request referred to is
not attached, survives the virtual machine, and stays reserved for it for a while.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.instances import InstancePhase

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from karpenter_simulated_azure.behaviour import AzureBehaviour
    from karpenter_simulated_azure.virtual_machines import VirtualMachine, VirtualMachines

__all__ = ["InterfaceUse", "InterfaceUses"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceUse:
    """The use of a network interface at a time; without a use all is empty."""

    virtual_machine_id: str = ""
    """The virtual machine that it is attached to."""
    reserved_for: str = ""
    """The virtual machine that failed with it a short time ago."""
    is_deleted: bool = False
    """Whether it was deleted with its virtual machine."""


@final
class InterfaceUses:
    """The uses of the network interfaces of a subscription."""

    def __init__(
        self,
        clock: Callable[[], datetime],
        machines: VirtualMachines,
        behaviour: AzureBehaviour,
    ) -> None:
        self._clock: Final = clock
        self._machines: Final = machines
        self._behaviour: Final = behaviour
        self._users: Final[dict[str, VirtualMachine]] = {}
        """The last virtual machine of each, by id in lower case."""

    def take(self, machine: VirtualMachine) -> None:
        """Record the network interfaces of a new virtual machine."""
        for each in machine.interface_ids:
            self._users[each.lower()] = machine

    def forget(self, interface_id: str) -> None:
        """Forget the use of a network interface that is deleted, or created anew."""
        self._users.pop(interface_id.lower(), None)

    def clear(self) -> None:
        """Forget all uses."""
        self._users.clear()

    def of(self, interface_id: str) -> InterfaceUse:
        """Return the use of a network interface now."""
        machine = self._users.get(interface_id.lower())
        if machine is None:
            return InterfaceUse()
        now = self._clock()
        if self._has_failed(machine, now) and self._is_orphan(machine, interface_id):
            return self._reservation(machine, now)
        if self._machines.phase_of(machine, now) is not InstancePhase.GONE:
            return InterfaceUse(virtual_machine_id=machine.resource_id)
        kept = {each.lower() for each in machine.kept_interface_ids}
        return InterfaceUse(is_deleted=interface_id.lower() not in kept)

    def _reservation(self, machine: VirtualMachine, now: datetime) -> InterfaceUse:
        lasts = timedelta(seconds=self._behaviour.interface_reserved_seconds)
        if machine.fails_at is None or now >= machine.fails_at + lasts:
            return InterfaceUse()
        return InterfaceUse(reserved_for=machine.resource_id)

    @staticmethod
    def _has_failed(machine: VirtualMachine, now: datetime) -> bool:
        fails_at, ends_at = machine.fails_at, machine.ends_at
        return fails_at is not None and fails_at <= (now if ends_at is None else min(now, ends_at))

    def _is_orphan(self, machine: VirtualMachine, interface_id: str) -> bool:
        inline = {each.lower() for each in machine.inline_interface_ids}
        return interface_id.lower() not in inline or self._behaviour.orphans_interfaces
