"""Computes a NodePool's usage: `status.resources` and `status.nodes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.labels import NODES
from karpenter_core.api.quantities import format_resources

if TYPE_CHECKING:
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.state.node_pool_usage import PoolStatusSums
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["with_usage"]


def with_usage(pool: NodePool, snapshot: Snapshot, sums: PoolStatusSums) -> NodePool:
    """Return the pool with the resources of its nodes; the same object when nothing changed.

    A snapshot that is not synced lacks nodes, so it changes nothing. `sums` is kept from call to call.
    """
    if not snapshot.synced:
        return pool
    held = sums.resources(snapshot, pool.name)
    resources = format_resources(held)
    if resources == pool.status.resources and held[NODES] == pool.status.nodes:
        return pool
    status = pool.status.model_copy(update={"resources": resources, "nodes": held[NODES]})
    return pool.model_copy(update={"status": status})
