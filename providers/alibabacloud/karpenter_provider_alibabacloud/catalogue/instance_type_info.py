"""Facts of instance types, read from DescribeInstanceTypes.

The facts kept fit into a file that a new process reads at once. A field that is missing is zero or empty,
unless every type has it; a value that cannot be is an error, for nodes would be planned with it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from karpenter_provider_alibabacloud.api_answers import ApiAnswer

__all__ = [
    "InstanceTypeInfo",
    "InstanceTypeName",
    "list_at",
    "read_instance_type",
    "read_name",
    "type_name",
]

ARCHITECTURES: Final = {"X86": "amd64", "ARM": "arm64"}
"""`CpuArchitecture` to the word that Kubernetes has for it."""

_GENERATION: Final = re.compile(r"ecs\.([a-z]+)(?:-[0-9]+tb)?([0-9]+)")
"""Category and generation: `ecs.g7.xlarge`, `ecs.ebmg7.32xlarge`; `ecs.e-c1m2.large` has neither."""
_PARTS: Final = 3
"""`ecs`, family, size."""
_PREFIX: Final = "ecs."
_LARGEST_NUMBER: Final = 2**31
"""More than any field has: bandwidth in kbit/s is the largest."""
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
    """`amd64` or `arm64`."""
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


def type_name(item: ApiAnswer) -> str:
    """Return the name of a described type; empty if it is none."""
    name = item.get("InstanceTypeId")
    return name if isinstance(name, str) and name.startswith(_PREFIX) else ""


def read_instance_type(item: ApiAnswer) -> InstanceTypeInfo:
    """Read one item of DescribeInstanceTypes.

    Raises:
        ValueError: the name, or a field that every type has, is missing, or a value cannot be; names
            the type, the field and the value.
    """
    name = type_name(item)
    if not name:
        raise ValueError(f'an instance type is named "{item.get("InstanceTypeId")}"'[:200])
    try:
        return _read(name, item)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _read(name: str, item: ApiAnswer) -> InstanceTypeInfo:
    rates = [_whole(item, f"InstanceBandwidth{way}") for way in ("Rx", "Tx")]
    return InstanceTypeInfo(
        name=name,
        family=_text(item, "InstanceTypeFamily"),
        family_level=_text(item, "InstanceFamilyLevel"),
        architecture=_architecture(item),
        processor_model=_text(item, "PhysicalProcessorModel"),
        cpu_cores=_whole(item, "CpuCoreCount", least=1),
        memory_mib=_memory_mib(item),
        enis=_whole(item, "EniQuantity", least=1),
        ips_per_eni=_whole(item, "EniPrivateIpAddressQuantity", least=1),
        gpus=_whole(item, "GPUAmount"),
        gpu_spec=_text(item, "GPUSpec").strip(),
        gpu_memory_gib=_number(item, "GPUMemorySize"),
        local_disks=_whole(item, "LocalStorageAmount"),
        local_disk_gib=_whole(item, "LocalStorageCapacity"),
        local_disk_category=_text(item, "LocalStorageCategory"),
        bandwidth_kbps=min((rate for rate in rates if rate > 0), default=0),
        nvme=_text(item, "NvmeSupport"),
    )


def list_at(body: ApiAnswer, path: str) -> list[ApiAnswer]:
    """Return a list out of an answer by its path, such as `SpotPrices.SpotPriceType`.

    It is empty where any part of the path is missing.
    """
    *above, last = path.split(".")
    for name in above:
        body = body.get(name) or {}
    return list(body.get(last) or ())


def _text(item: ApiAnswer, field: str) -> str:
    value = item.get(field)
    return "" if value is None else str(value)


def _architecture(item: ApiAnswer) -> str:
    text = _text(item, "CpuArchitecture")
    architecture = ARCHITECTURES.get(text.upper())
    if architecture is None:
        raise _unreadable("CpuArchitecture", text)
    return architecture


def _memory_mib(item: ApiAnswer) -> int:
    mib = round(_number(item, "MemorySize") * 1024)
    if mib <= 0:
        raise _unreadable("MemorySize", item.get("MemorySize"))
    return mib


def _number(item: ApiAnswer, field: str) -> float:
    """Return a number or a text of one; 0 if it is missing."""
    value = item.get(field)
    if value is None or value == "":
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _unreadable(field, value)
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise _unreadable(field, value) from None
    if not 0 <= number < _LARGEST_NUMBER:
        raise _unreadable(field, value)
    return number


def _whole(item: ApiAnswer, field: str, *, least: int = 0) -> int:
    number = int(_number(item, field))
    if number < least:
        raise _unreadable(field, item.get(field))
    return number


def _unreadable(field: str, value: object) -> ValueError:
    text = f"{value}"
    return ValueError(f'{field} is "{text[:40]}"')
