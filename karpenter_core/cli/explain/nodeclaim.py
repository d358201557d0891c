"""Explains a NodeClaim: reason of its launch, next step, removal blockers.

The facts are those of the state; for a claim that could be disrupted the methods themselves are asked,
as in `karpenter explain node`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import TRUE, find_condition
from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    CREATED_FOR,
    INSTANCE_TYPE,
    NODE_POOL,
    ZONE,
)
from karpenter_core.api.nodeclaim import (
    INITIALIZED,
    LAUNCHED,
    REGISTERED,
)
from karpenter_core.cli.document import instant_text
from karpenter_core.cli.explain.leaving import leaving_cause
from karpenter_core.cli.explain.node import node_explanation
from karpenter_core.cli.explain.tables import NODE_CLAIM_STATES, NODE_STATES
from karpenter_core.cli.missing_objects import missing_object
from karpenter_core.controllers.provisioning.new_claims import CAUSE, DECISION
from karpenter_core.disruption.pricing import NodePrices
from karpenter_core.state.static_pools import is_static
from karpenter_core.state.termination_deadline import deadline_of

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.cli.cluster_input import ClusterInput
    from karpenter_core.cli.cluster_source import CommandInput
    from karpenter_core.state.snapshot import StateNode

__all__ = ["find_node_claim", "node_claim_explanation"]

_STAGES: Final = ((LAUNCHED, "launching"), (REGISTERED, "registering"), (INITIALIZED, "starting"))
_PURPOSES: Final = {"provisioned": "for pods that waited"}
"""Texts for the values of `karpenter.sh/created-for` that are no disruption reasons."""


def find_node_claim(cluster: ClusterInput, name: str) -> NodeClaim:
    """Return the NodeClaim of this name, or of the Node of this name.

    Raises:
        BadInputError: there is none; suggests similar names.
    """
    claims = cluster.snapshot.node_claims
    if name in claims:
        return claims[name]
    state_node = cluster.snapshot.state_nodes_by_node.get(name)
    if state_node is not None and state_node.claim is not None:
        return state_node.claim
    raise missing_object("NodeClaim", name, claims)


def node_claim_explanation(command_input: CommandInput, claim: NodeClaim) -> JsonObject:
    """Return the JSON of `karpenter explain nodeclaim` for a claim."""
    cluster = command_input.cluster
    state_node = cluster.snapshot.state_nodes_by_claim.get(claim.name)
    state = _state(claim)
    waits_for = _waits_for(cluster, claim, state_node, state)
    removal = (
        node_explanation(command_input, state_node)
        if state == "ready" and state_node is not None
        else None
    )
    answer = f"{claim.name}: {NODE_CLAIM_STATES[state]}"
    if removal is not None:
        answer += f", and its node {NODE_STATES[str(removal['state'])]}: {removal['cause']}"
    elif waits_for:
        answer += f": {waits_for}"
    labels = claim.metadata.labels if state_node is None else state_node.labels
    price = None if state_node is None else _price(cluster, state_node)
    return {
        "nodeClaim": claim.name,
        "nodePool": claim.metadata.labels.get(NODE_POOL, ""),
        "node": claim.status.node_name,
        "state": state,
        "answer": answer,
        "createdFor": _purpose(claim, cluster),
        "decision": claim.metadata.annotations.get(DECISION, ""),
        "decisionCause": claim.metadata.annotations.get(CAUSE, ""),
        "created": _instant(claim.metadata.creation_timestamp),
        "instanceType": labels.get(INSTANCE_TYPE, ""),
        "zone": labels.get(ZONE, ""),
        "capacityType": labels.get(CAPACITY_TYPE, ""),
        "pricePerHour": price,
        "pods": 0 if state_node is None else len(state_node.pods),
        "waitsFor": waits_for,
        "deadline": _instant(deadline_of(claim)),
        "conditions": [
            {
                "type": each.type,
                "status": each.status,
                "reason": each.reason,
                "message": each.message,
                "since": _instant(each.last_transition_time),
            }
            for each in claim.status.conditions
        ],
        "removal": removal,
    }


def _state(claim: NodeClaim) -> str:
    if claim.is_deleting:
        return "leaving"
    for condition, state in _STAGES:
        found = find_condition(claim.status.conditions, condition)
        if found is None or found.status != TRUE:
            return state
    return "ready"


def _purpose(claim: NodeClaim, cluster: ClusterInput) -> str:
    """Return what the claim was made for; empty if it does not say."""
    pool = cluster.snapshot.node_pools.get(claim.metadata.labels.get(NODE_POOL, ""))
    if pool is not None and is_static(pool):
        return "as a replica of a static NodePool"
    value = claim.metadata.annotations.get(CREATED_FOR, "")
    return _PURPOSES.get(value, f"in the place of others ({value})" if value else "")


def _price(cluster: ClusterInput, state_node: StateNode) -> float | None:
    return NodePrices(cluster.snapshot, cluster.options).hourly_cost_of(state_node)


# -- what it waits for -----------------------------------------------------------------------------


def _waits_for(
    cluster: ClusterInput, claim: NodeClaim, state_node: StateNode | None, state: str
) -> str:
    if state == "leaving":
        return leaving_cause(cluster, claim, state_node)
    for condition, name in _STAGES:
        if name == state:
            return _said(claim, condition)
    return ""


def _said(claim: NodeClaim, condition: str) -> str:
    """Return what a condition says of the reason why it is not True."""
    found = find_condition(claim.status.conditions, condition)
    if found is None:
        return "the controller has not reconciled it yet"
    return found.message or (found.reason if found.reason != condition else "")


def _instant(at: datetime | None) -> str | None:
    return None if at is None else instant_text(at)
