"""The instance types of a region: realistic ones, or generated ones.

Numbers of interfaces and addresses are those that ECS documents for the families; processors and
graphics cards have the names that DescribeInstanceTypes gives them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["DISK_CATEGORIES", "TypeInfo", "generated_types", "realistic_types"]

DISK_CATEGORIES: Final = (
    "cloud",
    "cloud_efficiency",
    "cloud_ssd",
    "cloud_essd",
    "cloud_auto",
    "cloud_essd_entry",
)
"""All kinds of disks that there are."""

_OLD_DISKS: Final = ("cloud_efficiency", "cloud_ssd", "cloud_essd")
_NEW_DISKS: Final = ("cloud_essd", "cloud_auto")
_ECONOMY_DISKS: Final = ("cloud_essd_entry", "cloud_essd", "cloud_auto")

_XEON: Final = "Intel Xeon(Ice Lake) Platinum 8369B"
_OLD_XEON: Final = "Intel Xeon(Cascade Lake) Platinum 8269CY"
_NEW_XEON: Final = "Intel Xeon(Sapphire Rapids) Platinum 8475B"
_EPYC: Final = "AMD EPYC(Milan) 7T83"
_YITIAN: Final = "ARM Yitian 710"
_ARM: Final = "ARM"
_X86: Final = "X86"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeInfo:
    """Facts of a type, as DescribeInstanceTypes returns them."""

    name: str = ""
    family: str = ""
    vcpus: int = 0
    memory_gib: float = 0
    interfaces: int = 0
    addresses_per_interface: int = 0
    architecture: str = _X86
    processor: str = _XEON
    category: str = "General-purpose"
    level: str = "EnterpriseLevel"
    gpus: int = 0
    gpu_spec: str = ""
    gpu_memory_gib: float = 0
    local_disks: int = 0
    local_disk_gib: int = 0
    local_disk_category: str = ""
    nvme: bool = True
    disk_categories: tuple[str, ...] = _NEW_DISKS
    sold_as_spot: bool = True

    @property
    def bandwidth_kbps(self) -> int:
        """The base bandwidth of its network: a gigabit for each two processors, 64 at most."""
        return min(64, max(1, self.vcpus // 2)) * 1_024_000


_SIZES: Final[Mapping[str, tuple[int, int, int]]] = {
    # vCPUs, network interfaces, addresses of each
    "large": (2, 3, 6),
    "xlarge": (4, 4, 15),
    "2xlarge": (8, 4, 15),
    "3xlarge": (12, 8, 15),
    "4xlarge": (16, 8, 30),
    "6xlarge": (24, 8, 30),
    "8xlarge": (32, 8, 30),
    "16xlarge": (64, 8, 30),
}
_USUAL: Final = ("large", "xlarge", "2xlarge", "4xlarge", "8xlarge")


_GENERAL: Final = TypeInfo()
_COMPUTE: Final = TypeInfo(category="Compute-optimized")
_MEMORY: Final = TypeInfo(category="Memory-optimized")
_BURSTABLE: Final = TypeInfo(
    family="ecs.t6",
    category="Burstable",
    level="CreditEntryLevel",
    processor=_OLD_XEON,
    disk_categories=("cloud_efficiency", "cloud_ssd"),
    nvme=False,
    interfaces=2,
    addresses_per_interface=2,
)
_ECONOMY: Final = TypeInfo(
    family="ecs.e", category="Shared", level="EntryLevel", disk_categories=_ECONOMY_DISKS
)
_UNIVERSAL: Final = TypeInfo(family="ecs.u1", disk_categories=_ECONOMY_DISKS)
_T4: Final = TypeInfo(
    family="ecs.gn6i", category="GPU-accelerated", gpu_spec="NVIDIA T4", gpu_memory_gib=16
)
_A10: Final = TypeInfo(
    family="ecs.gn7i", category="GPU-accelerated", gpu_spec="NVIDIA A10", gpu_memory_gib=24
)
_METAL: Final = TypeInfo(
    category="Bare-metal", vcpus=128, interfaces=32, addresses_per_interface=10
)
_LOCAL_SSD: Final = TypeInfo(
    family="ecs.i3",
    category="Local-SSDs",
    local_disk_gib=894,
    local_disk_category="local_ssd_pro",
)
_LOCAL_HDD: Final = TypeInfo(
    family="ecs.d3s",
    category="Big-data",
    local_disk_gib=11_000,
    local_disk_category="local_hdd_pro",
    sold_as_spot=False,
)


def _sixth(template: TypeInfo) -> TypeInfo:
    return replace(template, processor=_OLD_XEON, disk_categories=_OLD_DISKS, nvme=False)


def _on_arm(template: TypeInfo) -> TypeInfo:
    return replace(template, processor=_YITIAN, architecture=_ARM)


# Family, GiB for each vCPU, sizes, and what its types are like.
_FAMILIES: Final[tuple[tuple[str, int, tuple[str, ...], TypeInfo], ...]] = (
    ("ecs.g6", 4, _USUAL, _sixth(_GENERAL)),
    ("ecs.c6", 2, _USUAL, _sixth(_COMPUTE)),
    ("ecs.r6", 8, _USUAL, _sixth(_MEMORY)),
    ("ecs.g7", 4, tuple(_SIZES), _GENERAL),
    ("ecs.c7", 2, tuple(_SIZES), _COMPUTE),
    ("ecs.r7", 8, _USUAL, _MEMORY),
    ("ecs.g8i", 4, _USUAL, replace(_GENERAL, processor=_NEW_XEON)),
    ("ecs.c8i", 2, _USUAL, replace(_COMPUTE, processor=_NEW_XEON)),
    ("ecs.r8i", 8, _USUAL, replace(_MEMORY, processor=_NEW_XEON)),
    ("ecs.c7a", 2, _USUAL, replace(_COMPUTE, processor=_EPYC)),
    ("ecs.g8y", 4, _USUAL, _on_arm(_GENERAL)),
    ("ecs.c8y", 2, _USUAL, _on_arm(_COMPUTE)),
)

# Name, GPUs, vCPUs, GiB, interfaces and addresses of each, and what else is true of it.
_GPU_TYPES: Final[tuple[tuple[str, int, int, int, int, int, TypeInfo], ...]] = (
    ("ecs.gn6i-c4g1.xlarge", 1, 4, 15, 2, 10, _T4),
    ("ecs.gn6i-c16g1.4xlarge", 1, 16, 62, 4, 20, _T4),
    ("ecs.gn6i-c24g1.12xlarge", 2, 48, 186, 6, 20, _T4),
    ("ecs.gn7i-c8g1.2xlarge", 1, 8, 30, 4, 15, _A10),
    ("ecs.gn7i-c16g1.4xlarge", 1, 16, 60, 8, 30, _A10),
    ("ecs.gn7i-c32g1.32xlarge", 4, 128, 752, 15, 30, _A10),
)


def realistic_types() -> Sequence[TypeInfo]:
    """Return types that a region has, of all sorts, by name."""
    made = (
        *(
            _sized(family, ratio, size, template)
            for family, ratio, sizes, template in _FAMILIES
            for size in sizes
        ),
        *_small_types(),
        *(
            replace(
                template,
                name=name,
                gpus=gpus,
                vcpus=vcpus,
                memory_gib=memory_gib,
                interfaces=interfaces,
                addresses_per_interface=addresses,
            )
            for name, gpus, vcpus, memory_gib, interfaces, addresses, template in _GPU_TYPES
        ),
        replace(_METAL, name="ecs.ebmg7.32xlarge", family="ecs.ebmg7", memory_gib=512),
        replace(_METAL, name="ecs.ebmc7.32xlarge", family="ecs.ebmc7", memory_gib=256),
        *_local_disk_types(),
    )
    return sorted(made, key=lambda type_info: type_info.name)


def _sized(family: str, gib_per_vcpu: float, size: str, template: TypeInfo) -> TypeInfo:
    vcpus, interfaces, addresses = _SIZES[size]
    return replace(
        template,
        name=f"{family}.{size}",
        family=family,
        vcpus=vcpus,
        memory_gib=vcpus * gib_per_vcpu,
        interfaces=interfaces,
        addresses_per_interface=addresses,
    )


def _small_types() -> Iterator[TypeInfo]:
    """Return burstable, economy and universal types, whose names have a part for their memory."""
    yield replace(_BURSTABLE, name="ecs.t6-c4m1.large", vcpus=2, memory_gib=0.5)
    for ratio in (1, 2):
        yield replace(_BURSTABLE, name=f"ecs.t6-c1m{ratio}.large", vcpus=2, memory_gib=2 * ratio)
    for ratio in (1, 2, 4):
        for size, vcpus, addresses in (("large", 2, 2), ("xlarge", 4, 6)):
            yield replace(
                _ECONOMY,
                name=f"ecs.e-c1m{ratio}.{size}",
                vcpus=vcpus,
                memory_gib=vcpus * ratio,
                interfaces=2,
                addresses_per_interface=addresses,
            )
    for ratio in (2, 4, 8):
        for size, vcpus, interfaces in (("large", 2, 2), ("xlarge", 4, 3), ("2xlarge", 8, 4)):
            yield replace(
                _UNIVERSAL,
                name=f"ecs.u1-c1m{ratio}.{size}",
                vcpus=vcpus,
                memory_gib=vcpus * ratio,
                interfaces=interfaces,
                addresses_per_interface=6,
            )


def _local_disk_types() -> Iterator[TypeInfo]:
    for size, disks in (("xlarge", 1), ("2xlarge", 1), ("4xlarge", 2)):
        yield replace(_sized("ecs.i3", 8, size, _LOCAL_SSD), local_disks=disks)
    for size, disks in (("2xlarge", 4), ("4xlarge", 8)):
        yield replace(_sized("ecs.d3s", 4, size, _LOCAL_HDD), local_disks=disks)


def generated_types(count: int) -> Sequence[TypeInfo]:
    """Return so many types that follow a rule: for tests of what a big region asks of a provider."""
    kinds = (("g", 4, _GENERAL), ("c", 2, _COMPUTE), ("r", 8, _MEMORY))
    made: list[TypeInfo] = []
    for number in range(count):
        (letter, ratio, template), size = kinds[number % 3], _USUAL[number // 3 % len(_USUAL)]
        family = f"ecs.{letter}{7 + number // (3 * len(_USUAL))}x"
        made.append(_sized(family, ratio, size, template))
    return made
