"""Noting on a claim that a pod came to its node or left it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.lifecycle.changes import Step
from karpenter_core.lifecycle.nodeclaim.consolidatable import quiet_since

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodepool import NodePool

__all__ = ["POD_EVENT_INTERVAL", "UNUSED_INTERVAL", "pod_event_step"]

POD_EVENT_INTERVAL: Final = timedelta(seconds=10)
"""Upstream default; on purpose shorter than the 15 s that a disruption waits before it acts."""
UNUSED_INTERVAL: Final = timedelta(minutes=1)
"""Where the pool's `consolidateAfter` is 0s or Never, and nothing is counted from the last event."""


def pod_event_step(claim: NodeClaim, pool: NodePool | None, *, now: datetime) -> Step:
    """Set `status.lastPodEventTime`, unless quiet is counted from about now already.

    The pods that a machine was made for come as soon as it is initialised, and until then quiet is
    counted from that: to write it down for each new machine would cost a request and change nothing.
    """
    is_used = pool is None or bool(pool.spec.disruption.consolidate_after.timedelta)
    last = quiet_since(claim)
    if last is not None and now - last < (POD_EVENT_INTERVAL if is_used else UNUSED_INTERVAL):
        return Step(claim=claim)
    status = claim.status.model_copy(update={"last_pod_event_time": now})
    return Step(claim=claim.model_copy(update={"status": status}))
