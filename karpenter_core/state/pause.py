"""The switch that pauses disruption: for everything by a setting, for one pool by an annotation.

It holds back what we begin of our own accord: emptiness, drift, consolidation, expiration, repair.
It does not hold back what others do (a user deletes a claim, a cloud takes an instance away) nor
the end of machines that came to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.labels import PAUSE_DISRUPTION

if TYPE_CHECKING:
    from karpenter_core.api.nodepool import NodePool

__all__ = ["why_paused"]


def why_paused(pool: NodePool | None, *, everywhere: bool) -> str:
    """Return what pauses the disruption of a pool's nodes; empty when nothing does.

    A pool is paused by its annotation `karpenter.sh/pause-disruption` being `true`.
    `everywhere` is the setting `pause-disruption`; `pool` is None for a claim without one.
    """
    if everywhere:
        return "disruption is paused (--pause-disruption)"
    if pool is not None and pool.metadata.annotations.get(PAUSE_DISRUPTION) == "true":
        return f'disruption of nodepool "{pool.name}" is paused ({PAUSE_DISRUPTION})'
    return ""
