"""Keeps the labels of NodePool and NodeClass on claims and Nodes.

Claims of older controllers lack the NodeClass label. A kubelet may change the labels `karpenter.sh/…` of
its Node at any time: pods, budgets and limits of another NodePool would follow them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import NODE_POOL, node_class_label
from karpenter_core.api.labels import REGISTERED as REGISTERED_LABEL
from karpenter_core.api.notices import Notice
from karpenter_core.lifecycle.changes import LifecycleStep, NodePatch
from karpenter_core.lifecycle.claim_status import with_metadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView

__all__ = ["hydration_step"]

REPEAT_INTERVAL: Final = timedelta(minutes=10)
"""The interval after which the same Event is repeated."""


def hydration_step(claim: NodeClaim, nodes: Sequence[NodeView]) -> LifecycleStep:
    """Set the NodeClass label on a claim, and both labels on its node if it has exactly one.

    Before registration, a Node gets its labels by registration.
    """
    ref = claim.spec.node_class_ref
    label = {node_class_label(ref.group, ref.kind): ref.name}
    hydrated = with_metadata(claim, labels={**claim.metadata.labels, **label})
    if len(nodes) != 1:
        return LifecycleStep(claim=hydrated)
    node = nodes[0]
    pool = _pool_to_restore(claim, node)
    labels = {**label, **pool}
    if labels.items() <= node.labels.items():
        return LifecycleStep(claim=hydrated)
    notices = (_restored_notice(claim, node),) if pool else ()
    return LifecycleStep(claim=hydrated, node=NodePatch(labels=labels), notices=notices)


def _pool_to_restore(claim: NodeClaim, node: NodeView) -> dict[str, str]:
    pool = claim.metadata.labels.get(NODE_POOL)
    if pool is None or node.labels.get(REGISTERED_LABEL) != "true":
        return {}
    return {} if node.labels.get(NODE_POOL) == pool else {NODE_POOL: pool}


def _restored_notice(claim: NodeClaim, node: NodeView) -> Notice:
    found = node.labels.get(NODE_POOL)
    state = "has no label" if found is None else f'had the value "{found}" of label'
    return Notice(
        regarding=claim.ref,
        type="Warning",
        reason="NodeLabelRestored",
        message=(
            f'Node "{node.name}" {state} {NODE_POOL}: the value of the NodeClaim is restored; find out '
            "what changed it"
        ),
        dedupe=(claim.uid, node.name),
        window=REPEAT_INTERVAL,
    )
