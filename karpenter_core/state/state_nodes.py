"""Joins a Node and its NodeClaim into one state node.

Both describe the same instance and both are incomplete for a while: the claim has the launched
amounts before the node exists, the kubelet reports zero for devices whose plug-in has not started,
and boot-time taints come and go. Planning relies on the joined view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import is_true
from karpenter_core.api.labels import (
    INITIALIZED,
    INSTANCE_TYPE,
    NODE_POOL,
    NODES,
    REGISTERED,
    TERMINATION_FINALIZER,
)
from karpenter_core.api.nodeclaim import INSTANCE_TERMINATING, NodeClaim
from karpenter_core.api.nodeclaim import REGISTERED as REGISTERED_CONDITION
from karpenter_core.api.notices import ObjectRef
from karpenter_core.api.quantities import parse_resources
from karpenter_core.scheduling.resources import merge
from karpenter_core.state.snapshot import StateNode
from karpenter_core.state.taints import UNREGISTERED, effective_taints, has_taint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from karpenter_core.api.quantities import Quantity
    from karpenter_core.api.records import NodeView, PodView, Resources
    from karpenter_core.state.ledger_view import LedgerView

__all__ = [
    "has_lost_node",
    "is_instance_terminating",
    "is_kept_by_others",
    "is_released",
    "join_state_node",
    "outline_state_node",
    "state_node_key",
    "state_node_ref",
    "total_requests",
]

_TRUE: Final = "true"


def state_node_key(obj: NodeView | NodeClaim) -> str:
    """Return the key by which a Node and its NodeClaim are joined; empty for untracked ones.

    A claim without instance is its own state node, and so is an unmanaged node. A node with a
    NodePool label and without provider ID is not tracked yet.
    """
    if isinstance(obj, NodeClaim):
        return obj.status.provider_id or f"nodeclaim/{obj.name}"
    if obj.provider_id:
        return obj.provider_id
    return "" if NODE_POOL in obj.labels else f"node/{obj.name}"


def state_node_ref(state_node: StateNode) -> ObjectRef:
    """Return the reference to the Node for Events, or to the NodeClaim while there is no Node."""
    node, claim = state_node.node, state_node.claim
    if node is None and claim is not None:
        return claim.ref
    uid = "" if node is None else node.uid
    return ObjectRef(api_version="v1", kind="Node", name=state_node.name, uid=uid)


def join_state_node(
    node: NodeView | None,
    claim: NodeClaim | None,
    pods: tuple[PodView, ...],
    ledger: LedgerView,
) -> StateNode | None:
    """Build one state node; None when neither Node nor claim can be used yet."""
    if not _is_ready_to_place(node, claim):
        node, pods = None, ()
    if node is None and claim is None:
        return None
    registered, initialized = _progress(node, claim)
    from_node = node if registered or claim is None else None
    labels = _labels(from_node, claim)
    capacity, allocatable = _amounts(node, claim, initialized=initialized)
    names = [obj.name for obj in (node, claim) if obj is not None]
    return StateNode(
        name=names[0],
        provider_id=_provider_id(node, claim),
        node=node,
        claim=claim,
        labels=labels,
        annotations=_annotations(from_node, claim),
        taints=effective_taints(node, claim, registered=registered, initialized=initialized),
        capacity={**capacity, NODES: 1},
        allocatable=allocatable,
        pods=pods,
        requests=total_requests(pods),
        daemon_requests=total_requests(
            pod for pod in pods if pod.is_daemon and not pod.shape.is_pinned
        ),
        pool=labels.get(NODE_POOL, ""),
        managed=claim is not None,
        registered=registered,
        initialized=initialized,
        marked_for_deletion=_is_leaving(node, claim, names, ledger),
        nominated_until=_nominated_until(names, ledger),
    )


def outline_state_node(
    node: NodeView | None, claim: NodeClaim | None, ledger: LedgerView
) -> StateNode:
    """Build the outline of a state node that cannot be joined: pool, amounts, deletion.

    It has no pods, taints or free resources: it counts in sums, and takes no pods.
    """
    if not _is_ready_to_place(node, claim):
        node = None
    registered, initialized = _progress(node, claim)
    labels = _labels(node if registered or claim is None else None, claim)
    capacity, _ = _amounts(node, claim, initialized=initialized)
    names = [obj.name for obj in (node, claim) if obj is not None]
    return StateNode(
        name=names[0],
        provider_id=_provider_id(node, claim),
        node=node,
        claim=claim,
        labels=labels,
        annotations={},
        taints=(),
        capacity={**capacity, NODES: 1},
        allocatable={},
        pods=(),
        requests={},
        daemon_requests={},
        pool=labels.get(NODE_POOL, ""),
        managed=claim is not None,
        registered=registered,
        initialized=initialized,
        marked_for_deletion=_is_leaving(node, claim, names, ledger),
        nominated_until=None,
    )


def total_requests(pods: Iterable[PodView]) -> dict[str, int]:
    """Sum the requests of pods; each shape's requests include `pods: 1`."""
    return merge(pod.shape.requests for pod in pods)


