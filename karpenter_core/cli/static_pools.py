"""Plans nodes of static NodePools, as the controllers of static pools do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.cli.document import offering
from karpenter_core.disruption.static_scale_down import scale_down_order
from karpenter_core.lifecycle.nodepool.static_capacity import replicas_problem
from karpenter_core.state.static_claims import plan_static_claim
from karpenter_core.state.static_pools import (
    free_nodes,
    is_managed_static,
    missing_replicas,
    static_pool_claims,
    surplus_replicas,
)

if TYPE_CHECKING:
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.cli.cluster_input import ClusterInput

__all__ = ["static_pool_document", "static_pools_document"]


def static_pools_document(
    cluster: ClusterInput, *, static_capacity: bool
) -> list[dict[str, object]]:
    """Return what is created and deleted for the replicas of each static pool, by name.

    `static_capacity` is the feature gate; without it nothing is.
    """
    return [
        static_pool_document(cluster, pool, static_capacity=static_capacity)
        for _, pool in sorted(cluster.snapshot.node_pools.items())
        if is_managed_static(pool, cluster.snapshot)
    ]


def static_pool_document(
    cluster: ClusterInput, pool: NodePool, *, static_capacity: bool
) -> dict[str, object]:
    """Return what is created and deleted for the replicas of one static pool."""
    snapshot, settings = cluster.snapshot, cluster.problem_settings
    claims = static_pool_claims(snapshot, pool.name)
    problem = replicas_problem(
        snapshot,
        pool,
        static_capacity=static_capacity,
        aliases=settings.aliases,
        well_known=settings.well_known,
        solve=cluster.options,
    )
    planned = plan_static_claim(
        snapshot,
        pool,
        aliases=settings.aliases,
        well_known=settings.well_known,
        solve=cluster.options,
    )
    create, free = missing_replicas(pool, claims), free_nodes(pool, claims)
    if free is not None:
        create = min(create, free)
    surplus = surplus_replicas(pool, claims)
    if not static_capacity or planned is None:
        create = 0
    if not static_capacity:
        surplus = 0
    leaving = scale_down_order(snapshot, claims.active, now=cluster.now)[:surplus]
    return {
        "nodePool": pool.name,
        "replicas": pool.spec.replicas,
        "nodeClaims": len(claims.active) + len(claims.pending),
        "deleting": len(claims.deleting),
        "create": create,
        "delete": [claim.name for claim in leaving],
        "cheapest": None if planned is None else offering(planned.cheapest),
        "problem": None if problem is None else problem.message,
    }
