"""Builds instance types that define every well-known label.

build_instance_type(
"m-4",
arch="amd64",
offerings=[zone_offering("north", Price(0.12, "EUR"))],
capacity={"cpu": 4000, "memory": 15 * GIB, "pods": 110},
)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import (
    ARCH,
    CAPACITY_TYPE,
    CPU,
    INSTANCE_TYPE,
    NODE_POOL,
    ON_DEMAND,
    OS,
    WELL_KNOWN,
    ZONE,
)
from karpenter_core.provider.catalogue import (
    InstanceType,
    Offering,
    Overhead,
    Requirement,
    Requirements,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.records import Resources
    from karpenter_core.provider.catalogue import Price

__all__ = ["GIB", "MIB", "build_instance_type", "usual_overhead", "zone_offering"]

MIB: Final = 2**20
GIB: Final = 2**30


def usual_overhead(cpu_milli: int) -> Overhead:
    """Return what a kubelet with usual settings keeps: a small share of the CPU, and 355 MiB."""
    return Overhead(
        kube_reserved={"cpu": 60 + cpu_milli // 50, "memory": 255 * MIB},
        eviction_threshold={"memory": 100 * MIB},
    )


def zone_offering(
    zone: str, price: Price, *, capacity_type: str = ON_DEMAND, available: bool = True
) -> Offering:
    """Return an offering of one zone and capacity type."""
    return Offering(
        requirements=Requirements.from_labels({ZONE: zone, CAPACITY_TYPE: capacity_type}),
        price=price,
        available=available,
    )


def build_instance_type(
    name: str,
    *,
    arch: str,
    offerings: Iterable[Offering],
    capacity: Resources,
    overhead: Overhead | None = None,
    os: str = "linux",
    labels: Mapping[str, str] | None = None,
    well_known: Iterable[str] = (),
) -> InstanceType:
    """Return an instance type of these offerings, sorted by zone and capacity type.

    `arch` is a name of Kubernetes (`amd64`, `arm64`). `labels` are further labels of its nodes, such
    as the region; `well_known` are the provider's own well-known labels. A well-known label without a
    value is defined as DoesNotExist (PC-021). `overhead` is `usual_overhead` by default.
    """
    sold = sorted(offerings, key=lambda each: (each.zone, each.capacity_type))
    values = {INSTANCE_TYPE: name, ARCH: arch, OS: os, **(labels or {})}
    several = {
        ZONE: sorted({offering.zone for offering in sold}),
        CAPACITY_TYPE: sorted({offering.capacity_type for offering in sold}),
    }
    absent = (WELL_KNOWN | set(well_known)) - {NODE_POOL} - values.keys() - several.keys()
    return InstanceType(
        name=name,
        requirements=Requirements.from_labels(values).add(
            *(Requirement.of(key, "In", found) for key, found in several.items()),
            *(Requirement.of(key, "DoesNotExist") for key in sorted(absent)),
        ),
        offerings=tuple(sold),
        capacity=capacity,
        overhead=overhead or usual_overhead(capacity[CPU]),
    )
