"""Keeps labels on claims and Nodes, and a boot-time taint off registered ones.

Claims of older controllers lack the NodeClass label. A kubelet may change the labels `karpenter.sh/…` of
its Node at any time: pods, budgets and limits of another NodePool would follow them, and a Node without
`karpenter.sh/registered` or `karpenter.sh/initialized` would never be disrupted again. A webhook or another
controller may put the taint `karpenter.sh/unregistered` back: no pod could run there.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import is_true
from karpenter_core.api.labels import INITIALIZED as INITIALIZED_LABEL
from karpenter_core.api.labels import NODE_POOL, UNREGISTERED_TAINT, node_class_label
from karpenter_core.api.labels import REGISTERED as REGISTERED_LABEL
from karpenter_core.api.nodeclaim import INITIALIZED, REGISTERED
from karpenter_core.api.notices import Notice
from karpenter_core.lifecycle.changes import LifecycleStep, NodePatch
from karpenter_core.lifecycle.claim_status import with_metadata
from karpenter_core.lifecycle.nodeclaim.initialization import is_usable
from karpenter_core.lifecycle.nodeclaim.registration import registered_patch
from karpenter_core.state.taints import UNREGISTERED, has_taint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView

__all__ = ["hydration_step"]

REPEAT_INTERVAL: Final = timedelta(minutes=10)
"""The interval after which the same Event is repeated."""


def hydration_step(claim: NodeClaim, nodes: Sequence[NodeView]) -> LifecycleStep:
    """Set the NodeClass label on a claim, and the lost labels on its node if it has exactly one.

    Before registration, a Node gets its labels by registration. A registered Node that was deleted
    and created again by its kubelet has the taint of an unregistered one: it is registered again.
    """
    ref = claim.spec.node_class_ref
    label = {node_class_label(ref.group, ref.kind): ref.name}
    hydrated = with_metadata(claim, labels={**claim.metadata.labels, **label})
    if len(nodes) != 1:
        return LifecycleStep(claim=hydrated)
    node = nodes[0]
    lost = {} if node.is_deleting else _labels_to_restore(claim, node)
    patch = _restoring_patch(hydrated, node, {**label, **lost})
    if INITIALIZED_LABEL in lost and not is_usable(claim, patch.applied_to(node)):
        del lost[INITIALIZED_LABEL]
        patch = _restoring_patch(hydrated, node, {**label, **lost})
    is_taint_back = _has_taint_again(claim, node)
    if is_taint_back:
        patch = patch.merged(NodePatch(remove_taints=(UNREGISTERED,)))
    elif patch.labels.items() <= node.labels.items():
        return LifecycleStep(claim=hydrated)
    notices = (_restored_notice(claim, node, lost),) if lost else ()
    if is_taint_back:
        notices += (_returned_taint_notice(claim, node),)
    return LifecycleStep(claim=hydrated, node=patch, notices=notices)


def _restoring_patch(claim: NodeClaim, node: NodeView, labels: dict[str, str]) -> NodePatch:
    is_new = REGISTERED_LABEL in labels and node.labels.get(REGISTERED_LABEL) != "true"
    if is_new and has_taint(node.taints, UNREGISTERED):
        return registered_patch(claim, node).merged(NodePatch(labels=labels))
    return NodePatch(labels=labels)


def _has_taint_again(claim: NodeClaim, node: NodeView) -> bool:
    """Tell whether a registered Node has the taint of an unregistered one."""
    return (
        is_true(claim.status.conditions, REGISTERED)
        and node.labels.get(REGISTERED_LABEL) == "true"
        and not node.is_deleting
        and has_taint(node.taints, UNREGISTERED)
    )


def _labels_to_restore(claim: NodeClaim, node: NodeView) -> dict[str, str]:
    """Return the labels of the controller that a registered Node lacks, or has with other values."""
    conditions = claim.status.conditions
    is_registered = is_true(conditions, REGISTERED)
    wanted: dict[str, str] = {}
    if is_registered:
        wanted[REGISTERED_LABEL] = "true"
    if is_registered or node.labels.get(REGISTERED_LABEL) == "true":
        pool = claim.metadata.labels.get(NODE_POOL)
        wanted |= {} if pool is None else {NODE_POOL: pool}
    if is_true(conditions, INITIALIZED):
        wanted[INITIALIZED_LABEL] = "true"
    return {key: value for key, value in wanted.items() if node.labels.get(key) != value}


def _restored_notice(claim: NodeClaim, node: NodeView, lost: Mapping[str, str]) -> Notice:
    texts = [
        f"no label {key}"
        if (found := node.labels.get(key)) is None
        else f'the value "{found}" of label {key}'
        for key in sorted(lost)
    ]
    return Notice(
        regarding=claim.ref,
        type="Warning",
        reason="NodeLabelRestored",
        message=(
            f'Node "{node.name}" had {", ".join(texts)}: what the NodeClaim says is restored; find '
            "out what changed it"
        ),
        dedupe=(claim.uid, node.name),
        window=REPEAT_INTERVAL,
    )


def _returned_taint_notice(claim: NodeClaim, node: NodeView) -> Notice:
    return Notice(
        regarding=claim.ref,
        type="Warning",
        reason="UnregisteredTaintReturned",
        message=(
            f'Node "{node.name}" is registered and has the taint {UNREGISTERED_TAINT}, so no pod can run '
            "on it: the taint is removed once a minute; find the webhook or controller that puts it back"
        ),
        dedupe=(claim.uid, node.name),
        window=REPEAT_INTERVAL,
    )
