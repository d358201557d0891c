"""A launched claim's way to an initialised node, as far as one look goes.

Registration, initialisation and liveness run over one copy of the claim and add up to one patch of
the Node and one of the claim's status: the API server is what sets the pace of a scale-up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.conditions import is_unknown
from karpenter_core.api.nodeclaim import REGISTERED
from karpenter_core.lifecycle.changes import Step, followed_by
from karpenter_core.lifecycle.claim_status import restamped
from karpenter_core.lifecycle.nodeclaim.initialization import initialization_step
from karpenter_core.lifecycle.nodeclaim.liveness import (
    LAUNCH_TIMEOUT,
    REGISTRATION_TIMEOUT,
    liveness_step,
)
from karpenter_core.lifecycle.nodeclaim.registration import registration_step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.lifecycle.nodeclaim.registration import PendingGate

__all__ = ["progress_step"]


def progress_step(
    claim: NodeClaim,
    nodes: Sequence[NodeView],
    *,
    now: datetime,
    pending: Sequence[PendingGate] = (),
    gate_error: Exception | None = None,
    launch_timeout: timedelta = LAUNCH_TIMEOUT,
    registration_timeout: timedelta = REGISTRATION_TIMEOUT,
) -> Step:
    """Take a claim as far as its node allows.

    `nodes` are those that show its provider id, `pending` the gates that hold its registration. A
    claim that is not launched has no node either, and says so.
    """
    step = Step(claim=restamped(claim, now))
    if is_unknown(step.claim.status.conditions, REGISTERED):
        step = followed_by(
            step,
            registration_step(step.claim, nodes, now=now, pending=pending, gate_error=gate_error),
        )
    if step.node is not None:
        nodes = tuple(step.node.applied_to(node) for node in nodes)
    step = followed_by(step, initialization_step(step.claim, nodes, now=now))
    return followed_by(
        step,
        liveness_step(
            step.claim,
            now=now,
            launch_timeout=launch_timeout,
            registration_timeout=registration_timeout,
        ),
    )
