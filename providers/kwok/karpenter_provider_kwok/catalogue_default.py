"""Computes the default catalogue, shaped like a real one.

Prices are uneven on purpose. In a catalogue whose prices are proportional to CPU and memory, every
plan costs the same and all choices of the planner look equal; real list prices differ between
families, and spot prices between zones. Everything is computed, nothing is random: the same
catalogue in every process. `python -m karpenter_provider_kwok catalogue` prints it as a file.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Final

from karpenter_core.api.labels import CAPACITY_TYPE, ON_DEMAND, REGION, SPOT, ZONE

__all__ = ["REGION_NAME", "ZONES", "default_catalogue_text"]

REGION_NAME: Final = "test-region"
ZONES: Final = ("test-zone-a", "test-zone-b", "test-zone-c")

_SIZES: Final = {
    "large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32, "12xlarge": 48,
    "16xlarge": 64, "24xlarge": 96,
}  # fmt: skip
"""Size to virtual CPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """A family of instance types: the same ratio of memory to CPU, in several sizes."""

    name: str
    arch: str = "amd64"
    memory_gib_per_cpu: float
    price_per_cpu: float
    price_per_gib: float
    zones: tuple[str, ...] = ZONES
    sizes: tuple[str, ...] = tuple(_SIZES)
    spot_discount: float
    """Of a middling spot price; zones and sizes move around it."""
    disk_gib_per_cpu: int = 0
    gpus: tuple[int, ...] = ()
    """By size."""
    price_per_gpu: float = 0.0


_A, _B, _C = ZONES
_FAMILIES: Final = (
    _Family(name="std1", memory_gib_per_cpu=4, price_per_cpu=0.0318, price_per_gib=0.0042,
            spot_discount=0.58),
    _Family(name="std2", memory_gib_per_cpu=4, price_per_cpu=0.0334, price_per_gib=0.0043,
            spot_discount=0.66, zones=(_A, _B)),
    _Family(name="std2a", arch="arm64", memory_gib_per_cpu=4, price_per_cpu=0.0262,
            price_per_gib=0.0036, spot_discount=0.61),
    _Family(name="std1d", memory_gib_per_cpu=4, price_per_cpu=0.0371, price_per_gib=0.0044,
            spot_discount=0.63, zones=(_A, _C), disk_gib_per_cpu=37),
    _Family(name="cpu1", memory_gib_per_cpu=2, price_per_cpu=0.0349, price_per_gib=0.0038,
            spot_discount=0.55),
    _Family(name="cpu2", memory_gib_per_cpu=2, price_per_cpu=0.0357, price_per_gib=0.0041,
            spot_discount=0.62, zones=(_B, _C)),
    _Family(name="cpu2a", arch="arm64", memory_gib_per_cpu=2, price_per_cpu=0.0284,
            price_per_gib=0.0034, spot_discount=0.57),
    _Family(name="mem1", memory_gib_per_cpu=8, price_per_cpu=0.0290, price_per_gib=0.0043,
            spot_discount=0.64),
    _Family(name="mem2a", arch="arm64", memory_gib_per_cpu=8, price_per_cpu=0.0231,
            price_per_gib=0.0036, spot_discount=0.67, zones=(_A, _B)),
    _Family(name="mem2d", memory_gib_per_cpu=8, price_per_cpu=0.0353, price_per_gib=0.0046,
            spot_discount=0.60, zones=(_A,), disk_gib_per_cpu=75),
    _Family(name="big1", memory_gib_per_cpu=15.25, price_per_cpu=0.0332, price_per_gib=0.0045,
            spot_discount=0.71, zones=(_A, _C),
            sizes=("4xlarge", "8xlarge", "16xlarge", "24xlarge")),
    _Family(name="fast1", memory_gib_per_cpu=4, price_per_cpu=0.0489, price_per_gib=0.0061,
            spot_discount=0.49, zones=(_B,),
            sizes=("large", "xlarge", "2xlarge", "4xlarge", "12xlarge")),
    _Family(name="disk1", memory_gib_per_cpu=7.625, price_per_cpu=0.0466, price_per_gib=0.0043,
            spot_discount=0.69, disk_gib_per_cpu=234,
            sizes=("large", "xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge")),
    _Family(name="gpu1", memory_gib_per_cpu=4, price_per_cpu=0.0301, price_per_gib=0.0040,
            spot_discount=0.64, zones=(_A, _B), sizes=("xlarge", "2xlarge", "4xlarge", "12xlarge"),
            gpus=(1, 1, 1, 4), price_per_gpu=0.342),
    _Family(name="gpu2", memory_gib_per_cpu=8, price_per_cpu=0.0344, price_per_gib=0.0047,
            spot_discount=0.52, zones=(_C,), sizes=("2xlarge", "8xlarge", "16xlarge"),
            gpus=(1, 4, 8), price_per_gpu=2.67),
)  # fmt: skip

