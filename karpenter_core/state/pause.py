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

__all__ = ["why_kept", "why_paused"]


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


def why_kept(pool: NodePool | None, *, everywhere: bool) -> str:
    """Return what keeps a pool's NodeClaims from being expired or repaired; empty when nothing does.

    That is a pause, as in `why_paused`, or that the pool is static (`spec.replicas`): what is taken
    from it is not launched again, since static pools are not built yet. Disruption methods leave
    static pools out by themselves.
    """
    if pool is not None and pool.spec.replicas is not None:
        return f'nodepool "{pool.name}" is static (spec.replicas), which is not built yet'
    return why_paused(pool, everywhere=everywhere)
