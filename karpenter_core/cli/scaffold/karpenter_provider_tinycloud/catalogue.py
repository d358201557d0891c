"""Builds instance types from the sizes of tinycloud."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.provider.catalogue import InstanceType, Price
from karpenter_core.provider.kit.instance_types import MIB, build_instance_type, zone_offering

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_provider_tinycloud.client import Json

__all__ = ["instance_types"]

PODS_PER_NODE: Final = 110
KERNEL_SHARE: Final = 0.04
"""Share of a VM's memory that kernel and firmware reserve; the kubelet does not report it."""


def instance_types(sizes: Sequence[Json]) -> tuple[InstanceType, ...]:
    """Return every size as an instance type, in the order of names."""
    return tuple(_instance_type(size) for size in sorted(sizes, key=lambda size: size["name"]))


def _instance_type(size: Json) -> InstanceType:
    return build_instance_type(
        size["name"],
        arch=size["architecture"],
        offerings=[
            zone_offering(
                zone,
                Price(size[price]),
                capacity_type=capacity_type,
                available=zone not in size["sold_out_in"],
            )
            for zone in size["zones"]
            for capacity_type, price in ((ON_DEMAND, "price"), (SPOT, "spot_price"))
        ],
        capacity={
            "cpu": size["cpus"] * 1000,
            "memory": int(size["memory_mib"] * MIB * (1 - KERNEL_SHARE)),
            "pods": PODS_PER_NODE,
        },
    )
