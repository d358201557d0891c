"""Facts of instance types, read from DescribeInstanceTypes.

The facts kept fit into a file that a new process reads at once, so items are read leniently: a
field that is missing is zero or empty, never an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["InstanceTypeInfo", "InstanceTypeName", "list_at", "read_instance_type", "read_name"]

ARCHITECTURES: Final = {"X86": "amd64", "ARM": "arm64"}
"""`CpuArchitecture` to the word that Kubernetes has for it."""

_GENERATION: Final = re.compile(r"ecs\.([a-z]+)(?:-[0-9]+tb)?([0-9]+)")
"""Category and generation: `ecs.g7.xlarge`, `ecs.ebmg7.32xlarge`; `ecs.e-c1m2.large` has neither."""
_PARTS: Final = 3
"""`ecs`, family, size."""
_BARE_METAL: Final = ("ecs.ebm", "ecs.scc")
"""Prefixes of families without a hypervisor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceTypeInfo:
    """One instance type as ECS describes it."""

    name: str
    """`ecs.g7.xlarge`."""
    family: str = ""
    """`InstanceTypeFamily`: `ecs.g7`."""
    family_level: str = ""
    """`EntryLevel`, `EnterpriseLevel` or `CreditEntryLevel`."""
    architecture: str = ""
    """`amd64` or `arm64`; empty when ECS names another, or none."""
    processor_model: str = ""
    """As written: `Intel(R) Xeon(R) Platinum 8369B`."""
    cpu_cores: int = 0
    """Virtual CPUs."""
    memory_mib: int = 0
    """Memory that the type is sold with; the kernel sees less."""
    enis: int = 0
    """Elastic network interfaces, the primary one included."""
    ips_per_eni: int = 0
    """Private IPv4 addresses of each interface, its primary one included."""
    gpus: int = 0
    gpu_spec: str = ""
    """As written: `NVIDIA A10`."""
    gpu_memory_gib: float = 0.0
    """Of each GPU."""
    local_disks: int = 0
    local_disk_gib: int = 0
    """Of each local disk."""
    local_disk_category: str = ""
    """`local_hdd_pro` or `local_ssd_pro`."""
    bandwidth_kbps: int = 0
    """Inside the region, the smaller one of both directions."""
    nvme: str = ""
    """Whether disks are attached by NVMe: `required`, `supported` or `unsupported`."""

    @property
    def is_bare_metal(self) -> bool:
        """Whether an instance is a whole server (families `ebm…` and `scc…`)."""
        return self.name.startswith(_BARE_METAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceTypeName:
    """The parts of an instance type's name; a missing part is empty."""

    category: str
    """`g`, `gn`, `ebmg`."""
    generation: str
    """`7`."""
    family: str
    """`ecs.g7`, `ecs.gn7i-c8g1`."""
    size: str
    """`xlarge`."""


def read_name(name: str, *, family: str) -> InstanceTypeName:
    """Take a name apart; `family` stands for names that are not made of three parts.

    Category and generation need a number after the letters; `ecs.u0.c1m1.large` has those and four
    parts, so its family is the given one and its size the last part.
    """
    parts = name.split(".")
    match = _GENERATION.match(name)
    if len(parts) == _PARTS:
        family, size = ".".join(parts[:2]), parts[2]
    else:
        size = parts[-1] if family and len(parts) > 1 else ""
    return InstanceTypeName(
        category="" if match is None else match[1],
        generation="" if match is None else match[2],
        family=family,
        size=size,
    )


def read_instance_type(item: Mapping[str, Any]) -> InstanceTypeInfo:
    """Read one item of DescribeInstanceTypes."""
    rates = [_whole(item, f"InstanceBandwidth{way}") for way in ("Rx", "Tx")]
    return InstanceTypeInfo(
        name=_text(item, "InstanceTypeId"),
        family=_text(item, "InstanceTypeFamily"),
        family_level=_text(item, "InstanceFamilyLevel"),
        architecture=ARCHITECTURES.get(_text(item, "CpuArchitecture").upper(), ""),
        processor_model=_text(item, "PhysicalProcessorModel"),
        cpu_cores=_whole(item, "CpuCoreCount"),
        memory_mib=round(_number(item, "MemorySize") * 1024),
        enis=_whole(item, "EniQuantity"),
        ips_per_eni=_whole(item, "EniPrivateIpAddressQuantity"),
        gpus=_whole(item, "GPUAmount"),
        gpu_spec=_text(item, "GPUSpec").strip(),
        gpu_memory_gib=_number(item, "GPUMemorySize"),
        local_disks=_whole(item, "LocalStorageAmount"),
        local_disk_gib=_whole(item, "LocalStorageCapacity"),
        local_disk_category=_text(item, "LocalStorageCategory"),
        bandwidth_kbps=min((rate for rate in rates if rate > 0), default=0),
        nvme=_text(item, "NvmeSupport"),
    )


def list_at(body: Mapping[str, Any], path: str) -> list[Mapping[str, Any]]:
    """Return a list out of an answer by its path, such as `SpotPrices.SpotPriceType`.

    It is empty where any part of the path is missing.
    """
    value_at: Any = body
    for name in path.split("."):
        value_at = value_at.get(name) or {}
    return list(value_at)


def _text(item: Mapping[str, Any], field: str) -> str:
    value = item.get(field)
    return "" if value is None else str(value)


def _number(item: Mapping[str, Any], field: str) -> float:
    try:
        value = float(item.get(field) or 0)
    except (TypeError, ValueError):
        return 0.0
    return value if isfinite(value) else 0.0


def _whole(item: Mapping[str, Any], field: str) -> int:
    return int(_number(item, field))
