"""Finds pods that the scheduler will refuse as well, before it tries them.

The scheduler tries thousands of new pods one after another, which takes it longer than a batch window
lasts. A pass plans for all of them together: plans of many pods are cheaper than those of one wave
after another, and the nodes come before the scheduler has refused each pod once.

Pods of the same shape have the same requirements: what it has refused one of them, it will refuse the
others. While very many pods are untried, all of them count, as its refusals say that nodes are full.
Whether an existing node has room for such a pod is for the pass to find: it fills these first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.records import PodView
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["list_foreseen_pods"]

MANY_UNTRIED: Final = 100
"""A scheduler that keeps up has fewer pods before it."""


def list_foreseen_pods(
    snapshot: Snapshot, among: Iterable[str] | None = None
) -> dict[str, PodView]:
    """Return the untried pods to plan for, by UID; only those `among` UIDs if there are any.

    Pods with volumes or devices are not compared: each may have others than its equals. Pods that a
    pass has placed keep their places when their equals have found a node.
    """
    untried, placements = snapshot.untried_pods, snapshot.ledger.placements
    if not untried:
        return {}
    priorities = _refused_priorities(snapshot) if len(untried) >= MANY_UNTRIED else {}
    found: dict[str, PodView] = {}
    for uid in untried if among is None else among:
        pod = untried.get(uid)
        if pod is None:
            continue
        shape = pod.shape
        is_refused = shape in snapshot.refused_shapes or (
            shape.scheduler_name in priorities
            and shape.priority <= priorities[shape.scheduler_name]
        )
        if uid in placements or (is_refused and not shape.volumes and not shape.resource_claims):
            found[uid] = pod
    return found


def _refused_priorities(snapshot: Snapshot) -> dict[str, int]:
    """Return the highest priority of refused pods by scheduler.

    A pod of a higher one may take the place of others.
    """
    priorities: dict[str, int] = {}
    for shape in snapshot.refused_shapes:
        known = priorities.get(shape.scheduler_name, shape.priority)
        priorities[shape.scheduler_name] = max(known, shape.priority)
    return priorities
