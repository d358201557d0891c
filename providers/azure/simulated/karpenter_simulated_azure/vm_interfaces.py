"""Checks the network interfaces of a request for a virtual machine, and creates inline ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

from karpenter_simulated_azure.arm_api import ArmFault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.json_objects import JsonMapping
    from karpenter_simulated_azure.behaviour import AzureBehaviour
    from karpenter_simulated_azure.interface_uses import InterfaceUses
    from karpenter_simulated_azure.size_facts import SizeFacts
    from karpenter_simulated_azure.vm_requests import VmRequest

__all__ = ["InterfaceTable", "VmInterfaces"]


class InterfaceTable(Protocol):
    """The network interfaces of a subscription."""

    def properties_of(self, interface_id: str, /) -> JsonMapping | None:
        """Return the properties of a network interface; None if there is none."""
        ...

    def create(
        self, interface_id: str, properties: JsonMapping, tags: Mapping[str, str], /
    ) -> None:
        """Create one, with addresses of its subnet.

        Raises:
            ArmFault: the subnet is full, or something that it refers to does not exist.
        """
        ...

    def remove(self, interface_id: str, /) -> None:
        """Delete one."""
        ...


@final
class VmInterfaces:
    """The network interfaces that requests refer to or declare."""

    def __init__(
        self, table: InterfaceTable, uses: InterfaceUses, behaviour: AzureBehaviour
    ) -> None:
        self._table: Final = table
        self._uses: Final = uses
        self._behaviour: Final = behaviour

    def check(self, request: VmRequest, size: SizeFacts, vm_id: str) -> None:
        """Check the existing network interfaces that a request refers to.

        Raises:
            ArmFault: one does not exist, belongs to another virtual machine, or does not fit the size.
        """
        for each in request.references:
            properties = self._table.properties_of(each.id)
            if properties is None:
                raise ArmFault(
                    "InvalidResourceReference",
                    f"Resource {each.id} referenced by resource {vm_id} was not found. Please make"
                    " sure that the referenced resource exists, and that both resources are in the"
                    " same region.",
                )
            self._check_free(each.id, vm_id)
            accelerated = properties.get("enableAcceleratedNetworking") is True
            if accelerated and not size.can("AcceleratedNetworkingEnabled"):
                raise ArmFault(
                    "VMSizeIsNotPermittedToEnableAcceleratedNetworking",
                    f"VM size {size.name} is not permitted to enable Accelerated Networking on its"
                    " network interfaces.",
                )
        for interface_id in self.inline_ids(request, vm_id):
            if self._table.properties_of(interface_id) is not None:
                self._check_free(interface_id, vm_id)

    def inline_ids(self, request: VmRequest, vm_id: str) -> tuple[str, ...]:
        """Return the ids of the network interfaces that a request declares."""
        group_path = vm_id.partition("/providers/")[0]
        return tuple(
            f"{group_path}/providers/Microsoft.Network/networkInterfaces/"
            f"{each.name}{self._behaviour.interface_suffix}"
            for each in request.inline
        )

    def create(self, request: VmRequest, vm_id: str) -> None:
        """Create the network interfaces that a request declares, all or none.

        Raises:
            ArmFault: one cannot be created.
        """
        made: list[str] = []
        ids = self.inline_ids(request, vm_id)
        for interface_id, each in zip(ids, request.inline, strict=True):
            tags = {key: str(value) for key, value in each.tags.items()}
            self.remove([interface_id])
            try:
                self._table.create(interface_id, each.properties, tags)
            except ArmFault:
                self.remove(made)
                raise
            made.append(interface_id)

    def remove(self, interface_ids: Iterable[str]) -> None:
        """Delete network interfaces, as far as they exist."""
        for each in interface_ids:
            self._table.remove(each)
            self._uses.forget(each)

    def _check_free(self, interface_id: str, vm_id: str) -> None:
        use = self._uses.of(interface_id)
        if use.virtual_machine_id.lower() not in {"", vm_id.lower()}:
            raise ArmFault(
                "NicInUse",
                f"Network Interface {interface_id} is used by existing resource"
                f" {use.virtual_machine_id}. To learn more, see aka.ms/nicinuse.",
            )
        if use.reserved_for.lower() not in {"", vm_id.lower()}:
            raise ArmFault(
                "NicReservedForAnotherVm",
                "Nic(s) in request is reserved for another Virtual Machine for 180 seconds. Please"
                " provide another nic(s) or retry after 180 seconds. Reserved VM:"
                f" {use.reserved_for}",
            )
