"""Builds instance types from the sizes of tinycloud."""

from __future__ import annotations

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
from karpenter_core.provider.catalogue import (
    InstanceType,
    Offering,
    Overhead,
    Price,
    Requirement,
    Requirements,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_provider_tinycloud.client import Json

__all__ = ["instance_types"]

PODS_PER_NODE: Final = 110
MIB: Final = 2**20
EVICTION_BYTES: Final = 100 * MIB  # the kubelet's default
KERNEL_SHARE: Final = 0.04
"""Share of a VM's memory that kernel and firmware reserve; the kubelet does not report it."""


def instance_types(sizes: Sequence[Json]) -> tuple[InstanceType, ...]:
    """Return every size as an instance type, in the order of names."""
    return tuple(_instance_type(size) for size in sorted(sizes, key=lambda size: size["name"]))


def _instance_type(size: Json) -> InstanceType:
    offerings = tuple(
        Offering(
            requirements=Requirements.from_labels({ZONE: zone, CAPACITY_TYPE: capacity_type}),
            price=Price(size[price]),
            available=zone not in size["sold_out_in"],
        )
        for zone in sorted(size["zones"])
        for capacity_type, price in ((ON_DEMAND, "price"), (SPOT, "spot_price"))
    )
    labels = {INSTANCE_TYPE: size["name"], ARCH: size["architecture"], OS: "linux"}
    return InstanceType(
        name=size["name"],
        requirements=Requirements.from_labels(labels).add(
            Requirement.of(ZONE, "In", sorted(size["zones"])),
            Requirement.of(CAPACITY_TYPE, "In", [ON_DEMAND, SPOT]),
            Requirement.of(REGION, "DoesNotExist"),
            Requirement.of(WINDOWS_BUILD, "DoesNotExist"),
        ),
        offerings=offerings,
        capacity={
            "cpu": size["cpus"] * 1000,
            "memory": int(size["memory_mib"] * MIB * (1 - KERNEL_SHARE)),
            "pods": PODS_PER_NODE,
        },
        overhead=Overhead(
            kube_reserved={"cpu": 60 + 10 * size["cpus"], "memory": 255 * MIB},
            eviction_threshold={"memory": EVICTION_BYTES},
        ),
    )
