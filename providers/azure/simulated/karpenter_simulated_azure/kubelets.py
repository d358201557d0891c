"""Registers a virtual machine's Node, from its size and custom data."""

from __future__ import annotations

from email.utils import format_datetime
from math import floor
from typing import TYPE_CHECKING, Final, final
from uuid import NAMESPACE_URL, uuid5

from karpenter_core.api.labels import INSTANCE_TYPE, REGION, ZONE
from karpenter_core.api.quantities import parse_resources
from karpenter_core.provider.kit.simulated import kubelets
from karpenter_core.provider.kit.simulated.kubelets import (
    BootedNode,
    BootError,
    allocatable_amounts,
)
from karpenter_simulated_azure.custom_data import read_kubelet_settings
from karpenter_simulated_azure.json_values import object_in
from karpenter_simulated_azure.virtual_machines import VirtualMachine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from karpenter_simulated_azure.behaviour import AzureBehaviour
    from karpenter_simulated_azure.custom_data import KubeletSettings
    from karpenter_simulated_azure.network_interfaces import NetworkInterfaces
    from karpenter_simulated_azure.sizes import SimulatedSize, Sizes
    from karpenter_simulated_azure.virtual_machines import VirtualMachines
    from karpenter_simulated_azure.world import AzureWorld

__all__ = ["SimulatedKubelets", "reported_memory_bytes"]

_GIBIBYTE: Final = 2**30
_EXTENSION: Final = "cse-agent-karpenter"
_IMAGE_GIB: Final = 30
_DISK_SHARE: Final = 0.97
"""Of an OS disk that the file system leaves."""
# Share that kernel and firmware keep, so that MemTotal is less than the memory of the size.
_MEMORY_KEPT: Final = 0.045
_NVIDIA: Final = "nvidia.com/gpu"
_AMD: Final = "amd.com/gpu"
_AMD_SIZES: Final = ("MI300X", "v710")
_SIGNALS: Final = {
    "memory.available": "memory",
    "nodefs.available": "ephemeral-storage",
}
"""The resources that thresholds of hard eviction take from what pods get."""


def reported_memory_bytes(size: SimulatedSize) -> int:
    """Return the memory that a kubelet reports: less than the size is sold with."""
    return floor(size.number("MemoryGB") * _GIBIBYTE * (1 - _MEMORY_KEPT))


def _host_name(computer: str) -> str:
    """Return the name of the host of a computer, which cloud-init cuts at the first dot."""
    return computer.lower().partition(".")[0]


