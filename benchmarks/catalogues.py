"""Instance types to plan with: the reference benchmark's, realistic ones, and a price list's.

`fake400` is the catalogue of the reference's own benchmark: 400 sizes at exactly linear prices.
`real` has the structure of a large cloud's: 800 types (4 generations, 25 families, 8 sizes, two
architectures), on demand and spot in three zones, prices that differ by family, generation, size
and, for spot, zone. Its ratios of price, memory and pods per CPU follow published on-demand prices
of common families; its unevenness comes from hashes, so it is the same everywhere. `aws` reads a
price list (see `price_list_types`).
"""

from __future__ import annotations

import csv
import re
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import (
    ARCH,
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    ON_DEMAND,
    OS,
    REGION,
    SPOT,
    WINDOWS_BUILD,
    ZONE,
)
from karpenter_core.api.prices import Price
from karpenter_core.scheduling.instance_types import InstanceType, Offering, Overhead
from karpenter_core.scheduling.requirements import Requirement, Requirements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

__all__ = ["WELL_KNOWN", "ZONES", "fake400", "price_list_types", "real"]

MIB: Final = 2**20
GIB: Final = 2**30
ZONES: Final = ("test-zone-1", "test-zone-2", "test-zone-3")

SIZE_CLASS, SPECIAL, INTEGER = "size", "special", "integer"
FAMILY, GENERATION, SIZE, CPUS = (
    "benchmark.example/instance-family",
    "benchmark.example/instance-generation",
    "benchmark.example/instance-size",
    "benchmark.example/instance-cpu",
)
WELL_KNOWN: Final = {
    "fake400": frozenset({SIZE_CLASS, SPECIAL, INTEGER}),
    "real": frozenset({FAMILY, GENERATION, SIZE, CPUS}),
    "aws": frozenset({FAMILY, GENERATION, SIZE, CPUS}),
}
"""Labels that the types of a catalogue define beyond the core's."""


@cache
def fake400() -> tuple[InstanceType, ...]:
    """Make the 400 types of the reference benchmark: n CPUs, 2n GiB, 10n pods."""
    return tuple(_fake(f"fake-it-{number}", number + 1) for number in range(400))


def _fake(name: str, cpus: int) -> InstanceType:
    memory = 2 * cpus * GIB
    large = cpus > 4 and memory > 8 * GIB
    price = Price(0.1 * cpus + 0.1 * memory / 1e9)
    sold = [(ZONES[0], SPOT), (ZONES[1], SPOT), *((zone, ON_DEMAND) for zone in ZONES)]
    return InstanceType(
        name=name,
        requirements=_requirements(
            name,
            arch="amd64",
            systems=("darwin", "linux", "windows"),
            sold=sold,
            labels={SIZE_CLASS: "large" if large else "small", INTEGER: str(cpus)},
        ).add(Requirement.of(SPECIAL, "In", ("optional",) if large else ())),
        offerings=tuple(_offering(zone, kind, price) for zone, kind in sold),
        capacity={"cpu": 1000 * cpus, "memory": memory, "pods": 10 * cpus},
        overhead=Overhead(kube_reserved={"cpu": 100, "memory": 10 * MIB}),
    )


# -- a realistic catalogue -------------------------------------------------------------------------

LINES: Final = {
    "c": (2, 0.0425),
    "m": (4, 0.048),
    "r": (8, 0.063),
    "x": (16, 0.104),
    "i": (8, 0.086),
}
"""Product line: GiB and dollars for one CPU."""

MAKES: Final = {
    "": ("amd64", 1.0),
    "a": ("amd64", 0.90),
    "n": ("amd64", 1.25),
    "g": ("arm64", 0.80),
    "gd": ("arm64", 0.93),
}
"""Make of a family: architecture, and its price against the plain one."""

GENERATIONS: Final = {5: 1.0, 6: 1.0, 7: 1.05, 8: 1.09}
SIZES: Final = {
    "large": (2, 29),
    "xlarge": (4, 58),
    "2xlarge": (8, 58),
    "4xlarge": (16, 234),
    "8xlarge": (32, 234),
    "12xlarge": (48, 234),
    "16xlarge": (64, 737),
    "24xlarge": (96, 737),
}
"""Size: CPUs and pods."""

SOLD_SHARE: Final = 0.92
"""The share of the possible offerings that exist."""


@cache
def real() -> tuple[InstanceType, ...]:
    """Make the 800 types of the realistic catalogue."""
    return tuple(
        _real(line, make, generation, size)
        for line in LINES
        for make in MAKES
        for generation in GENERATIONS
        for size in SIZES
    )


