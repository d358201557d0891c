"""Orders NodeClaims of a static NodePool for deletion on a scale-down.

The order is: claims without an instance, empty nodes, other nodes by the disruption cost of their
pods, and last nodes that may not be disrupted, or have a pod that may not (upstream: only the latter).
Among equal claims, those that have not become usable in the time that a command waits come first (its
replacement may have failed, and the node to be replaced works), then drifted ones, then the youngest. Budgets and PodDisruptionBudgets do not
limit the number, because the user reduced the replicas; pods are drained as on every other node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import is_true
from karpenter_core.api.labels import DO_NOT_DISRUPT
from karpenter_core.api.nodeclaim import DRIFTED, INITIALIZED
from karpenter_core.disruption.command_queue import command_timeout
from karpenter_core.disruption.costs import disruption_cost, eviction_cost
from karpenter_core.state.pod_rules import do_not_disrupt

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import PodView
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["OVERPROVISIONED", "scale_down_order"]

OVERPROVISIONED: Final = "overprovisioned"
"""Termination reason in metrics (upstream)."""

_UNLAUNCHED: Final = 0
_EMPTY: Final = 1
_IN_USE: Final = 2


def scale_down_order(
    snapshot: Snapshot, claims: Iterable[NodeClaim], *, now: datetime
) -> tuple[NodeClaim, ...]:
    """Return claims of one pool in the order in which they are deleted; the order is total."""
    return tuple(sorted(claims, key=lambda claim: _rank(snapshot, claim, now)))


def _rank(
    snapshot: Snapshot, claim: NodeClaim, now: datetime
) -> tuple[int, bool, float, bool, bool, float, str]:
    created = claim.metadata.creation_timestamp
    youth = 0.0 if created is None else -created.timestamp()
    conditions = claim.status.conditions
    tie = (not is_true(conditions, DRIFTED), youth, claim.name)
    if not claim.status.provider_id:
        return (_UNLAUNCHED, False, 0.0, False, *tie)
    is_in_time = is_true(conditions, INITIALIZED) or (
        created is None or now - created < command_timeout(0)
    )
    nodes = snapshot.nodes_of(claim)
    pods = [pod for node in nodes for pod in snapshot.pods_by_node.get(node.name, ())]
    protected = any(node.annotations.get(DO_NOT_DISRUPT) == "true" for node in nodes) or any(
        _is_protected(pod, now) for pod in pods
    )
    if not protected and all(pod.is_daemon for pod in pods):
        return (_EMPTY, False, 0.0, is_in_time, *tie)
    cost = disruption_cost((eviction_cost(pod.shape) for pod in pods), claim, now)
    return (_IN_USE, protected, cost, is_in_time, *tie)


def _is_protected(pod: PodView, now: datetime) -> bool:
    return pod.is_active and do_not_disrupt(pod, now).is_active
