"""Refuses Nodes that show a claim's provider ID and cannot be its own.

A kubelet chooses the provider ID of its Node. Without a refusal, the first Node that shows the id of a
launched claim would get the claim's labels, and pods that belong on another node.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import is_unknown
from karpenter_core.api.nodeclaim import REGISTERED
from karpenter_core.api.notices import Notice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["REFUSAL_RETRY", "RefusedNode", "refused_nodes", "refused_notices"]

REFUSAL_RETRY: Final = timedelta(seconds=10)
"""The time after which refused Nodes are evaluated again: the claim that had the name may be gone."""
REPEAT_INTERVAL: Final = timedelta(minutes=10)
"""The interval after which the same Event is repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedNode:
    """A Node that shows a claim's provider ID, and why it is not the claim's."""

    name: str
    reason: str

    @property
    def text(self) -> str:
        """Node and reason, for conditions and Events."""
        return f'Node "{self.name}" shows the provider ID of this NodeClaim and {self.reason}'


def refused_nodes(claim: NodeClaim, snapshot: Snapshot) -> tuple[RefusedNode, ...]:
    """Return the Nodes with the claim's provider ID that the cluster's own facts refuse."""
    refused = [
        RefusedNode(name=node.name, reason=_reason(claim))
        for node in snapshot.refused_nodes_of(claim)
    ]
    if is_unknown(claim.status.conditions, REGISTERED):
        for node in snapshot.nodes_of(claim):
            owner = _registered_owner(claim, node, snapshot)
            if owner:
                reason = f'is the Node that registered for NodeClaim "{owner}"'
                refused.append(RefusedNode(name=node.name, reason=reason))
    return tuple(refused)


def refused_notices(claim: NodeClaim, refused: Sequence[RefusedNode]) -> tuple[Notice, ...]:
    """Return an Event for each refused Node."""
    return tuple(
        Notice(
            regarding=claim.ref,
            type="Warning",
            reason="NodeRefused",
            message=f"{node.text}: find out what runs on it, and delete it",
            dedupe=(claim.uid, node.name),
            window=REPEAT_INTERVAL,
        )
        for node in refused
    )


def _reason(claim: NodeClaim) -> str:
    if claim.status.node_name:
        return f'is not Node "{claim.status.node_name}", which registered for it'
    return "is older than it"


def _registered_owner(claim: NodeClaim, node: NodeView, snapshot: Snapshot) -> str:
    """Return the other claim that a Node of this name registered for; empty without one.

    A claim that is being deleted has no say: clouds give its address, and so its name, away again.
    """
    for name in snapshot.claims_by_node_name.get(node.name, ()):
        if name != claim.name and not snapshot.node_claims[name].is_deleting:
            return name
    return ""
