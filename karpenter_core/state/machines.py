"""Joining a Node and its NodeClaim into one machine.

Both describe the same instance and both are incomplete for a while: the claim knows what was
ordered before the node exists, the kubelet reports zero for devices whose plug-in has not started,
and boot-time taints come and go. The joined view is what planning may rely on.
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
from karpenter_core.state.taints import effective_taints

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from karpenter_core.api.quantities import Quantity
    from karpenter_core.api.records import NodeView, PodView, Resources
    from karpenter_core.state.ledger import LedgerView

__all__ = [
    "has_lost_node",
    "is_instance_terminating",
    "join",
    "machine_key",
    "machine_ref",
    "outline",
    "total_requests",
]

_TRUE: Final = "true"


def machine_key(obj: NodeView | NodeClaim) -> str:
    """Return what a Node and its NodeClaim are joined by; empty for one that is not tracked.

    A claim without an instance stands for itself, and so does a node that nobody manages. A node
    of ours without a provider id is not known to be anybody's yet.
    """
    if isinstance(obj, NodeClaim):
        return obj.status.provider_id or f"nodeclaim/{obj.name}"
    if obj.provider_id:
        return obj.provider_id
    return "" if NODE_POOL in obj.labels else f"node/{obj.name}"


def machine_ref(machine: StateNode) -> ObjectRef:
    """Refer to a machine's Node in Events, or to its NodeClaim while it has none."""
    node, claim = machine.node, machine.claim
    if node is None and claim is not None:
        return claim.ref
    uid = "" if node is None else node.uid
    return ObjectRef(api_version="v1", kind="Node", name=machine.name, uid=uid)


def join(
    node: NodeView | None,
    claim: NodeClaim | None,
    pods: tuple[PodView, ...],
    ledger: LedgerView,
) -> StateNode | None:
    """Build the view of one machine; None when neither half may be looked at yet."""
    if not _is_shown(node, claim):
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
        daemon_requests=total_requests(pod for pod in pods if pod.is_daemon),
        pool=labels.get(NODE_POOL, ""),
        managed=claim is not None,
        registered=registered,
        initialized=initialized,
        marked_for_deletion=_is_leaving(node, claim, names, ledger),
        nominated_until=_nominated_until(names, ledger),
    )


def outline(node: NodeView | None, claim: NodeClaim | None, ledger: LedgerView) -> StateNode:
    """Build what counts of a machine that cannot be joined: pool, amounts, whether it leaves.

    It has neither pods nor taints nor room: it is for sums, nothing may be placed on it.
    """
    if not _is_shown(node, claim):
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
    """Sum what pods ask for; a shape's requests say `pods: 1`."""
    return merge(pod.shape.requests for pod in pods)


def is_instance_terminating(claim: NodeClaim | None) -> bool:
    """Tell whether the claim's instance has been told to go; not so without a claim."""
    return claim is not None and is_true(claim.status.conditions, INSTANCE_TERMINATING)


def is_only_held(claim: NodeClaim) -> bool:
    """Tell whether a claim is kept by somebody else's finalizer alone.

    Ours goes when the instance is gone: nothing is left of the machine, for however long that is.
    """
    return claim.is_deleting and TERMINATION_FINALIZER not in claim.metadata.finalizers


def has_lost_node(machine: StateNode) -> bool:
    """Tell whether a machine once had a Node that is gone: nothing can be placed on it.

    Such a machine looks like one that boots, but nobody sees to it that it ever joins again.
    """
    claim = machine.claim
    return (
        claim is not None
        and machine.node is None
        and is_true(claim.status.conditions, REGISTERED_CONDITION)
    )


def _progress(node: NodeView | None, claim: NodeClaim | None) -> tuple[bool, bool]:
    """Tell whether a machine is registered, and whether it is initialised."""
    if claim is None:
        return True, True
    registered = node is not None and node.labels.get(REGISTERED) == _TRUE
    return registered, registered and node is not None and node.labels.get(INITIALIZED) == _TRUE


def _is_shown(node: NodeView | None, claim: NodeClaim | None) -> bool:
    """Tell whether a node, if it is ours, says enough of itself to be placed on."""
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
    if node is not None:
        return node.labels
    return {} if claim is None else claim.metadata.labels


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
        _filled(capacity, claim.status.capacity),
        _filled(allocatable, claim.status.allocatable),
    )


def _filled(reported: Resources, ordered: Mapping[str, Quantity]) -> dict[str, int]:
    """Take what the kubelet reports, and what was ordered where it reports nothing or zero."""
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
