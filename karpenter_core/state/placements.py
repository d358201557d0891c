"""Finds the placements of pods that were decided earlier and still hold.

A pod keeps its placement while its node starts, or while the scheduler still has time to bind it.
Such a pod is not scheduled again, its resources are reserved, and its node is not empty.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import find_condition
from karpenter_core.api.nodeclaim import INITIALIZED
from karpenter_core.state.ledger_view import PlacementState
from karpenter_core.state.state_nodes import has_lost_node

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from karpenter_core.api.records import PodView
    from karpenter_core.state.ledger_view import PodPlacement
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = [
    "NOMINATION_WINDOW",
    "expected_state_nodes",
    "is_nomination_valid",
    "is_placement_refused",
    "nomination_window",
    "planned_state_node",
    "valid_placement",
]

NOMINATION_WINDOW: Final = timedelta(seconds=20)
"""Upstream default: twice the longest batch window."""
SCHEDULER_WINDOW: Final = timedelta(minutes=11)
"""More than the scheduler takes to bind the volumes of a pod (its default is ten minutes), or to come
to a pod that it has not tried yet."""
_MIN_WINDOW: Final = timedelta(seconds=10)  # upstream default


def nomination_window(batch_maximum: timedelta) -> timedelta:
    """Return how long a node with newly placed pods is protected from disruption."""
    return max(2 * batch_maximum, _MIN_WINDOW)


def valid_placement(
    snapshot: Snapshot, pod: PodView, *, now: datetime, window: timedelta = NOMINATION_WINDOW
) -> StateNode | None:
    """Return the node that a pod was placed on, while the placement is valid.

    A booting node is waited for without limit: the liveness check deletes it if it never comes up.
    Once it is initialised the scheduler has one window to bind the pod, or `SCHEDULER_WINDOW` if it
    has not tried the pod yet: it may have thousands before it.
    """
    if pod.nominated_node_name and is_nomination_valid(snapshot, pod, now=now, window=window):
        return snapshot.state_nodes_by_node.get(pod.nominated_node_name)
    placement = snapshot.ledger.placements.get(pod.uid)
    state_node = planned_state_node(snapshot, pod.uid)
    if placement is None or state_node is None:
        return None
    is_kept = _is_within_window(state_node, placement, pod, now=now, window=window)
    return state_node if is_kept else None


def is_placement_refused(snapshot: Snapshot, pod: PodView) -> bool:
    """Tell whether the scheduler has refused a pod since it was placed on a node that is open.

    Others took its room, or its constraints do not hold there any more: the plan needs another place.
    Where a pod is leaving that node, its room is yet to come.
    """
    placement = snapshot.ledger.placements.get(pod.uid)
    if placement is None or placement.state is not PlacementState.REFUSED:
        return False
    state_node = snapshot.state_node(placement.target)
    if state_node is None or any(other.is_terminating for other in state_node.pods):
        return False
    # The scheduler itself nominates a node where it preempts pods.
    nominated = pod.nominated_node_name
    return not nominated or snapshot.state_nodes_by_node.get(nominated) is state_node


def planned_state_node(snapshot: Snapshot, uid: str) -> StateNode | None:
    """Return the claim or node that a pod was placed on, if it can still take the pod."""
    placement = snapshot.ledger.placements.get(uid)
    state_node = None if placement is None else snapshot.state_node(placement.target)
    if state_node is None or state_node.marked_for_deletion or has_lost_node(state_node):
        return None
    return state_node


def is_nomination_valid(
    snapshot: Snapshot, pod: PodView, *, now: datetime, window: timedelta = NOMINATION_WINDOW
) -> bool:
    """Tell whether a pod still goes to the node that its status nominates.

    The scheduler nominates a node where it preempts pods; this controller nominates a node that it
    launched for the pod. Both are void once that node is gone or is being removed. Ours is void
    too when the scheduler has not bound the pod within the window. The scheduler removes its own, but
    not all that it finds: not those of pods that preempt none. So any is void when no pod has been
    leaving the node for longer than the scheduler may take.
    """
    node = snapshot.nodes.get(pod.nominated_node_name)
    if node is None or node.is_deleting:
        return False
    state_node = snapshot.state_nodes_by_node.get(node.name)
    if state_node is None:
        return True
    if state_node.marked_for_deletion:
        return False
    if any(other.is_terminating for other in state_node.pods):
        return True
    placement = snapshot.ledger.placements.get(pod.uid)
    if placement is None or snapshot.state_node(placement.target) is not state_node:
        nomination = snapshot.ledger.pod_nominations.get(pod.uid)
        return nomination is None or now < nomination.at + SCHEDULER_WINDOW
    return _is_within_window(state_node, placement, pod, now=now, window=window)


def _is_within_window(
    state_node: StateNode,
    placement: PodPlacement,
    pod: PodView,
    *,
    now: datetime,
    window: timedelta,
) -> bool:
    """Tell whether the scheduler still has time to bind a placed pod."""
    if not state_node.initialized:
        return True
    initialized = _initialized_at(state_node)
    since = placement.at
    if initialized is not None and initialized <= now:  # else a clock was set: ignore it
        since = max(since, initialized)
    return now < since + (SCHEDULER_WINDOW if pod.awaits_first_try else window)


def expected_state_nodes(
    snapshot: Snapshot,
    pods: Iterable[PodView],
    *,
    now: datetime,
    window: timedelta,
    leaving: Iterable[PodView],
) -> frozenset[StateNode]:
    """Return the nodes on which some of these pods are still expected.

    `leaving` are pods that passes place because their nodes are being removed. The scheduler can
    bind those only after their eviction, which may be held up for long, so they are expected until
    a pass places them elsewhere: without their node the next pass would launch another.
    """
    found = [valid_placement(snapshot, pod, now=now, window=window) for pod in pods]
    found += [planned_state_node(snapshot, pod.uid) for pod in leaving]
    return frozenset(state_node for state_node in found if state_node is not None)


def _initialized_at(state_node: StateNode) -> datetime | None:
    if state_node.claim is None:
        return None
    condition = find_condition(state_node.claim.status.conditions, INITIALIZED)
    return None if condition is None else condition.last_transition_time
