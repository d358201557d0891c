"""Builds the VM parts of the simulated Azure on its resource manager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.simulated.cloud import SharedParts
from karpenter_simulated_azure.aks_machines import AksMachines
from karpenter_simulated_azure.allocation import AllocationLimits
from karpenter_simulated_azure.core_quotas import CoreQuotas
from karpenter_simulated_azure.disks import Disks
from karpenter_simulated_azure.graph import GraphResource
from karpenter_simulated_azure.kubelets import SimulatedKubelets
from karpenter_simulated_azure.virtual_machines import VirtualMachines
from karpenter_simulated_azure.vm_answers import VmAnswers
from karpenter_simulated_azure.vm_calls import VmCalls
from karpenter_simulated_azure.vm_checks import VmChecks
from karpenter_simulated_azure.vm_extensions import ExtensionCalls
from karpenter_simulated_azure.vm_interfaces import VmInterfaces
from karpenter_simulated_azure.vm_launches import LaunchParts, VmLaunches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from karpenter_core.provider.kit.simulated.cloud_time import CloudTime
    from karpenter_simulated_azure.behaviour import AzureBehaviour
    from karpenter_simulated_azure.resource_manager import ResourceManager
    from karpenter_simulated_azure.virtual_machines import VirtualMachine

__all__ = ["VmParts"]


@final
class VmParts:
    """The virtual machines, and everything that is made of them."""

    def __init__(
        self, manager: ResourceManager, time: CloudTime, behaviour: AzureBehaviour
    ) -> None:
        world = manager.world
        self._manager: Final = manager
        self._behaviour: Final = behaviour
        self.machines: Final = VirtualMachines(time, behaviour)
        self.quotas: Final = CoreQuotas(self.machines, manager.usages, world.location)
        self.capacity: Final = AllocationLimits(self.machines, world.location)
        self.answers: Final = VmAnswers(world, time, self.machines)
        self.interfaces: Final = VmInterfaces(
            manager.interfaces, manager.application.permissions, self.machines, behaviour
        )
        self.launches: Final = VmLaunches(
            LaunchParts(
                time=time,
                ids=manager.ids,
                behaviour=behaviour,
                machines=self.machines,
                operations=manager.operations,
                quotas=self.quotas,
                capacity=self.capacity,
                interfaces=self.interfaces,
            ),
            world.location,
        )
        self.kubelets: Final = SimulatedKubelets(
            world,
            time,
            behaviour,
            machines=self.machines,
            sizes=manager.sizes,
            interfaces=manager.interfaces,
        )
        self.disks: Final = Disks(
            time,
            behaviour,
            machines=self.machines,
            operations=manager.operations,
            answers=self.answers,
        )
        self.calls: Final = self._make_calls(time)
        extensions = ExtensionCalls(time, self.machines, manager.operations, self.answers)
        self.aks_machines: Final = AksMachines(
            world, time, behaviour, vms=self.machines, operations=manager.operations
        )
        for part in (self.aks_machines, self.calls, self.disks, extensions):
            part.add_routes(manager.routes)
        manager.graph.add_source(self._machines_of_graph)
        self.shared: Final[SharedParts[VirtualMachine]] = SharedParts(
            behaviour=behaviour,
            instances=self.machines,
            capacity=self.capacity,
            kubelets=self.kubelets,
            prices=manager.prices,
            refusals=self.launches.refusals,
        )

    def _make_calls(self, time: CloudTime) -> VmCalls:
        manager = self._manager
        return VmCalls(
            time,
            self._behaviour,
            machines=self.machines,
            operations=manager.operations,
            checks=VmChecks(manager.world, manager.sizes, manager.galleries, manager.cluster),
            interfaces=self.interfaces,
            launches=self.launches,
            answers=self.answers,
            permissions=manager.application.permissions,
        )

    def clear(self) -> None:
        """Forget everything that `reset_controls` of the cloud does not."""
        for part in (self.aks_machines, self.quotas, self.launches, self.disks, self.calls):
            part.clear()

    def _machines_of_graph(self) -> Iterator[GraphResource]:
        for each in self.machines.ever:
            yield GraphResource(
                body=self.answers.machine(each),
                created_at=each.launched_at,
                gone_at=self.machines.gone_at(each),
            )
