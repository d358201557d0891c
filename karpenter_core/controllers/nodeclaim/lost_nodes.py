"""Gives up registered claims whose Node is gone.

A Node is deleted together with its claim, unless a user removes its finalizer first. The kubelet does
not create it again before it is restarted, so the instance would run without pods until it expires.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.lifecycle.changes import LifecycleStep
from karpenter_core.lifecycle.nodeclaim.lost_nodes import (
    are_too_many_lost,
    has_lost_its_node,
    node_lost_step,
    registered_claims,
)

if TYPE_CHECKING:
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.clock import SteadyClock
    from karpenter_core.controllers.cluster_state import ClusterState
    from karpenter_core.controllers.live_reader import LiveReader

__all__ = ["LostNodes"]

HELD_BACK_RETRY: Final = timedelta(minutes=5)


@final
class LostNodes:
    """Remembers since when registered claims have no Node; a new process begins anew."""

    def __init__(
        self,
        *,
        cluster_state: ClusterState,
        nodes: LiveReader,
        steady: SteadyClock,
        grace: timedelta,
    ) -> None:
        """`grace` is the time that a kubelet has to create its Node again."""
        self._cluster_state: Final = cluster_state
        self._nodes: Final = nodes
        self._steady: Final = steady
        self._grace: Final = grace
        self._lost_since: Final[dict[str, datetime]] = {}
        """By the UID of the claim."""
        self._before: frozenset[str] = frozenset()
        """UIDs of the claims that had registered when the first of these was noticed."""
        self._log: FilteringBoundLogger = structlog.get_logger("nodeclaim.lifecycle")

    async def step(self, claim: NodeClaim) -> LifecycleStep:
        """Return the step that deletes a claim whose Node stays away, or the wait until then.

        Raises:
            ApiError: whether there is such a Node cannot be asked.
        """
        if not has_lost_its_node(claim, self._cluster_state.snapshot()):
            self._lost_since.pop(claim.uid, None)
            return LifecycleStep(claim=claim)
        if not self._lost_since:
            self._before = frozenset(
                each.uid for each in registered_claims(self._cluster_state.snapshot())
            )
        now = self._steady.now()
        left = self._lost_since.setdefault(claim.uid, now) + self._grace - now
        if left > timedelta():
            return LifecycleStep(claim=claim, requeue_after=left)
        if are_too_many_lost(self._cluster_state.snapshot(), before=self._before):
            self._log.error(
                "too many nodeclaims have no node, they are kept because the cause may be a mistake",
                NodeClaim={"name": claim.name},
            )
            return LifecycleStep(claim=claim, requeue_after=HELD_BACK_RETRY)
        _, unreadable = await self._nodes.read_now(f"metadata.name={claim.status.node_name}")
        if unreadable or not has_lost_its_node(claim, self._cluster_state.snapshot()):
            return LifecycleStep(claim=claim, requeue_after=HELD_BACK_RETRY)
        return node_lost_step(claim)

    def forget(self, uid: str) -> None:
        """Forget a claim that ends."""
        self._lost_since.pop(uid, None)