@final
class SimulatedKubelets(kubelets.SimulatedKubelets[VirtualMachine]):
    """Boots simulated virtual machines."""

    def __init__(
        self,
        world: AzureWorld,
        clock: Callable[[], datetime],
        behaviour: AzureBehaviour,
        *,
        machines: VirtualMachines,
        sizes: Sizes,
        interfaces: NetworkInterfaces,
    ) -> None:
        super().__init__(clock, behaviour, machines)
        self._world: Final = world
        self._now: Final = clock
        self._sizes: Final = sizes
        self._interfaces: Final = interfaces
        self.memory_bytes: Callable[[SimulatedSize], int] = reported_memory_bytes
        """Memory that kubelets report."""
        self.reports_preemption = True
        """Whether AKS's node-problem-detector runs: it tells of evictions by conditions."""

    def clear(self) -> None:
        """Restore the defaults."""
        super().clear()
        self.memory_bytes = reported_memory_bytes
        self.reports_preemption = True

    def settings(self, machine: VirtualMachine) -> KubeletSettings:
        """Return the start of the kubelet of a virtual machine.

        Raises:
            BootError: no kubelet starts.
        """
        protected = object_in(machine.extensions, _EXTENSION, "properties", "protectedSettings")
        return read_kubelet_settings(
            machine.custom_data, str(protected.get("commandToExecute") or "")
        )

    def boot(self, instance: VirtualMachine) -> BootedNode:
        """Return what the kubelet of a virtual machine registers.

        Raises:
            BootError: none starts.
        """
        size = self._sizes.get(instance.instance_type)
        if size is None:
            raise BootError(f"there is no size {instance.instance_type}")
        settings = self.settings(instance)
        capacity = self._capacity(instance, size, settings)
        thresholds = {
            _SIGNALS[signal]: amount
            for signal, amount in settings.eviction_thresholds.items()
            if signal in _SIGNALS
        }
        allocatable = allocatable_amounts(
            capacity,
            _amounts(settings, "kube-reserved"),
            _amounts(settings, "system-reserved"),
            thresholds=thresholds,
        )
        return BootedNode(
            name=_host_name(instance.name),
            provider_id=self.provider_id(instance),
            labels=self._labels(instance, size, settings),
            taints=settings.taints,
            capacity=capacity,
            allocatable=allocatable,
            addresses=self._addresses(instance),
            node_info=self._node_info(instance, size, settings),
            conditions=self._conditions(instance),
        )

    def provider_id(self, machine: VirtualMachine) -> str:
        """Return the provider ID, with the resource group in lower case as Azure's own parts do."""
        group = machine.resource_group
        path = machine.resource_id.replace(
            f"/resourceGroups/{group}/", f"/resourceGroups/{group.lower()}/"
        )
        return f"azure://{path}"

    def _labels(
        self, machine: VirtualMachine, size: SimulatedSize, settings: KubeletSettings
    ) -> Mapping[str, str]:
        zone = machine.pool.zone
        return {
            **settings.labels,
            "kubernetes.io/arch": "arm64" if size.architecture == "Arm64" else "amd64",
            "kubernetes.io/os": "linux",
            "kubernetes.io/hostname": _host_name(machine.name),
            INSTANCE_TYPE: size.name,
            REGION: self._world.location,
            ZONE: zone,
            "topology.disk.csi.azure.com/zone": "" if zone == "0" else zone,
        }

    def _capacity(
        self, machine: VirtualMachine, size: SimulatedSize, settings: KubeletSettings
    ) -> dict[str, int]:
        disk_gib = int(machine.os_disk.get("diskSizeGB") or _IMAGE_GIB)
        capacity = {
            "cpu": size.cpus * 1000,
            "memory": self.memory_bytes(size),
            "ephemeral-storage": floor(disk_gib * _GIBIBYTE * _DISK_SHARE),
            "pods": settings.max_pods,
        }
        gpus = int(size.number("GPUs"))
        amd = any(each in size.name for each in _AMD_SIZES)
        drivers = settings.variables.get("GPU_NODE", "").lower() == "true"
        if gpus and (amd or drivers):
            capacity[_AMD if amd else _NVIDIA] = gpus
        return capacity

    def _addresses(self, machine: VirtualMachine) -> Sequence[tuple[str, str]]:
        addresses = [("Hostname", _host_name(machine.name))]
        for each in machine.interface_ids:
            interface = self._interfaces.get(each)
            if interface is not None and interface.configurations:
                primary = next(each for each in interface.configurations if each.primary)
                addresses.insert(0, ("InternalIP", primary.address))
        return addresses

    def _node_info(
        self, machine: VirtualMachine, size: SimulatedSize, settings: KubeletSettings
    ) -> Mapping[str, str]:
        version = settings.kubernetes_version or self._world.kubernetes_version
        return {
            "architecture": "arm64" if size.architecture == "Arm64" else "amd64",
            "operatingSystem": "linux",
            "osImage": machine.image_id.partition("/images/")[2].partition("/")[0],
            "machineID": machine.vm_id.replace("-", ""),
            "systemUUID": machine.vm_id,
            "bootID": machine.vm_id,
            "kernelVersion": "6.8.0-1036-azure",
            "containerRuntimeVersion": "containerd://2.0.5",
            "kubeletVersion": f"v{version}",
            "kubeProxyVersion": f"v{version}",
        }

    def _conditions(self, machine: VirtualMachine) -> Sequence[Mapping[str, object]]:
        """Return the conditions of node-problem-detector about an announced event."""
        event = machine.event
        if not self.reports_preemption or event is None or self._now() < event.announced_at:
            return ()
        event_id = str(uuid5(NAMESPACE_URL, f"{machine.vm_id}/{event.kind.lower()}")).upper()
        message = (
            f"{event.kind} Scheduled: {format_datetime(event.not_before, usegmt=True)}."
            f" DurationInSeconds: -1. EventId: {event_id}"
        )
        since = event.announced_at.strftime("%Y-%m-%dT%H:%M:%SZ")
        return [
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": since,
                "lastHeartbeatTime": since,
            }
            for kind, reason in (
                ("PreemptionScheduled", "SpotEvictionIncoming"),
                ("VMEventScheduled", "VMEventScheduled"),
            )
            if event.kind == "Preempt" or kind == "VMEventScheduled"
        ]


def _amounts(settings: KubeletSettings, flag: str) -> Mapping[str, int]:
    reply = {key: value for key, value in settings.amounts(flag).items() if key != "pid"}
    return parse_resources(reply)