def _real(line: str, make: str, generation: int, size: str) -> InstanceType:
    family = f"{line}{generation}{make}"
    name = f"{family}.{size}"
    gib_per_cpu, dollars_per_cpu = LINES[line]
    arch, factor = MAKES[make]
    cpus, pods = SIZES[size]
    uneven = (0.96 + 0.08 * _chance("family", family)) * (0.98 + 0.04 * _chance("size", name))
    on_demand = round(cpus * dollars_per_cpu * factor * GENERATIONS[generation] * uneven, 4)
    prices = {(zone, ON_DEMAND): on_demand for zone in ZONES}
    for zone in ZONES:
        off = 0.45 + 0.20 * _chance("spot", family) + 0.13 * _chance("spot", name, zone)
        prices[zone, SPOT] = round(on_demand * (1 - off), 4)
    sold = {
        where: price
        for where, price in prices.items()
        if _chance("sold", name, *where) < SOLD_SHARE or where == (ZONES[0], ON_DEMAND)
    }
    return _cloud_type(
        name, arch=arch, cpus=cpus, memory_mib=cpus * gib_per_cpu * 1024, pods=pods, prices=sold
    )


def _chance(*words: str) -> float:
    """Return a number in [0, 1) that looks random and is the same everywhere."""
    digest = blake2b("/".join(words).encode(), digest_size=6).digest()
    return int.from_bytes(digest) / 2**48


# -- a price list ----------------------------------------------------------------------------------

COMMON: Final = re.compile(r"[cmr](5a?|6[ai]|7[ai])\.(large|\d*xlarge)")
"""The families meant for anything; no burstable, accelerated, storage or bare-metal ones."""

LARGEST_CPUS: Final = 96


def price_list_types(file: Path) -> tuple[InstanceType, ...]:
    """Read the common x86 types of up to 96 CPUs from a list of on-demand prices.

    Columns `instance_type, vcpu, memory_mib, arch, eni_max_pods, usd_per_hour`. Sold on demand, in
    three zones for the same price.
    """
    with file.open() as lines:
        rows = [row for row in csv.DictReader(lines) if COMMON.fullmatch(row["instance_type"])]
    return tuple(
        _cloud_type(
            row["instance_type"],
            arch=row["arch"],
            cpus=int(row["vcpu"]),
            memory_mib=int(row["memory_mib"]),
            pods=int(row["eni_max_pods"]),
            prices={(zone, ON_DEMAND): float(row["usd_per_hour"]) for zone in ZONES},
        )
        for row in rows
        if int(row["vcpu"]) <= LARGEST_CPUS
    )


# -- what clouds have in common --------------------------------------------------------------------


def _cloud_type(
    name: str,
    *,
    arch: str,
    cpus: int,
    memory_mib: int,
    pods: int,
    prices: Mapping[tuple[str, str], float],
) -> InstanceType:
    """Make a type whose hypervisor and kubelet keep what those of EKS nodes keep."""
    family, _, size = name.partition(".")
    return InstanceType(
        name=name,
        requirements=_requirements(
            name,
            arch=arch,
            systems=("linux",),
            sold=prices,
            labels={
                FAMILY: family,
                GENERATION: "".join(filter(str.isdigit, family)),
                SIZE: size,
                CPUS: str(cpus),
            },
        ).add(*(Requirement.of(key, "DoesNotExist") for key in (REGION, WINDOWS_BUILD))),
        offerings=tuple(
            _offering(zone, kind, Price(price)) for (zone, kind), price in prices.items()
        ),
        capacity={"cpu": 1000 * cpus, "memory": memory_mib * 925 // 1000 * MIB, "pods": pods},
        overhead=Overhead(
            kube_reserved={"cpu": _reserved_cpu_milli(cpus), "memory": (255 + 11 * pods) * MIB},
            eviction_threshold={"memory": 100 * MIB},
        ),
    )


def _reserved_cpu_milli(cpus: int) -> int:
    """Keep 6 % of the first CPU, 1 % of the second, 0.5 % of two more, 0.25 % of the others."""
    shares = (60, 10, 5, 5)
    return round(sum(shares[:cpus]) + 2.5 * max(cpus - len(shares), 0))


def _requirements(
    name: str,
    *,
    arch: str,
    systems: tuple[str, ...],
    sold: Iterable[tuple[str, str]],
    labels: Mapping[str, str],
) -> Requirements:
    sold = tuple(sold)
    return Requirements(
        (
            Requirement.of(INSTANCE_TYPE, "In", (name,)),
            Requirement.of(ARCH, "In", (arch,)),
            Requirement.of(OS, "In", systems),
            Requirement.of(ZONE, "In", {zone for zone, _ in sold}),
            Requirement.of(CAPACITY_TYPE, "In", {kind for _, kind in sold}),
            *Requirements.from_labels(labels).values(),
        )
    )


def _offering(zone: str, kind: str, price: Price) -> Offering:
    return Offering(
        requirements=Requirements.from_labels({ZONE: zone, CAPACITY_TYPE: kind}), price=price
    )
