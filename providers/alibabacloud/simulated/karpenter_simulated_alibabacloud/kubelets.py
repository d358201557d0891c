"""Registers the Node of an instance, from its type and user data."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.api.quantities import parse_resources
from karpenter_core.provider.kit.simulated import kubelets
from karpenter_core.provider.kit.simulated.kubelets import (
    BootedNode,
    BootError,
    allocatable_amounts,
)
from karpenter_simulated_alibabacloud.instances import RECYCLING, SimulatedInstance
from karpenter_simulated_alibabacloud.user_data import read_user_data

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from karpenter_simulated_alibabacloud.account import Account
    from karpenter_simulated_alibabacloud.behaviour import CloudBehaviour
    from karpenter_simulated_alibabacloud.clusters import Cluster, Clusters
    from karpenter_simulated_alibabacloud.images import Images
    from karpenter_simulated_alibabacloud.instances import Instances
    from karpenter_simulated_alibabacloud.type_catalogue import TypeCatalogue
    from karpenter_simulated_alibabacloud.types import TypeInfo
    from karpenter_simulated_alibabacloud.user_data import KubeletSettings

__all__ = ["SimulatedKubelets", "reported_memory_mib"]

_MEBI: Final = 2**20
_GIBI: Final = 2**30
_DEFAULT_PODS: Final = 110
_HOST_NETWORK_PODS: Final = 3
_IPV4_BITS: Final = 32
# Share that kernel and firmware keep, so that MemTotal is less than the instance's memory.
_MEMORY_KEPT: Final = 0.045
# ACK's reservation: CPU by thresholds, memory by pods but a quarter at most, and what it keeps besides.
_CPU_STEPS: Final = ((1000, 60), (2000, 10), (3000, 5), (4000, 5))
_CPU_SHARE_ABOVE: Final = (4000, 0.0025)
_MIB_PER_POD: Final = 11
_MIB_BASE: Final = 255
_MEMORY_SHARE: Final = 0.25
_MIB_BESIDES: Final = 200


def reported_memory_mib(type_info: TypeInfo) -> int:
    """Return the memory that a kubelet reports of an instance: less than it is sold with."""
    return int(type_info.memory_gib * 1024 * (1 - _MEMORY_KEPT))


@dataclass(frozen=True, slots=True, kw_only=True)
class _BootContext:
    instance: SimulatedInstance
    type_info: TypeInfo
    settings: KubeletSettings
    cluster: Cluster | None
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
        clusters: Clusters,
    ) -> None:
        super().__init__(account.clock, behaviour, instances)
        self._account: Final = account
        self._own_instances: Final = instances
        self._catalogue: Final = catalogue
        self._images: Final = images
        self._clusters: Final = clusters
        self.memory_mib: Callable[[TypeInfo], int] = reported_memory_mib
        """Memory that kubelets report."""
        self.reports_expiry = False
        """Whether ACK's node-problem-detector runs: it tells of reclaims by `InstanceExpired`."""

    def clear(self) -> None:
        """Let kubelets be as they are by default."""
        super().clear()
        self.memory_mib = reported_memory_mib
        self.reports_expiry = False

    def settings(self, instance: SimulatedInstance) -> KubeletSettings:
        """Return with what the kubelet of an instance is started.

        Raises:
            BootError: none is.
        """
        return read_user_data(instance.user_data)

    def boot(self, instance: SimulatedInstance) -> BootedNode:
        """Return what the kubelet of an instance registers.

        Raises:
            BootError: none comes up.
        """
        type_info = self._catalogue.type_info(instance.pool.instance_type)
        if type_info is None:
            raise BootError(f"there is no instance type {instance.pool.instance_type}")
        settings = self.settings(instance)
        cluster = None
        if settings.token:
            cluster = self._clusters.join(settings.token, instance.launched_at)
            if cluster is None:
                raise BootError("the token of the attach script had expired, or is none of ACK's")
        image = self._images.get(instance.image_id)
        boot = _BootContext(
            instance=instance,
            type_info=type_info,
            settings=settings,
            cluster=cluster,
            image=image.os_name if image else instance.image_id,
        )
        name = f"{self._account.region}.{instance.address}"
        capacity = self._capacity(boot)
        return BootedNode(
            name=name,
            provider_id=self._own_instances.provider_id(instance),
            labels=self._labels(boot, name),
            taints=settings.taints,
            capacity=capacity,
            allocatable=_allocatable(boot, capacity),
            addresses=[("InternalIP", instance.address), ("Hostname", name)],
            node_info=_node_info(boot),
            conditions=self._conditions(instance),
        )

    def _conditions(self, instance: SimulatedInstance) -> Sequence[Mapping[str, object]]:
        if not self.reports_expiry:
            return ()
        expired = RECYCLING in self._own_instances.locks(instance)
        return [
            {
                "type": "InstanceExpired",
                "status": "True" if expired else "False",
                "reason": "InstanceToBeTerminated" if expired else "InstanceNotToBeTerminated",
                "message": "simulated",
            }
        ]

    def _labels(self, boot: _BootContext, name: str) -> Mapping[str, str]:
        instance = boot.instance
        arch = _arch(instance)
        region, zone = self._account.region, instance.pool.zone
        return {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": arch,
            "beta.kubernetes.io/os": "linux",
            "beta.kubernetes.io/arch": arch,
            "node.kubernetes.io/instance-type": instance.pool.instance_type,
            "topology.kubernetes.io/region": region,
            "topology.kubernetes.io/zone": zone,
            "topology.diskplugin.csi.alibabacloud.com/zone": zone,
            **boot.settings.labels,
        }

    def _capacity(self, boot: _BootContext) -> dict[str, int]:
        type_info = boot.type_info
        capacity = {
            "cpu": type_info.vcpus * 1000,
            "memory": self.memory_mib(type_info) * _MEBI,
            "ephemeral-storage": _storage_gib(boot) * _GIBI,
            "pods": _pods(boot),
        }
        devices = {
            "nvidia.com/gpu": type_info.gpus if type_info.gpu_spec.startswith("NVIDIA") else 0,
            "amd.com/gpu": type_info.gpus if type_info.gpu_spec.startswith("AMD") else 0,
            "aliyun/eni": type_info.interfaces - 1 if _network(boot) == "terway-eni" else 0,
        }
        return capacity | {name: count for name, count in devices.items() if count}


