"""From a planned machine to the NodeClaim that is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.base import ObjectMeta, OwnerReference
from karpenter_core.api.labels import (
    API_VERSION,
    HOSTNAME,
    INITIALIZED,
    INSTANCE_TYPE,
    MIN_VALUES_RELAXED,
    NODE_POOL,
    NODE_POOL_HASH,
    NODE_POOL_HASH_VERSION,
    REGISTERED,
    TERMINATION_FINALIZER,
    node_class_label,
)
from karpenter_core.api.nodeclaim import NodeClaim, NodeClaimSpec, ResourceRequirements
from karpenter_core.api.quantities import format_resources
from karpenter_core.lifecycle.changes import Fact
from karpenter_core.scheduling.requirements import Requirement, Requirements

if TYPE_CHECKING:
    from karpenter_core.api.durations import Duration
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.scheduling.problem import PlannedNodeClaim

__all__ = ["build_node_claim", "created_fact"]

_SIMULATION_ONLY = frozenset({REGISTERED, INITIALIZED, HOSTNAME})


def build_node_claim(
    planned: PlannedNodeClaim,
    pool: NodePool,
    *,
    suffix: str,
    node_pool_hash: str,
    node_pool_hash_version: str,
    default_termination_grace_period: Duration | None = None,
) -> NodeClaim:
    """Return the NodeClaim to create for a planned machine: `<pool>-<suffix>`.

    The name is given, not generated, so that a repeated create finds the first one. The finalizer
    is on from birth: nothing can be launched for a claim that could vanish without a trace.
    """
    template = pool.spec.template
    ref = template.spec.node_class_ref
    annotations = {
        **template.metadata.annotations,
        NODE_POOL_HASH: node_pool_hash,
        NODE_POOL_HASH_VERSION: node_pool_hash_version,
        MIN_VALUES_RELAXED: "true" if planned.min_values_relaxed else "false",
    }
    return NodeClaim(
        api_version=API_VERSION,
        kind=NodeClaim.resource.kind,
        metadata=ObjectMeta(
            name=f"{pool.name}-{suffix}",
            labels={
                **template.metadata.labels,
                **planned.labels,
                NODE_POOL: pool.name,
                node_class_label(ref.group, ref.kind): ref.name,
            },
            annotations=annotations,
            finalizers=(TERMINATION_FINALIZER,),
            owner_references=(
                OwnerReference(
                    api_version=API_VERSION,
                    kind=pool.resource.kind,
                    name=pool.name,
                    uid=pool.uid,
                    block_owner_deletion=True,
                ),
            ),
        ),
        spec=NodeClaimSpec(
            taints=template.spec.taints,
            startup_taints=template.spec.startup_taints,
            requirements=_requirements(planned).to_specs(),
            resources=ResourceRequirements(requests=format_resources(planned.requests)),
            node_class_ref=ref,
            termination_grace_period=template.spec.termination_grace_period
            or default_termination_grace_period,
            expire_after=template.spec.expire_after,
        ),
    )


def created_fact(claim: NodeClaim, reason: str) -> Fact:
    """Count a claim that was created."""
    return Fact(
        metric="nodeclaims_created",
        labels={
            "reason": reason,
            "nodepool": claim.metadata.labels.get(NODE_POOL, ""),
            "min_values_relaxed": claim.metadata.annotations.get(MIN_VALUES_RELAXED, "false"),
        },
    )


def _requirements(planned: PlannedNodeClaim) -> Requirements:
    """Return what the claim requires, with exactly the types that were planned for."""
    requirements = Requirements(planned.requirements).without(_SIMULATION_ONLY)
    if not planned.instance_types:
        return requirements
    known = requirements.get(INSTANCE_TYPE)
    return requirements.replace(
        Requirement(
            key=INSTANCE_TYPE,
            complement=False,
            values=frozenset(planned.instance_types),
            min_values=known.min_values,
        )
    )
