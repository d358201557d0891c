"""Pauses disruption: of all by a setting, of one NodePool by annotation.

A pause stops voluntary disruption: emptiness, drift, consolidation, expiration, repair. It does not
stop what users and clouds do (a user deletes a claim, a cloud interrupts an instance), nor the
deletion of claims whose nodes never registered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.labels import PAUSE_DISRUPTION
from karpenter_core.api.pool_schedules import schedules_error

if TYPE_CHECKING:
    from karpenter_core.api.nodepool import NodePool

__all__ = ["pause_reason", "replacement_pause_reason"]


def pause_reason(pool: NodePool | None, *, is_paused_globally: bool) -> str:
    """Return the reason why disruption of a pool's nodes is paused; empty when it is not.

    A pool is paused by its annotation `karpenter.sh/pause-disruption` being `true`, and while its
    schedules cannot be read: they may forbid the disruption now.
    `is_paused_globally` is the setting `pause-disruption`; `pool` is None for a claim without one.
    """
    if is_paused_globally:
        return "disruption is paused (--pause-disruption)"
    if pool is not None and pool.metadata.annotations.get(PAUSE_DISRUPTION) == "true":
        return f'disruption of nodepool "{pool.name}" is paused ({PAUSE_DISRUPTION})'
    if pool is not None and (problem := schedules_error(pool)):
        return f'disruption of nodepool "{pool.name}" is paused: {problem}'
    return ""


def replacement_pause_reason(
    pool: NodePool | None, *, is_paused_globally: bool, static_capacity: bool
) -> str:
    """Return the reason why a pool's NodeClaims are not expired or repaired; empty for none.

    The reason is a pause, as in `pause_reason`, or that the pool is static (`spec.replicas`) while
    the feature gate `StaticCapacity` is off (`static_capacity`): its removed nodes would not be
    replaced. Disruption methods exclude static pools themselves.
    """
    if pool is not None and pool.spec.replicas is not None and not static_capacity:
        return (
            f'nodepool "{pool.name}" is static (spec.replicas), and the feature gate StaticCapacity '
            "is off"
        )
    return pause_reason(pool, is_paused_globally=is_paused_globally)