def _arch(instance: SimulatedInstance) -> str:
    return "arm64" if instance.architecture == "arm64" else "amd64"


def _network(boot: _BootContext) -> str:
    return boot.cluster.network if boot.cluster else ""


def _storage_gib(boot: _BootContext) -> int:
    """Return the size of the disk that the kubelet lives on."""
    disks = boot.instance.data_disks
    if boot.settings.format_disk and disks:
        return disks[-1].size_gib
    return boot.instance.system_disk.size_gib


def _pods(boot: _BootContext) -> int:
    """Return how many pods there may be: as told, else what the network has addresses for."""
    if boot.settings.max_pods is not None:
        return boot.settings.max_pods
    type_info, cluster = boot.type_info, boot.cluster
    match _network(boot):
        case "terway-eniip":
            return (
                type_info.interfaces - 1
            ) * type_info.addresses_per_interface + _HOST_NETWORK_PODS
        case "terway-eni":
            return type_info.interfaces - 1 + _HOST_NETWORK_PODS
        case "Flannel":
            mask = cluster.node_cidr_mask if cluster else ""
            return 2 ** (_IPV4_BITS - int(mask)) if mask else 256
        case _:
            return _DEFAULT_PODS


def _allocatable(boot: _BootContext, capacity: Mapping[str, int]) -> Mapping[str, int]:
    """Return what is left for pods, after ACK's reservation or the one that it is told."""
    config = boot.settings.config
    reserved = _ack_reserved(boot, capacity) if boot.cluster else {}
    eviction = cast("Mapping[str, str]", config.get("evictionHard", {}))
    threshold = eviction.get("memory.available")
    return allocatable_amounts(
        capacity,
        reserved | _amounts(config, "kubeReserved"),
        _amounts(config, "systemReserved"),
        thresholds={"memory": threshold} if threshold else {},
    )


def _ack_reserved(boot: _BootContext, capacity: Mapping[str, int]) -> dict[str, int]:
    milli = capacity["cpu"]
    cpu = sum(kept for step, kept in _CPU_STEPS if milli >= step)
    above, share = _CPU_SHARE_ABOVE
    cpu += floor(max(0, milli - above) * share)
    raw_mib = boot.type_info.memory_gib * 1024
    mib = floor(min(_MIB_PER_POD * capacity["pods"] + _MIB_BASE, raw_mib * _MEMORY_SHARE))
    return {"cpu": cpu, "memory": (mib + _MIB_BESIDES) * _MEBI}


def _amounts(config: Mapping[str, object], name: str) -> dict[str, int]:
    reply = cast("Mapping[str, str]", config.get(name, {}))
    return dict(parse_resources({key: value for key, value in reply.items() if key != "pid"}))


def _node_info(boot: _BootContext) -> Mapping[str, str]:
    version = boot.cluster.version if boot.cluster else "1.32.1"
    runtime = boot.settings.runtime_version or "1.6.39"
    return {
        "architecture": _arch(boot.instance),
        "operatingSystem": "linux",
        "osImage": boot.image,
        "machineID": boot.instance.id,
        "systemUUID": boot.instance.id,
        "bootID": boot.instance.id,
        "kernelVersion": "5.10.134",
        "containerRuntimeVersion": f"{boot.settings.runtime}://{runtime}",
        "kubeletVersion": f"v{version}",
        "kubeProxyVersion": f"v{version}",
    }
