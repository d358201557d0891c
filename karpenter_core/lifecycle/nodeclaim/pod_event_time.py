"""Records on a claim when a pod last came to its node or left it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.lifecycle.changes import LifecycleStep
from karpenter_core.lifecycle.nodeclaim.consolidatable import quiet_since
from karpenter_core.state.replacements import is_unused_replacement

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodepool import NodePool

__all__ = ["POD_EVENT_INTERVAL", "UNUSED_INTERVAL", "pod_event_step"]

POD_EVENT_INTERVAL: Final = timedelta(seconds=10)
"""Upstream default; shorter than the 15 s that a disruption waits before it acts."""
UNUSED_INTERVAL: Final = timedelta(minutes=1)
"""The interval for pools whose `consolidateAfter` is 0s or Never, which do not use the time."""


def pod_event_step(claim: NodeClaim, pool: NodePool | None, *, now: datetime) -> LifecycleStep:
    """Set `status.lastPodEventTime`, unless the quiet time began only a moment ago.

    The planned pods of a node come right after its initialisation, from which the quiet time counts
    until then: writing the time for every new node would cost a request and change nothing. The first
    pod of a replacement is recorded, because an unused one is kept for a while.
    """
    is_used = pool is None or bool(pool.spec.disruption.consolidate_after.timedelta)
    last = None if is_unused_replacement(claim) else quiet_since(claim)
    if last is not None and now - last < (POD_EVENT_INTERVAL if is_used else UNUSED_INTERVAL):
        return LifecycleStep(claim=claim)
    status = claim.status.model_copy(update={"last_pod_event_time": now})
    return LifecycleStep(claim=claim.model_copy(update={"status": status}))