def is_instance_terminating(claim: NodeClaim | None) -> bool:
    """Tell whether termination of the claim's instance was requested; False without a claim."""
    return claim is not None and is_true(claim.status.conditions, INSTANCE_TERMINATING)


def is_held_by_foreign_finalizer(claim: NodeClaim) -> bool:
    """Tell whether only finalizers of other controllers keep a deleted claim.

    Ours is removed when the instance is gone, so such a claim has no instance.
    """
    return claim.is_deleting and TERMINATION_FINALIZER not in claim.metadata.finalizers


def is_released(node: NodeView) -> bool:
    """Tell whether a deleted Node has been drained and no longer has our finalizer."""
    return node.is_deleting and TERMINATION_FINALIZER not in node.finalizers


def is_kept_by_others(claim: NodeClaim, nodes: Iterable[NodeView]) -> bool:
    """Tell whether only finalizers of other controllers keep a deleted claim, or its Nodes.

    Our finalizers are removed from Nodes when the instance is gone, and from the claim after its Nodes.
    """
    if is_held_by_foreign_finalizer(claim):
        return True
    kept = tuple(nodes)
    is_ending = claim.is_deleting and is_instance_terminating(claim)
    return is_ending and bool(kept) and all(is_released(node) for node in kept)


def has_lost_node(state_node: StateNode) -> bool:
    """Tell whether a registered claim's Node is gone: nothing can be placed on it.

    Such a state node looks like a booting one, but its Node may never join again.
    """
    claim = state_node.claim
    return (
        claim is not None
        and state_node.node is None
        and is_true(claim.status.conditions, REGISTERED_CONDITION)
    )


def _progress(node: NodeView | None, claim: NodeClaim | None) -> tuple[bool, bool]:
    """Tell whether a state node is registered, and whether it is initialised.

    A node with the taint of an unregistered one is not, whatever its labels say: where a webhook puts
    the taint back, pods wait for the node as for one that boots, and no further one is launched.
    """
    if claim is None:
        return True, True
    if node is None or node.labels.get(REGISTERED) != _TRUE:
        return False, False
    has_label = node.labels.get(INITIALIZED) == _TRUE
    return True, has_label and not has_taint(node.taints, UNREGISTERED)


def _is_ready_to_place(node: NodeView | None, claim: NodeClaim | None) -> bool:
    """Tell whether a managed node has the labels that placement needs."""
    return (
        node is None
        or claim is None
        or node.labels.get(INITIALIZED) == _TRUE
        or INSTANCE_TYPE in node.labels
    )


def _provider_id(node: NodeView | None, claim: NodeClaim | None) -> str:
    if claim is not None and claim.status.provider_id:
        return claim.status.provider_id
    return "" if node is None else node.provider_id or node.name


def _labels(node: NodeView | None, claim: NodeClaim | None) -> Mapping[str, str]:
    """Return the labels of the Node, or of the claim without one.

    The claim says which NodePool the node belongs to: a kubelet may change the label of its Node.
    """
    if node is None:
        return {} if claim is None else claim.metadata.labels
    pool = None if claim is None else claim.metadata.labels.get(NODE_POOL)
    if pool is None or node.labels.get(NODE_POOL) == pool:
        return node.labels
    return {**node.labels, NODE_POOL: pool}


def _annotations(node: NodeView | None, claim: NodeClaim | None) -> Mapping[str, str]:
    if node is not None:
        return node.annotations
    return {} if claim is None else claim.metadata.annotations


def _amounts(
    node: NodeView | None, claim: NodeClaim | None, *, initialized: bool
) -> tuple[Resources, Resources]:
    capacity: Resources = {} if node is None else node.capacity
    allocatable: Resources = {} if node is None else node.allocatable
    if claim is None or initialized:
        return capacity, allocatable
    return (
        _with_ordered_amounts(capacity, claim.status.capacity),
        _with_ordered_amounts(allocatable, claim.status.allocatable),
    )


def _with_ordered_amounts(reported: Resources, ordered: Mapping[str, Quantity]) -> dict[str, int]:
    """Return the kubelet's amounts, with the claim's where it reports nothing or zero."""
    filled = dict(reported)
    for name, amount in parse_resources(ordered).items():
        if filled.get(name, 0) == 0:
            filled[name] = amount
    return filled


def _is_leaving(
    node: NodeView | None, claim: NodeClaim | None, names: list[str], ledger: LedgerView
) -> bool:
    if any(name in ledger.deletion_marks for name in names):
        return True
    if claim is not None:
        return claim.is_deleting or is_instance_terminating(claim)
    return node is not None and node.is_deleting


def _nominated_until(names: list[str], ledger: LedgerView) -> datetime | None:
    return max(
        (ledger.nominations[name] for name in names if name in ledger.nominations), default=None
    )
