"""Deletes expired, unlaunched and Node-less claims; journals the reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.controllers.forceful_disruption import record_forceful_disruption
from karpenter_core.lifecycle.nodeclaim.expiration import EXPIRED
from karpenter_core.lifecycle.nodeclaim.launch import INSUFFICIENT_CAPACITY, NODE_CLASS_NOT_READY
from karpenter_core.lifecycle.nodeclaim.liveness import (
    INITIALIZATION_TIMED_OUT,
    LAUNCH_TIMED_OUT,
    NODE_REMOVED,
    REGISTRATION_TIMED_OUT,
)
from karpenter_core.lifecycle.nodeclaim.lost_nodes import NODE_LOST

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.controllers.object_writer import ObjectWriter
    from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
    from karpenter_core.lifecycle.changes import LifecycleStep

__all__ = ["ClaimDeleter"]

_ENDS: Final = {
    EXPIRED: ("expiration", "Expired", "its expireAfter has passed"),
    LAUNCH_TIMED_OUT: ("liveness", "LaunchTimeout", "it was not launched in time"),
    REGISTRATION_TIMED_OUT: ("liveness", "RegistrationTimeout", "it did not register in time"),
    INITIALIZATION_TIMED_OUT: (
        "liveness",
        "InitializationTimeout",
        "it was not initialised in time",
    ),
    NODE_REMOVED: ("liveness", "NodeRemoved", "its Node was removed before it registered"),
    NODE_LOST: ("liveness", "NodeLost", "its Node is gone although it was not deleted with it"),
    INSUFFICIENT_CAPACITY: ("launch", "InsufficientCapacity", "its offerings are out of stock"),
    NODE_CLASS_NOT_READY: ("launch", "NodeClassNotReady", "its NodeClass is not usable"),
}
"""Journal entries of deleted claims by the step's reason: method, reason, cause."""


@final
class ClaimDeleter:
    """Deletes the claims whose step says so."""

    def __init__(self, *, writer: ObjectWriter, runtime: ControllerRuntime) -> None:
        self._writer = writer
        self._runtime = runtime
        self._log: FilteringBoundLogger = structlog.get_logger("nodeclaim.lifecycle")

    async def delete(self, claim: NodeClaim, step: LifecycleStep, provider: str) -> None:
        """Delete a claim and record the effects of its step.

        Unavailable offerings and Events are recorded in any case; metrics and state events only after
        the deletion, or each attempt would count as a failed registration.
        """
        snapshot = self._writer.cluster_state.snapshot()
        self._writer.record_exhausted(step, provider)
        self._writer.record_effects(replace(step, metric_updates=(), events=()))
        if await self._writer.delete_claim(claim):
            self._writer.record_effects(replace(step, notices=()))
            self._log.debug("deleting nodeclaim", reason=step.delete)
            method, reason, cause = _ENDS[step.delete]
            await record_forceful_disruption(
                self._runtime,
                snapshot,
                claim,
                method=method,
                reason=reason,
                cause=cause,
            )
