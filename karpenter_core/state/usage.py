"""What a pool's machines amount to: for its limits, and for its status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.labels import CPU, EPHEMERAL_STORAGE, INSTANCE_TYPE, MEMORY, NODES, PODS
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.scheduling.resources import element_max, merge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.nodeclaim import NodeClaim, RequirementSpec
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.scheduling.problem import Catalogue
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = [
    "exceeded_limits",
    "is_launched",
    "listed_types",
    "pool_status_resources",
    "pool_usage",
]

_ALWAYS_SHOWN = (CPU, MEMORY, PODS, EPHEMERAL_STORAGE, NODES)


def is_launched(machine: StateNode) -> bool:
    """Tell whether there is an instance: its amounts are known."""
    return bool(machine.provider_id)


def listed_types(claim: NodeClaim, catalogue: Catalogue | None) -> tuple[InstanceType, ...]:
    """Return the instance types that a claim without an instance may become."""
    if catalogue is None:
        return ()
    requirements = Requirements.from_specs(claim.spec.requirements)
    wanted = requirements.get(INSTANCE_TYPE)
    if not wanted.complement:
        # The claims we make list their types, and that list is final.
        return tuple(item for item in catalogue.instance_types if item.name in wanted.values)
    return tuple(
        item for item in catalogue.instance_types if item.requirements.intersects(requirements)
    )


def pool_usage(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    """Return what each pool holds against its limits; machines on their way out do not count.

    A Node belongs to the pool of its label, with a claim or without. A claim that is not launched
    yet may become the largest of its types in every respect.
    """
    by_pool: dict[str, list[Mapping[str, int]]] = {}
    largest: dict[tuple[str, tuple[RequirementSpec, ...]], dict[str, int]] = {}
    for machine in snapshot.counted_nodes:
        claim = machine.claim
        if not machine.pool or machine.marked_for_deletion:
            continue
        parts = by_pool.setdefault(machine.pool, [])
        parts.append(machine.capacity)
        if claim is not None and not is_launched(machine):
            key = (machine.pool, claim.spec.requirements)
            if key not in largest:
                types = listed_types(claim, snapshot.catalogues.get(machine.pool))
                largest[key] = element_max(item.capacity for item in types)
            parts.append(largest[key])
    return {pool: merge(parts) for pool, parts in by_pool.items()}


def pool_status_resources(snapshot: Snapshot, pool: str) -> dict[str, int]:
    """Return `status.resources` of a pool: what is launched, with zeros for the usual names."""
    held = merge(
        machine.capacity
        for machine in snapshot.counted_nodes
        if machine.pool == pool
        and machine.managed
        and is_launched(machine)
        and not machine.marked_for_deletion
    )
    return {**dict.fromkeys(_ALWAYS_SHOWN, 0), **held}


def exceeded_limits(limits: Mapping[str, int], usage: Mapping[str, int]) -> tuple[str, ...]:
    """Return the resources of which a pool already holds more than its limits allow."""
    return tuple(sorted(name for name, limit in limits.items() if usage.get(name, 0) > limit))
