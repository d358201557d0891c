"""Registers the Node of an instance, from its type and user data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.quantities import format_resources, parse_resources
from karpenter_simulated_aws.instance_calls import private_dns_name
from karpenter_simulated_aws.instances import SimulatedInstanceState
from karpenter_simulated_aws.user_data import BootError, read_user_data

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_simulated_aws.account import Account
    from karpenter_simulated_aws.behaviour import CloudBehaviour
    from karpenter_simulated_aws.images import Images
    from karpenter_simulated_aws.instances import Instances, SimulatedInstance
    from karpenter_simulated_aws.type_catalogue import TypeCatalogue, TypeInfo
    from karpenter_simulated_aws.user_data import KubeletSettings

__all__ = ["SimulatedKubelets", "reported_memory_mib"]

_MEBI: Final = 2**20
_GIBI: Final = 2**30
_ROOT_BYTES: Final = 20 * _GIBI
_GIGA: Final = 10**9
_WINDOWS_PODS: Final = 110
_DEFAULT_PODS: Final = 110
# What the kernel and firmware keep, so that MemTotal is less than the instance's memory.
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
class SimulatedKubelets:
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
        self._account: Final = account
        self._behaviour: Final = behaviour
        self._instances: Final = instances
        self._catalogue: Final = catalogue
        self._images: Final = images
        self.memory_mib: Callable[[TypeInfo], int] = reported_memory_mib
        """Memory that kubelets report."""
        self.failing: Callable[[SimulatedInstance], bool] = lambda _: False
        """Instances that do not come up."""

    def clear(self) -> None:
        """Let kubelets be as they are by default."""
        self.memory_mib = reported_memory_mib
        self.failing = lambda _: False

    def settings(self, instance: SimulatedInstance) -> KubeletSettings:
        """Return with what the kubelet of an instance is started.

        Raises:
            BootError: none is.
        """
        image = self._images.get(instance.image_id)
        return read_user_data(instance.user_data.decode(), image=image.name if image else "")

    def boot_failure(self, instance: SimulatedInstance) -> str:
        """Return why no node of an instance joins; empty when one does."""
        if self._instances.state_of(instance) is not SimulatedInstanceState.RUNNING:
            return f"the instance is {self._instances.state_of(instance)}"
        booted = instance.launched_at + timedelta(
            seconds=self._behaviour.pending_seconds + self._behaviour.boot_seconds
        )
        if self._account.clock() < booted:
            return "the instance is booting"
        if self.failing(instance):
            return "the instance does not boot"
        if not instance.profile_arn:
            return "without an instance profile the API server does not know the node"
        try:
            self.settings(instance)
        except BootError as error:
            return str(error)
        return ""

    def node(self, instance: SimulatedInstance) -> Mapping[str, object] | None:
        """Return the Node that the instance registers; None when it does not join."""
        type_info = self._catalogue.type_info(instance.instance_type)
        if type_info is None or self.boot_failure(instance):
            return None
        image = self._images.get(instance.image_id)
        boot = _BootContext(
            instance=instance,
            type_info=type_info,
            settings=self.settings(instance),
            image=image.name if image else instance.image_id,
        )
        name = private_dns_name(self._account.region, instance.private_address)
        capacity = self._capacity(boot)
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": self._labels(boot, name)},
            "spec": {
                "providerID": instance.provider_id,
                "taints": [
                    {"key": taint.key, "effect": taint.effect}
                    | ({"value": taint.value} if taint.value else {})
                    for taint in boot.settings.taints
                ],
            },
            "status": {
                "capacity": _written(capacity),
                "allocatable": _written(_allocatable(capacity, boot.settings)),
                "addresses": [
                    {"type": "InternalIP", "address": instance.private_address},
                    {"type": "Hostname", "address": name},
                    {"type": "InternalDNS", "address": name},
                ],
                "nodeInfo": self._node_info(boot),
            },
        }

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

    def _node_info(self, boot: _BootContext) -> Mapping[str, str]:
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


def _allocatable(capacity: Mapping[str, int], settings: KubeletSettings) -> dict[str, int]:
    left = dict(capacity)
    for reserved in (settings.kube_reserved, settings.system_reserved):
        for name, amount in parse_resources(dict(reserved)).items():
            if name in left:
                left[name] -= amount
    hard = {"memory.available": "100Mi", "nodefs.available": "10%", **settings.eviction_hard}
    for signal, name in (("memory.available", "memory"), ("nodefs.available", "ephemeral-storage")):
        left[name] -= _threshold(hard[signal], capacity[name])
    return {name: max(0, amount) for name, amount in left.items()}


def _threshold(text: str, capacity: int) -> int:
    if text.endswith("%"):
        share = float(text.removesuffix("%")) / 100
        return 0 if share >= 1 else ceil(capacity * share)
    return parse_resources({"memory": text})["memory"]


def _written(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: str(amount) for name, amount in format_resources(amounts).items()}
