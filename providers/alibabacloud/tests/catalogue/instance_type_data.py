"""Instance types as ECS describes them, and catalogues of them without a cloud."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from karpenter_core.provider.kit.learned_memory import LearnedMemory
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
from karpenter_provider_alibabacloud.catalogue.instance_type_info import (
    InstanceTypeInfo,
    read_instance_type,
)
from karpenter_provider_alibabacloud.catalogue.instance_types import (
    CatalogueInputs,
    InstanceTypeCatalogue,
)
from karpenter_provider_alibabacloud.catalogue.stock import RegionStock
from karpenter_provider_alibabacloud.discovery.cluster import ClusterDetails, Cni
from karpenter_provider_alibabacloud.prices import RegionPrices

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.provider.catalogue import InstanceType, Offering

REGION = "cn-hangzhou"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MIB = 2**20
GIB = 2**30
A, B, C = (f"{REGION}-{letter}" for letter in "abc")
ZONES = (A, B)
TERWAY = ClusterDetails(cni=Cni.TERWAY_ENIIP)
FLANNEL = ClusterDetails(cni=Cni.FLANNEL)


class SetClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return (self.at - NOW).total_seconds()

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


class EmptyDiskCache:
    """A disk cache that stores nothing."""

    def read(self, **_: object) -> None:
        return None

    def write(self, value: object, **_: object) -> None:
        """Keep nothing."""


# Cores, GiB, interfaces, addresses of each
SIZES = {
    "ecs.g7.large": (2, 8, 3, 6),
    "ecs.g7.xlarge": (4, 16, 4, 15),
    "ecs.g7.4xlarge": (16, 64, 8, 30),
    "ecs.c7.large": (2, 4, 3, 6),
    "ecs.r7.large": (2, 16, 3, 6),
    "ecs.t6-c1m1.large": (2, 2, 2, 6),
    "ecs.g8y.large": (2, 8, 3, 6),
    "ecs.gn7i-c8g1.2xlarge": (8, 30, 4, 15),
}


def item(name: str, **fields: object) -> dict[str, object]:
    """Return an item of DescribeInstanceTypes."""
    cores, gib, enis, ips = SIZES.get(name, SIZES["ecs.g7.large"])
    described: dict[str, object] = {
        "InstanceTypeId": name,
        "InstanceTypeFamily": name.rpartition(".")[0],
        "InstanceFamilyLevel": "EnterpriseLevel",
        "CpuArchitecture": "X86",
        "PhysicalProcessorModel": "Intel(R) Xeon(R) Platinum 8369B",
        "CpuCoreCount": cores,
        "MemorySize": float(gib),
        "EniQuantity": enis,
        "EniPrivateIpAddressQuantity": ips,
        "GPUAmount": 0,
        "InstanceBandwidthRx": 2_048_000,
        "InstanceBandwidthTx": 2_048_000,
        "NvmeSupport": "required",
    }
    if "g8y" in name:
        described |= {"CpuArchitecture": "ARM", "PhysicalProcessorModel": "Yitian 710"}
    if "gn7i" in name:
        described |= {"GPUAmount": 1, "GPUSpec": "NVIDIA A10", "GPUMemorySize": 24.0}
    return described | fields


def info(name: str = "ecs.g7.large", **fields: object) -> InstanceTypeInfo:
    """Return a type as it is read; fields are those of the API."""
    return read_instance_type(item(name, **fields))


def vswitches(*zones: str) -> list[dict[str, str]]:
    return [{"id": f"vsw-{zone[-1]}", "zoneID": zone} for zone in zones]


def images(*ids: str, arch: str = "amd64") -> list[dict[str, Any]]:
    wanted = [{"key": "kubernetes.io/arch", "operator": "In", "values": [arch]}]
    return [{"id": each, "name": each, "requirements": wanted} for each in ids]


def node_class(
    spec: Mapping[str, object] | None = None,
    *,
    zones: Iterable[str] = ZONES,
    name: str = "default",
    **status: object,
) -> ECSNodeClass:
    found = {
        "vSwitches": vswitches(*zones),
        "images": [*images("img-amd"), *images("img-arm", arch="arm64")],
        **status,
    }
    return ECSNodeClass.model_validate(
        {"metadata": {"name": name}, "spec": spec or {}, "status": found}
    )


class World:
    """A catalogue with all that it reads within reach."""

    def __init__(self, *names: str, overhead_percent: float = 0.065) -> None:
        self.types = {name: info(name) for name in sorted(names)}
        everywhere = dict.fromkeys(self.types, ZONES)
        self.stock = RegionStock(
            on_demand=everywhere,
            spot={"1": everywhere},
            on_demand_listed=everywhere,
            spot_listed=everywhere,
        )
        self.types_revision = self.stock_revision = 1
        self.watched: set[int] = set()
        self.prices = RegionPrices(REGION)
        self.unavailable_offerings = UnavailableOfferings()
        self.learned = LearnedMemory(EmptyDiskCache(), now=NOW)
        self.left: dict[str, int] = {}
        self.catalogue = InstanceTypeCatalogue(
            REGION,
            overhead_percent=overhead_percent,
            types=lambda: (self.types, self.types_revision),
            stock=self,
            prices=self.prices,
            unavailable_offerings=self.unavailable_offerings,
            learned=self.learned,
            reserved_left=lambda pool: self.left.get(pool, 0),
        )

    def current(self) -> tuple[RegionStock, int]:
        return self.stock, self.stock_revision

    def watch_spot(self, hours: int) -> bool:
        self.watched.add(hours)
        return False

    def restock(self, stock: RegionStock) -> None:
        self.stock = stock
        self.stock_revision += 1

    def list(
        self,
        of: ECSNodeClass | None = None,
        *,
        cluster: ClusterDetails = TERWAY,
        now: datetime = NOW,
    ) -> dict[str, InstanceType]:
        catalogue_inputs = CatalogueInputs(now=now, cluster=cluster)
        return {
            it.name: it
            for it in self.catalogue.instance_types(of or node_class(), catalogue_inputs)
        }


def resolve(
    name: str,
    of: ECSNodeClass | None = None,
    *,
    cluster: ClusterDetails = TERWAY,
    overhead_percent: float = 0.065,
) -> InstanceType:
    """Return one type as a NodeClass sees it."""
    return World(name, overhead_percent=overhead_percent).list(of, cluster=cluster)[name]


def labels_of(it: InstanceType) -> dict[str, str]:
    """Labels that have exactly one value, without their domains."""
    return {
        key.rpartition("/")[2]: next(iter(requirement.values))
        for key, requirement in it.requirements.items()
        if not requirement.complement and len(requirement.values) == 1
    }


def bought(it: InstanceType) -> dict[tuple[str, str], Offering]:
    return {(offering.zone, offering.capacity_type): offering for offering in it.offerings}


def available(it: InstanceType) -> set[tuple[str, str]]:
    return {key for key, offering in bought(it).items() if offering.available}
