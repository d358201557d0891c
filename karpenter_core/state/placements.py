"""Places that were decided before and still stand.

A pod keeps its place while the place is good: the claim is under way, or the scheduler still has
time to bind it. It is not asked about again, its room is taken, and the machine is not empty.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import find
from karpenter_core.api.nodeclaim import INITIALIZED
from karpenter_core.state.machines import has_lost_node

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from karpenter_core.api.records import PodView
    from karpenter_core.state.ledger import Placement
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = [
    "NOMINATION_WINDOW",
    "expected_machines",
    "nomination_stands",
    "nomination_window",
    "standing_place",
]

NOMINATION_WINDOW: Final = timedelta(seconds=20)
"""Upstream default: twice the longest batch window."""
_SHORTEST_WINDOW: Final = timedelta(seconds=10)  # upstream default


def nomination_window(batch_maximum: timedelta) -> timedelta:
    """Return how long a node that pods were placed on is kept from disruption."""
    return max(2 * batch_maximum, _SHORTEST_WINDOW)


def standing_place(
    snapshot: Snapshot, pod: PodView, *, now: datetime, window: timedelta = NOMINATION_WINDOW
) -> StateNode | None:
    """Return the machine that was decided on for a pod, while that stands.

    A machine that boots is waited for, however long: liveness ends it if it never comes. Once it
    is initialised the scheduler has one window to bind the pod.
    """
    if pod.nominated_node_name and nomination_stands(snapshot, pod, now=now, window=window):
        return snapshot.state_nodes_by_node.get(pod.nominated_node_name)
    placement = snapshot.ledger.placements.get(pod.uid)
    machine = None if placement is None else snapshot.state_node(placement.target)
    if placement is None or machine is None or machine.marked_for_deletion:
        return None
    if has_lost_node(machine):
        return None
    return machine if _has_time(machine, placement, now=now, window=window) else None


def nomination_stands(
    snapshot: Snapshot, pod: PodView, *, now: datetime, window: timedelta = NOMINATION_WINDOW
) -> bool:
    """Tell whether a pod still goes to the node that its status names.

    The name is the scheduler's, which makes room there, or ours, of a machine made for the pod.
    It is void once that node has gone or is going. Ours is void too when the scheduler has had a
    whole window and done nothing; the scheduler's own it takes back itself.
    """
    node = snapshot.nodes.get(pod.nominated_node_name)
    if node is None or node.is_deleting:
        return False
    machine = snapshot.state_nodes_by_node.get(node.name)
    if machine is None:
        return True
    if machine.marked_for_deletion:
        return False
    placement = snapshot.ledger.placements.get(pod.uid)
    if placement is None or snapshot.state_node(placement.target) is not machine:
        return True
    return _has_time(machine, placement, now=now, window=window) or any(
        other.is_terminating for other in machine.pods
    )


def _has_time(
    machine: StateNode, placement: Placement, *, now: datetime, window: timedelta
) -> bool:
    """Tell whether the scheduler is not late yet with binding what was planned."""
    if not machine.initialized:
        return True
    initialized = _initialized_at(machine)
    since = placement.at
    if initialized is not None and initialized <= now:  # else a clock was set: it tells nothing
        since = max(since, initialized)
    return now < since + window


def expected_machines(
    snapshot: Snapshot,
    pods: Iterable[PodView],
    *,
    now: datetime,
    window: timedelta = NOMINATION_WINDOW,
) -> frozenset[StateNode]:
    """Return the machines on which some of these pods are still expected."""
    return frozenset(
        machine
        for pod in pods
        if (machine := standing_place(snapshot, pod, now=now, window=window)) is not None
    )


def _initialized_at(machine: StateNode) -> datetime | None:
    if machine.claim is None:
        return None
    condition = find(machine.claim.status.conditions, INITIALIZED)
    return None if condition is None else condition.last_transition_time
