"""Launches VMs: quota, capacity, interfaces, and the creation's operation."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.provider.kit.simulated.launch_calls import LaunchCalls
from karpenter_core.provider.kit.simulated.pools import InstancePool, PoolFaults
from karpenter_simulated_azure.allocation import REGIONAL_ZONE, as_conflict
from karpenter_simulated_azure.json_values import texts_of
from karpenter_simulated_azure.virtual_machines import VirtualMachine, machine_key

if TYPE_CHECKING:
    from karpenter_core.provider.kit.simulated.cloud_time import CloudTime
    from karpenter_core.provider.kit.simulated.faults import CloudError
    from karpenter_core.provider.kit.simulated.ids import IdGenerator
    from karpenter_simulated_azure.allocation import AllocationLimits
    from karpenter_simulated_azure.arm_api import ArmCall
    from karpenter_simulated_azure.behaviour import AzureBehaviour
    from karpenter_simulated_azure.core_quotas import CoreQuotas
    from karpenter_simulated_azure.operations import OperationRecord, Operations
    from karpenter_simulated_azure.sizes import SimulatedSize
    from karpenter_simulated_azure.virtual_machines import VirtualMachines
    from karpenter_simulated_azure.vm_interfaces import VmInterfaces
    from karpenter_simulated_azure.vm_requests import VmRequest

__all__ = ["LaunchParts", "VmLaunches", "pool_of"]

_NEVER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchParts:
    """The parts that a launch changes."""

    time: CloudTime
    ids: IdGenerator
    behaviour: AzureBehaviour
    machines: VirtualMachines
    operations: Operations
    quotas: CoreQuotas
    capacity: AllocationLimits
    interfaces: VmInterfaces


def pool_of(request: VmRequest, location: str) -> InstancePool:
    """Return the pool that a request launches from."""
    return InstancePool(
        capacity_type=SPOT if request.is_spot else ON_DEMAND,
        instance_type=request.size,
        zone=f"{location}-{request.zone}" if request.zone else REGIONAL_ZONE,
    )


@final
class VmLaunches:
    """Launches virtual machines from checked requests."""

    def __init__(self, parts: LaunchParts, location: str) -> None:
        self._parts: Final = parts
        self._location: Final = location
        self.refusals: Final = PoolFaults()
        """Launches that are refused at once."""
        self.calls: Final = LaunchCalls()

    def clear(self) -> None:
        """Forget the calls and the refusals."""
        self.refusals.clear()
        self.calls.clear()

    def launch(
        self, call: ArmCall, request: VmRequest, size: SimulatedSize
    ) -> tuple[VirtualMachine, OperationRecord]:
        """Launch a virtual machine; its creation may still fail.

        Raises:
            ArmFault: a quota, the capacity or a network interface is missing.
        """
        parts = self._parts
        pool = pool_of(request, self._location)
        if refusal := parts.quotas.refusal(size.family, size.cpus, is_spot=request.is_spot):
            raise refusal
        if fault := self.refusals.strike(pool):
            raise as_conflict(fault.error)
        failure = self._shortage(call, pool)
        parts.interfaces.create(call, request)
        machine = self._made(call, request, size, pool)
        if failure is not None:
            machine.failure, machine.fails_at = failure
        self._add(machine)
        operation = self._start(call, machine)
        parts.interfaces.attach(machine)
        return machine, operation

    def _shortage(self, call: ArmCall, pool: InstancePool) -> tuple[CloudError, datetime] | None:
        """Return the failure of a launch that the capacity does not suffice for, and when it comes.

        Raises:
            ArmFault: it is refused at once.
        """
        parts = self._parts
        obtained, error = parts.capacity.obtainable(pool, 1)
        self.calls.add(
            call.action, sold_out=[] if obtained else [pool], bought={pool: 1} if obtained else {}
        )
        if obtained or error is None:
            return None
        seconds = parts.behaviour.allocation_seconds
        if seconds is None:
            raise error
        return error, parts.time() + timedelta(seconds=seconds)

    def _made(
        self, call: ArmCall, request: VmRequest, size: SimulatedSize, pool: InstancePool
    ) -> VirtualMachine:
        parts = self._parts
        inline_ids = parts.interfaces.inline_ids(request, call.path)
        kept = {
            interface_id
            for interface_id, each in zip(inline_ids, request.inline, strict=True)
            if not each.deleted_with_vm
        }
        body = deepcopy(request.body)
        disk = body["properties"]["storageProfile"]["osDisk"]
        disk.setdefault("name", f"{request.name}_OsDisk_1_{parts.ids.uuid().replace('-', '')}")
        return VirtualMachine(
            id=machine_key(call.resource_group, request.name),
            pool=pool,
            launched_at=parts.time(),
            image_id=request.image_id,
            tags=texts_of(request.body.get("tags")),
            resource_id=call.path,
            resource_group=call.resource_group,
            name=request.name,
            vm_id=parts.ids.uuid(),
            body=body,
            etag='"1"',
            cpus=size.cpus,
            quota_family=size.family,
            interface_ids=inline_ids,
            kept_interface_ids=frozenset(kept),
            runs_at=parts.machines.ready_at(pool),
        )

    def _add(self, machine: VirtualMachine) -> None:
        """Add a virtual machine; one that has no capacity fails for that reason."""
        failure, fails_at = machine.failure, machine.fails_at
        self._parts.machines.add(machine)
        if failure is not None:
            machine.failure, machine.fails_at = failure, fails_at

    def _start(self, call: ArmCall, machine: VirtualMachine) -> OperationRecord:
        """Start the operation of a creation; its faults decide about the virtual machine too."""
        record = self._parts.operations.start(
            call, done_at=machine.fails_at or machine.runs_at, error=machine.failure
        )
        machine.operation = record
        if record.done_at is None:
            machine.runs_at, machine.fails_at = _NEVER, None
        elif record.error is not None or record.canceled:
            machine.fails_at = record.done_at
            machine.failure = record.error
        if machine.fails_at is not None:
            machine.runs_at = max(machine.runs_at, machine.fails_at)  # never Succeeded before
        return record
