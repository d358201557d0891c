"""Tells which Nodes are those of a NodeClaim.

A kubelet chooses the provider ID of its Node, so a compromised one can show that of another node's
claim. Facts that only the API server and the controller write decide: the name of the Node that
registered, and the times of creation, which one clock sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.conditions import is_true
from karpenter_core.api.nodeclaim import REGISTERED

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView

__all__ = ["is_node_of", "is_older_than_claim"]


def is_node_of(claim: NodeClaim, node: NodeView) -> bool:
    """Tell whether a Node that shows the claim's provider ID can be the claim's.

    Once a Node has registered, no other Node is.
    """
    if claim.status.node_name:
        return node.name == claim.status.node_name
    return is_true(claim.status.conditions, REGISTERED) or not is_older_than_claim(claim, node)


def is_older_than_claim(claim: NodeClaim, node: NodeView) -> bool:
    """Tell whether the Node was created before the claim, whose instance did not exist then."""
    created = claim.metadata.creation_timestamp
    return created is not None and node.created is not None and node.created < created
