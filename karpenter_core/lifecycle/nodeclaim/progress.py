"""Combines registration, initialisation and liveness of a claim into one step.

They run over one copy of the claim and add up to one patch of the Node and one of the claim's status,
because the number of API calls limits the speed of a scale-up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.conditions import is_unknown
from karpenter_core.api.nodeclaim import REGISTERED
from karpenter_core.lifecycle.changes import LifecycleStep, merge_steps
from karpenter_core.lifecycle.claim_status import with_current_generation
from karpenter_core.lifecycle.nodeclaim.initialization import initialization_step
from karpenter_core.lifecycle.nodeclaim.liveness import (
    LAUNCH_TIMEOUT,
    RECOVERY_TIME,
    REGISTRATION_TIMEOUT,
    liveness_step,
)
from karpenter_core.lifecycle.nodeclaim.registration import registration_step

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime, timedelta

    from karpenter_core.api.devices import ResourceSliceView
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView, PodView
    from karpenter_core.lifecycle.nodeclaim.refused_nodes import RefusedNode
    from karpenter_core.lifecycle.nodeclaim.registration import PendingGate

__all__ = ["progress_step"]


def progress_step(
    claim: NodeClaim,
    nodes: Sequence[NodeView],
    *,
    now: datetime,
    refused: Sequence[RefusedNode],
    pending: Sequence[PendingGate],
    gate_error: Exception | None,
    launch_timeout: timedelta = LAUNCH_TIMEOUT,
    registration_timeout: timedelta = REGISTRATION_TIMEOUT,
    shown_for: timedelta = RECOVERY_TIME,
    slices: Sequence[ResourceSliceView] | None,
    planned: Iterable[PodView],
) -> LifecycleStep:
    """Advance a claim as far as its node allows.

    `nodes` are those with the claim's provider ID, without those that are `refused`; `pending` are the
    gates that hold its registration. A claim that is not launched has no node, and its conditions say so. `slices` are the ResourceSlices
    of the node; None if requests for devices are ignored. `planned` are the waiting pods for which the
    node was launched. `shown_for` as in `liveness_step`.
    """
    planned = tuple(planned)
    step = LifecycleStep(claim=with_current_generation(claim, now))
    if is_unknown(step.claim.status.conditions, REGISTERED):
        step = merge_steps(
            step,
            registration_step(
                step.claim,
                nodes,
                now=now,
                refused=refused,
                pending=pending,
                gate_error=gate_error,
                planned=planned,
            ),
        )
    if step.node is not None:
        nodes = tuple(step.node.applied_to(node) for node in nodes)
    step = merge_steps(step, initialization_step(step.claim, nodes, now=now, slices=slices))
    return merge_steps(
        step,
        liveness_step(
            step.claim,
            now=now,
            launch_timeout=launch_timeout,
            registration_timeout=registration_timeout,
            shown_for=shown_for,
            planned=planned,
        ),
    )
