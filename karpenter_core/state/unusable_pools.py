"""Says why NodePools cannot launch nodes for pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.conditions import READY, find_condition
from karpenter_core.api.nodepool import NODE_CLASS_READY, VALIDATION_SUCCEEDED
from karpenter_core.state.provisioning_input import usable_pools

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["unready_pools", "unusable_pools"]


def unusable_pools(snapshot: Snapshot, problems: Mapping[str, str]) -> dict[str, str]:
    """Return the NodePools that cannot launch nodes now, with the reasons.

    `problems` are the errors of catalogues that could not be listed.
    """
    usable = {pool.name for pool in usable_pools(snapshot)}
    return {
        name: _why_unusable(pool, snapshot, problems.get(name, ""))
        for name, pool in sorted(snapshot.node_pools.items())
        if name not in usable
    }


def unready_pools(snapshot: Snapshot) -> dict[str, str]:
    """Return the NodePools that would launch nodes for pods and are not ready, with the reasons."""
    return {
        name: why
        for name, pool in sorted(snapshot.node_pools.items())
        if not pool.is_deleting
        and pool.spec.replicas is None
        and snapshot.manages(pool.spec.template.spec.node_class_ref)
        and (why := _why_unready(pool))
    }


def _why_unusable(pool: NodePool, snapshot: Snapshot, problem: str) -> str:
    ref = pool.spec.template.spec.node_class_ref
    if pool.is_deleting:
        return "it is being deleted"
    if pool.spec.replicas is not None:
        return "it is static (spec.replicas): its nodes do not follow pods"
    if not snapshot.manages(ref):
        return f"no loaded provider serves {ref.kind}.{ref.group}"
    return _why_unready(pool) or problem or "its NodeClass sells no instance type"


def _why_unready(pool: NodePool) -> str:
    """Return the condition that is not True; empty for a pool that is ready."""
    conditions = [
        find_condition(pool.status.conditions, name)
        for name in (VALIDATION_SUCCEEDED, NODE_CLASS_READY, READY)
    ]
    for condition in conditions:
        if condition is not None and condition.status != "True":
            said = condition.message or condition.reason
            return f"{condition.type} is {condition.status}{f': {said}' if said else ''}"
    return "it has no condition Ready yet" if conditions[-1] is None else ""
