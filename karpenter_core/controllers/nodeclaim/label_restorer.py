"""Restores labels and taints of Nodes, each Node at most once a minute."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.lifecycle.changes import LifecycleStep
from karpenter_core.lifecycle.nodeclaim.hydration import hydration_step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.clock import Clock

__all__ = ["RESTORE_PAUSE", "LabelRestorer"]

RESTORE_PAUSE: Final = timedelta(minutes=1)
"""The time between two writes of one Node: its kubelet may change it as often as it likes."""


@final
class LabelRestorer:
    """Limits the writes that labels and taints of one Node can cause."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self._restored_at: Final[dict[str, float]] = {}
        """Seconds of the monotonic clock by the UID of the claim."""

    def step(self, claim: NodeClaim, nodes: Sequence[NodeView]) -> LifecycleStep:
        """Return the step that restores a Node, or the wait until it may be done again."""
        step = hydration_step(claim, nodes)
        if step.node is None:
            return step
        now = self._clock.monotonic()
        last = self._restored_at.get(claim.uid)
        left = timedelta() if last is None else RESTORE_PAUSE - timedelta(seconds=now - last)
        if left > timedelta():
            return LifecycleStep(claim=step.claim, requeue_after=left)
        self._restored_at[claim.uid] = now
        return replace(step, requeue_after=RESTORE_PAUSE)  # a webhook may have taken it back unseen

    def forget(self, uid: str) -> None:
        """Forget a claim that ends."""
        self._restored_at.pop(uid, None)
