"""Sums up what the nodes of a NodePool hold: for limits and for its status."""

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


def is_launched(state_node: StateNode) -> bool:
    """Tell whether a state node has an instance, whose amounts are known."""
    return bool(state_node.provider_id)


def listed_types(claim: NodeClaim, catalogue: Catalogue | None) -> tuple[InstanceType, ...]:
    """Return the instance types that a claim without instance may become."""
    if catalogue is None:
        return ()
    requirements = Requirements.from_specs(claim.spec.requirements)
    type_requirement = requirements.get(INSTANCE_TYPE)
    if not type_requirement.complement:
        # Claims created here list their types, and that list is final.
        return tuple(
            item for item in catalogue.instance_types if item.name in type_requirement.values
        )
    return tuple(
        item for item in catalogue.instance_types if item.requirements.intersects(requirements)
    )


def pool_usage(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    """Return what each pool holds against its limits, without nodes marked for deletion.

    A Node belongs to the pool of its label, with or without a claim. A claim that is not launched
    yet counts with the largest amount of each resource over its types.
    """
    by_pool: dict[str, list[Mapping[str, int]]] = {}
    largest: dict[tuple[str, tuple[RequirementSpec, ...]], dict[str, int]] = {}
    for state_node in snapshot.counted_nodes:
        claim = state_node.claim
        if not state_node.pool or state_node.marked_for_deletion:
            continue
        parts = by_pool.setdefault(state_node.pool, [])
        parts.append(state_node.capacity)
        if claim is not None and not is_launched(state_node):
            key = (state_node.pool, claim.spec.requirements)
            if key not in largest:
                types = listed_types(claim, snapshot.catalogues.get(state_node.pool))
                largest[key] = element_max(item.capacity for item in types)
            parts.append(largest[key])
    return {pool: merge(parts) for pool, parts in by_pool.items()}


def pool_status_resources(snapshot: Snapshot, pool: str) -> dict[str, int]:
    """Return `status.resources` of a pool: launched capacity, with zeros for the usual names."""
    held = merge(
        state_node.capacity
        for state_node in snapshot.counted_nodes
        if state_node.pool == pool
        and state_node.managed
        and is_launched(state_node)
        and not state_node.marked_for_deletion
    )
    return {**dict.fromkeys(_ALWAYS_SHOWN, 0), **held}


def exceeded_limits(limits: Mapping[str, int], usage: Mapping[str, int]) -> tuple[str, ...]:
    """Return the resources of which a pool already holds more than its limits allow."""
    return tuple(sorted(name for name, limit in limits.items() if usage.get(name, 0) > limit))
