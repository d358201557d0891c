"""Chooses the pods to evict next from a draining node, with their deadlines.

Applications leave before the daemons that serve them, and critical pods last; each group leaves when
the one before is gone. Pods whose grace period would overrun the node's deadline leave at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.state.pod_rules import grace_period

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from karpenter_core.api.records import PodView

__all__ = [
    "Eviction",
    "drain_wave",
    "latest_start",
    "needs_force",
]

_CRITICAL: Final = frozenset({"system-cluster-critical", "system-node-critical"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A pod to evict; after `deadline` its budgets and annotations no longer protect it."""

    pod: PodView
    deadline: datetime | None


def needs_force(pod: PodView, deadline: datetime | None, now: datetime) -> bool:
    """Tell whether a pod with its full grace period would outlive the node's deadline."""
    if deadline is None:
        return False
    if pod.deletion_timestamp is not None:
        return pod.deletion_timestamp > deadline
    latest = latest_start(pod, deadline)
    return latest is not None and now > latest


def latest_start(pod: PodView, deadline: datetime | None) -> datetime | None:
    """Return the latest time to delete a pod that leaves it all of its grace period."""
    grace = pod.shape.termination_grace_period_seconds
    if deadline is None or grace is None:
        return None
    return deadline - grace_period(grace)


def drain_wave(
    waiting: Sequence[PodView], *, deadline: datetime | None, now: datetime
) -> tuple[Eviction, ...]:
    """Return the pods to evict now: all that need force, and the first remaining group."""
    forced = [pod for pod in waiting if needs_force(pod, deadline, now)]
    rest = [pod for pod in waiting if not needs_force(pod, deadline, now)]
    first = min((_group(pod) for pod in rest), default=0)
    turn = [pod for pod in rest if _group(pod) == first]
    return tuple(Eviction(pod=pod, deadline=deadline) for pod in (*forced, *turn))


def _group(pod: PodView) -> int:
    is_critical = pod.shape.priority_class_name in _CRITICAL
    return 2 * is_critical + pod.is_daemon
