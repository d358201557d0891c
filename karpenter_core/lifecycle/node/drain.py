"""Draining: which pods have to leave a node, in which order, and by when.

Applications go before the daemons that serve them, critical ones last, each group when the one
before is gone. Pods whose own grace period would overrun the node's deadline do not wait for their
turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

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
    """A pod that is to leave; past `deadline` its budgets and annotations do not count."""

    pod: PodView
    deadline: datetime | None = None


def needs_force(pod: PodView, deadline: datetime | None, now: datetime) -> bool:
    """Tell whether a pod would outlive the node's deadline if it were left its time."""
    if deadline is None:
        return False
    if pod.deletion_timestamp is not None:
        return pod.deletion_timestamp > deadline
    latest = latest_start(pod, deadline)
    return latest is not None and now > latest


def latest_start(pod: PodView, deadline: datetime | None) -> datetime | None:
    """Return until when a pod may begin to end and still have all of its grace period."""
    grace = pod.shape.termination_grace_period_seconds
    if deadline is None or grace is None:
        return None
    return deadline - timedelta(seconds=grace)


def drain_wave(
    waiting: Sequence[PodView], *, deadline: datetime | None, now: datetime
) -> tuple[Eviction, ...]:
    """Return the pods whose turn it is: all that are pressed for time, and the first group left."""
    pressed = [pod for pod in waiting if needs_force(pod, deadline, now)]
    rest = [pod for pod in waiting if not needs_force(pod, deadline, now)]
    first = min((_group(pod) for pod in rest), default=0)
    turn = [pod for pod in rest if _group(pod) == first]
    return tuple(Eviction(pod=pod, deadline=deadline) for pod in (*pressed, *turn))


def _group(pod: PodView) -> int:
    is_critical = pod.shape.priority_class_name in _CRITICAL
    return 2 * is_critical + pod.is_daemon