_BURST_SIZES: Final = {
    # size: CPUs, GiB, pods, price as a share of the family's `large`
    "micro": (2, 1, 8, 0.125),
    "small": (2, 2, 17, 0.25),
    "medium": (2, 4, 35, 0.5),
    "large": (2, 8, 58, 1.0),
    "xlarge": (4, 16, 58, 2.0),
    "2xlarge": (8, 32, 110, 4.0),
}
_BURST_FAMILIES: Final = (("burst1", "amd64", 0.0761), ("burst1a", "arm64", 0.0619))
_SOLD_OUT: Final = 0.05
"""About so large a share of the spot offerings cannot be had."""

_GPU: Final = "nvidia.com/gpu"


def default_catalogue_text() -> str:
    """Return the catalogue in the file format."""
    entries = [_entry(family, size) for family in _FAMILIES for size in family.sizes]
    entries += [_burst_entry(*family, size) for family in _BURST_FAMILIES for size in _BURST_SIZES]
    return json.dumps(entries, indent=2)


def _entry(family: _Family, size: str) -> dict[str, object]:
    name = f"{family.name}.{size}"
    cpus = _SIZES[size]
    memory = family.memory_gib_per_cpu * cpus
    gpus = family.gpus[family.sizes.index(size)] if family.gpus else 0
    price = cpus * family.price_per_cpu + memory * family.price_per_gib
    price += gpus * family.price_per_gpu
    resources = {
        "cpu": str(cpus),
        "memory": f"{int(memory * 1024)}Mi",
        "ephemeral-storage": f"{family.disk_gib_per_cpu * cpus or 20}Gi",
        "pods": "58" if cpus <= _SIZES["large"] else "110",
    }
    if gpus:
        resources[_GPU] = str(gpus)
    zones = family.zones
    if cpus >= _SIZES["24xlarge"]:  # the largest are not to be had everywhere
        zones = tuple(zone for zone in zones if zone != _C) or zones
    return _described(name, family.arch, resources, price, family.spot_discount, zones)


def _burst_entry(family: str, arch: str, large_price: float, size: str) -> dict[str, object]:
    cpus, memory, pods, share = _BURST_SIZES[size]
    resources = {
        "cpu": str(cpus),
        "memory": f"{memory}Gi",
        "ephemeral-storage": "20Gi",
        "pods": str(pods),
    }
    return _described(f"{family}.{size}", arch, resources, large_price * share, 0.46, ZONES)


def _described(
    name: str,
    arch: str,
    resources: dict[str, str],
    price: float,
    spot_discount: float,
    zones: tuple[str, ...],
) -> dict[str, object]:
    offerings: list[dict[str, object]] = []
    for zone in zones:
        offerings.append(_offering(ON_DEMAND, zone, price, available=True))
        spread = _share(name, zone) - 0.5
        spot = price * (1 - min(0.9, max(0.1, spot_discount + 0.36 * spread)))
        offerings.append(_offering(SPOT, zone, spot, available=_share(zone, name) > _SOLD_OUT))
    return {
        "name": name,
        "architecture": arch,
        "operatingSystems": ["linux"],
        "resources": resources,
        "offerings": offerings,
    }


def _offering(capacity_type: str, zone: str, price: float, *, available: bool) -> dict[str, object]:
    labels = {CAPACITY_TYPE: capacity_type, ZONE: zone, REGION: REGION_NAME}
    return {
        "Price": round(price, 5),
        "Available": available,
        "Requirements": [
            {"key": key, "operator": "In", "values": [value]} for key, value in labels.items()
        ],
    }


def _share(*words: str) -> float:
    """Return a number between 0 and 1 that looks drawn and is always the same."""
    return zlib.crc32("/".join(words).encode()) / 2**32
