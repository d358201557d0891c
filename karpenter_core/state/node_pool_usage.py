"""Sums up what the nodes of a NodePool hold: for limits and for its status."""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING, final

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
    "PoolStatusSums",
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
        if _is_in_status(state_node, pool)
    )
    return {**dict.fromkeys(_ALWAYS_SHOWN, 0), **held}


@final
class PoolStatusSums:
    """The same sums as `pool_status_resources`, kept while no node counts differently.

    Nodes change many times a second in a large cluster, since pods come and go, and hardly any of
    these changes is one of amounts.
    """

    __slots__ = ("_nodes", "_sums")

    def __init__(self) -> None:
        self._nodes: tuple[StateNode, ...] = ()
        self._sums: dict[str, dict[str, int]] = {}

    def resources(self, snapshot: Snapshot, pool: str) -> dict[str, int]:
        """Return `status.resources` of a pool."""
        nodes = snapshot.counted_nodes
        if not _count_alike(self._nodes, nodes):
            self._sums.clear()
        self._nodes = nodes
        if pool not in self._sums:
            self._sums[pool] = pool_status_resources(snapshot, pool)
        return self._sums[pool].copy()


def _is_in_status(state_node: StateNode, pool: str) -> bool:
    return (
        state_node.pool == pool
        and state_node.managed
        and is_launched(state_node)
        and not state_node.marked_for_deletion
    )


def _count_alike(before: tuple[StateNode, ...], after: tuple[StateNode, ...]) -> bool:
    """Tell whether every node counts as the node that was in its place."""
    if len(before) != len(after):
        return False
    if all(map(is_, before, after)):
        return True
    return all(
        old is new
        or (
            old.pool == new.pool
            and old.capacity == new.capacity
            and _is_in_status(old, old.pool) == _is_in_status(new, new.pool)
        )
        for old, new in zip(before, after, strict=True)
    )


def exceeded_limits(limits: Mapping[str, int], usage: Mapping[str, int]) -> tuple[str, ...]:
    """Return the resources of which a pool already holds more than its limits allow."""
    return tuple(sorted(name for name, limit in limits.items() if usage.get(name, 0) > limit))
