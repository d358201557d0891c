"""Adds the NodeClass label to claims and nodes of older controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.labels import node_class_label
from karpenter_core.lifecycle.changes import LifecycleStep, NodePatch
from karpenter_core.lifecycle.claim_status import with_metadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView

__all__ = ["hydration_step"]


def hydration_step(claim: NodeClaim, nodes: Sequence[NodeView]) -> LifecycleStep:
    """Set the label on a claim, and on its node if it has exactly one."""
    ref = claim.spec.node_class_ref
    label = {node_class_label(ref.group, ref.kind): ref.name}
    patch = None
    if len(nodes) == 1 and not label.items() <= nodes[0].labels.items():
        patch = NodePatch(labels=label)
    return LifecycleStep(
        claim=with_metadata(claim, labels={**claim.metadata.labels, **label}), node=patch
    )
