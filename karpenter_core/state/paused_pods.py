"""Pauses pods whose nodes do not fit them, while others of the NodePool are launched for.

The pause of a NodePool ends with any node that registers and fits. Where some workloads' nodes fit all the
time, nodes would be launched for the others without limit: so what pods ask of a node has a pause of
its own, which grows in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from karpenter_core.api.records import PodShape, PodView
    from karpenter_core.state.launch_pauses import LaunchPause
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["demand_of", "split_paused"]


def demand_of(shape: PodShape) -> str:
    """Return what pods of a shape ask of a node; pods that are recreated ask for the same."""
    asked = (
        shape.namespace,
        sorted(shape.requests.items()),
        sorted(shape.node_selector.items()),
        shape.required_node_terms,
        shape.tolerations,
    )
    return repr(asked)


def split_paused(
    pods: Iterable[PodView], placed: Iterable[Sequence[PodView]], snapshot: Snapshot, now: datetime
) -> tuple[list[PodView], list[tuple[PodView, str]]]:
    """Split off the pods for which nothing may be launched now, with the reasons.

    After a pause one pod of its kind is tried: none while one of them has a node that boots (`placed`).
    """
    pauses = {
        demand: pause
        for demand, pause in snapshot.ledger.demand_pauses.items()
        if pause.is_on_trial
    }
    if not pauses:
        return list(pods), []
    tried = {_demand(pod, snapshot) for group in placed for pod in group}
    kept: list[PodView] = []
    paused: list[tuple[PodView, str]] = []
    for pod in pods:
        demand = _demand(pod, snapshot)
        pause = pauses.get(demand)
        if pause is None or (now >= pause.until and demand not in tried):
            kept.append(pod)
            if pause is not None:
                tried.add(demand)
        else:
            paused.append((pod, _pause_reason(pause, now)))
    return kept, paused


def _demand(pod: PodView, snapshot: Snapshot) -> str:
    """Return what a pod asks for itself, whatever was predicted or added for its plan."""
    return demand_of(snapshot.pods.get(pod.uid, pod).shape)


def _pause_reason(pause: LaunchPause, now: datetime) -> str:
    failed = f"{pause.failures} nodes in a row that were launched for such pods did not fit them"
    if now < pause.until:
        return f"{failed}: one node is launched as a test at {pause.until:%Y-%m-%dT%H:%M:%SZ}"
    return f"{failed}: one node is being launched as a test"
