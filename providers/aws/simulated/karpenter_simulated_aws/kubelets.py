"""Registers the Node of an instance, from its type and user data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.quantities import parse_resources
from karpenter_core.provider.kit.simulated import kubelets
from karpenter_core.provider.kit.simulated.kubelets import (
    BootedNode,
    BootError,
    allocatable_amounts,
)
from karpenter_simulated_aws.instance_calls import private_dns_name
from karpenter_simulated_aws.instances import SimulatedInstance
from karpenter_simulated_aws.user_data import read_user_data

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_simulated_aws.account import Account
    from karpenter_simulated_aws.behaviour import CloudBehaviour
    from karpenter_simulated_aws.images import Images
    from karpenter_simulated_aws.instances import Instances
    from karpenter_simulated_aws.type_catalogue import TypeCatalogue, TypeInfo
    from karpenter_simulated_aws.user_data import KubeletSettings

__all__ = ["SimulatedKubelets", "reported_memory_mib"]

_MEBI: Final = 2**20
_GIBI: Final = 2**30
_ROOT_BYTES: Final = 20 * _GIBI
_GIGA: Final = 10**9
_WINDOWS_PODS: Final = 110
_DEFAULT_PODS: Final = 110
# Share that kernel and firmware keep, so that MemTotal is less than the instance's memory.
_MEMORY_KEPT: Final = 0.03


def reported_memory_mib(type_info: TypeInfo) -> int:
    """Return the memory that a kubelet reports of an instance: less than it is sold with."""
    return int(type_info.memory_mib * (1 - _MEMORY_KEPT))


@dataclass(frozen=True, slots=True, kw_only=True)
class _BootContext:
    instance: SimulatedInstance
    type_info: TypeInfo
    settings: KubeletSettings
    image: str


@final
class SimulatedKubelets(kubelets.SimulatedKubelets[SimulatedInstance]):
    """Boots simulated instances."""

    def __init__(
        self,
        account: Account,
        behaviour: CloudBehaviour,
        *,
        instances: Instances,
        catalogue: TypeCatalogue,
        images: Images,
    ) -> None:
        super().__init__(account.clock, behaviour, instances)
        self._account: Final = account
        self._catalogue: Final = catalogue
        self._images: Final = images
        self.memory_mib: Callable[[TypeInfo], int] = reported_memory_mib
        """Memory that kubelets report."""

    def clear(self) -> None:
        """Let kubelets be as they are by default."""
        super().clear()
        self.memory_mib = reported_memory_mib

    def settings(self, instance: SimulatedInstance) -> KubeletSettings:
        """Return with what the kubelet of an instance is started.

        Raises:
            BootError: none is.
        """
        image = self._images.get(instance.image_id)
        return read_user_data(instance.user_data.decode(), image=image.name if image else "")

    def boot(self, instance: SimulatedInstance) -> BootedNode:
        """Return what the kubelet of an instance registers.

        Raises:
            BootError: none comes up.
        """
        type_info = self._catalogue.type_info(instance.instance_type)
        if type_info is None:
            raise BootError(f"there is no instance type {instance.instance_type}")
        if not instance.profile_arn:
            raise BootError("without an instance profile the API server does not know the node")
        image = self._images.get(instance.image_id)
        boot = _BootContext(
            instance=instance,
            type_info=type_info,
            settings=self.settings(instance),
            image=image.name if image else instance.image_id,
        )
        name = private_dns_name(self._account.region, instance.private_address)
        capacity = self._capacity(boot)
        return BootedNode(
            name=name,
            provider_id=instance.provider_id,
            labels=self._labels(boot, name),
            taints=boot.settings.taints,
            capacity=capacity,
            allocatable=_allocatable(capacity, boot.settings),
            addresses=[
                ("InternalIP", instance.private_address),
                ("Hostname", name),
                ("InternalDNS", name),
            ],
            node_info=_node_info(boot),
        )

    def _labels(self, boot: _BootContext, name: str) -> Mapping[str, str]:
        instance = boot.instance
        return {
            **boot.settings.labels,
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "windows" if instance.windows else "linux",
            "kubernetes.io/arch": "arm64" if instance.architecture == "arm64" else "amd64",
            "node.kubernetes.io/instance-type": instance.instance_type,
            "topology.kubernetes.io/region": self._account.region,
            "topology.kubernetes.io/zone": instance.zone,
            "topology.k8s.aws/zone-id": instance.zone_id,
        }

    def _capacity(self, boot: _BootContext) -> dict[str, int]:
        type_info = boot.type_info
        capacity = {
            "cpu": type_info.vcpus * 1000,
            "memory": self.memory_mib(type_info) * _MEBI,
            "ephemeral-storage": _storage(boot),
            "pods": _pods(boot),
        }
        devices = {
            "nvidia.com/gpu": type_info.gpus if type_info.gpu_manufacturer == "NVIDIA" else 0,
            "amd.com/gpu": type_info.gpus if type_info.gpu_manufacturer == "AMD" else 0,
            "aws.amazon.com/neuron": type_info.neuron_devices,
            "vpc.amazonaws.com/efa": sum(
                each.kind in {"efa", "efa-only"} for each in boot.instance.interfaces
            ),
        }
        return capacity | {name: count for name, count in devices.items() if count}


def _storage(boot: _BootContext) -> int:
    """Return the size of the disk that the kubelet lives on."""
    if boot.settings.local_disks == "raid0" and boot.type_info.storage_gb:
        return boot.type_info.storage_gb * _GIGA
    sizes = {
        mapping.get("DeviceName", ""): mapping.get("Ebs", {}).get("VolumeSize", 0) * _GIBI
        for mapping in boot.instance.data.get("BlockDeviceMappings", ())
    }
    data_volume = (
        "/dev/xvdb" if boot.image.startswith("bottlerocket") else boot.instance.root_device
    )
    return sizes.get(data_volume) or max(sizes.values(), default=0) or _ROOT_BYTES


def _pods(boot: _BootContext) -> int:
    """Return how many pods there may be: as told, else what the image works out for its type."""
    type_info, settings = boot.type_info, boot.settings
    default = type_info.interfaces * (type_info.addresses_per_interface - 1) + 2
    if boot.instance.windows:
        default = _WINDOWS_PODS
    pods = settings.max_pods if settings.max_pods is not None else default or _DEFAULT_PODS
    per_core = settings.pods_per_core * type_info.vcpus
    return min(pods, per_core) if per_core else pods


def _allocatable(capacity: Mapping[str, int], settings: KubeletSettings) -> Mapping[str, int]:
    hard = {"memory.available": "100Mi", "nodefs.available": "10%", **settings.eviction_hard}
    return allocatable_amounts(
        capacity,
        parse_resources(dict(settings.kube_reserved)),
        parse_resources(dict(settings.system_reserved)),
        thresholds={
            "memory": hard["memory.available"],
            "ephemeral-storage": hard["nodefs.available"],
        },
    )


def _node_info(boot: _BootContext) -> Mapping[str, str]:
    return {
        "architecture": "arm64" if boot.instance.architecture == "arm64" else "amd64",
        "operatingSystem": "windows" if boot.instance.windows else "linux",
        "osImage": boot.image,
        "machineID": boot.instance.id,
        "systemUUID": boot.instance.id,
        "bootID": boot.instance.id,
        "kernelVersion": "6.12.0",
        "containerRuntimeVersion": "containerd://2.1.0",
        "kubeletVersion": "v1.34.0-eks-simulated",
        "kubeProxyVersion": "v1.34.0-eks-simulated",
    }
