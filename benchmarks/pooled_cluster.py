"""A cluster like many: three NodePools with weights and limits, reservations, nodes 60 % full.

`reserved` (weight 100) buys instances of three reservations, up to two thirds of their CPUs;
`general` (weight 50) amd64 up to what it has and a quarter of what the pods ask for; `flexible`
(weight 10) any architecture. Nodes of the last two run other pods of the same workloads and one pod
of each DaemonSet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec

from benchmarks import mixes
from benchmarks.running import running_nodes
from karpenter_core.api.labels import ARCH, CAPACITY_TYPE, ON_DEMAND, RESERVED, SPOT, ZONE
from karpenter_core.api.prices import Price
from karpenter_core.scheduling.instance_types import Offering
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.testing.builders import node_pool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.scheduling.problem import ExistingNode

__all__ = ["RESERVATION", "RESERVATIONS", "PooledCluster", "pooled_cluster", "with_reservations"]

RESERVATION: Final = "benchmark.example/reservation-id"
RESERVATIONS: Final = {
    ("m7.4xlarge", "test-zone-1"): 6,
    ("c7.2xlarge", "test-zone-2"): 12,
    ("r6.2xlarge", "test-zone-3"): 12,
}
"""Instances by type and zone."""
RESERVED_SHARE: Final = 1e-7
"""Price of a reserved instance, which is paid for already, as a share of the price on demand."""

RESERVED_POOL, GENERAL_POOL, FLEXIBLE_POOL = "reserved", "general", "flexible"
FAR_LIMITS: Final = {"cpu": "100000", "memory": "1000000Gi"}
GENERAL_SHARE: Final = 0.25
FULL_SHARE: Final = 0.6
PODS_PER_NODE: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PooledCluster:
    """NodePools, the nodes that run, and what the pools have of their limits."""

    pools: tuple[NodePool, ...]
    nodes: tuple[ExistingNode, ...]
    usage: Mapping[str, Mapping[str, int]]


def pooled_cluster(
    instance_types: Sequence[InstanceType],
    waiting: Sequence[PodView],
    daemons: Sequence[PodView],
) -> PooledCluster:
    """Make the cluster that `waiting` pods come to; other pods of their templates run in it."""
    nodes = tuple(
        node
        for pool, arch in ((GENERAL_POOL, "amd64"), (FLEXIBLE_POOL, "arm64"))
        for node in running_nodes(
            [it for it in instance_types if it.requirements.single_value(ARCH) == arch],
            [_running(pod, pool) for pod in waiting],
            count=len(waiting) // PODS_PER_NODE // 2,
            pool=pool,
            daemons=daemons,
            full_share=FULL_SHARE,
            names=pool,
        )
    )
    usage: dict[str, dict[str, int]] = {}
    for node in nodes:
        used = usage.setdefault(node.pool, {})
        for name, amount in {**node.capacity, "nodes": 1}.items():
            used[name] = used.get(name, 0) + amount
    asked = sum(pod.shape.requests.get("cpu", 0) for pod in waiting)
    general = usage.get(GENERAL_POOL, {}).get("cpu", 0) + round(GENERAL_SHARE * asked)
    kinds = {it.name: it for it in instance_types}
    reserved = sum(kinds[name].capacity["cpu"] * n for (name, _), n in RESERVATIONS.items())
    bought = (CAPACITY_TYPE, "In", ON_DEMAND, SPOT)
    return PooledCluster(
        pools=(
            node_pool(
                RESERVED_POOL,
                weight=100,
                requirements=[(CAPACITY_TYPE, "In", RESERVED)],
                labels=mixes.COMMON_LABELS,
                limits={"cpu": f"{reserved * 2 // 3}m"},
            ),
            node_pool(
                GENERAL_POOL,
                weight=50,
                requirements=[bought, (ARCH, "In", "amd64")],
                labels=mixes.COMMON_LABELS,
                limits={"cpu": f"{general}m"},
            ),
            node_pool(
                FLEXIBLE_POOL,
                weight=10,
                requirements=[bought],
                labels=mixes.COMMON_LABELS,
                limits=FAR_LIMITS,
            ),
        ),
        nodes=nodes,
        usage=usage,
    )


def _running(pod: PodView, pool: str) -> PodView:
    return msgspec.structs.replace(pod, name=f"{pool}-{pod.name}", uid=f"{pool}-{pod.uid}")


def with_reservations(instance_types: Sequence[InstanceType]) -> tuple[InstanceType, ...]:
    """Add the reserved offerings, and to all types and offerings the label of reservations."""
    return tuple(_with_reservations(it) for it in instance_types)


def _with_reservations(instance_type: InstanceType) -> InstanceType:
    absent = Requirement.of(RESERVATION, "DoesNotExist")
    offerings = [
        replace(o, requirements=o.requirements.add(absent)) for o in instance_type.offerings
    ]
    base = min(o.price.amount for o in offerings if o.capacity_type == ON_DEMAND)
    held: list[str] = []
    for (name, zone), count in RESERVATIONS.items():
        if name == instance_type.name:
            held.append(f"reservation-{name}")
            labels = {ZONE: zone, CAPACITY_TYPE: RESERVED, RESERVATION: held[-1]}
            offerings.append(
                Offering(
                    requirements=Requirements.from_labels(labels),
                    price=Price(base * RESERVED_SHARE),
                    reservation_capacity=count,
                )
            )
    kept = [r for r in instance_type.requirements.values() if r.key not in {CAPACITY_TYPE, ZONE}]
    return replace(
        instance_type,
        requirements=Requirements(
            (
                *kept,
                Requirement.of(RESERVATION, "In" if held else "DoesNotExist", tuple(held)),
                Requirement.of(CAPACITY_TYPE, "In", {o.capacity_type for o in offerings}),
                Requirement.of(ZONE, "In", {o.zone for o in offerings}),
            )
        ),
        offerings=tuple(offerings),
    )
