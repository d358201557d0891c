"""Setting things on a NodeClaim: copies with one condition, label or annotation changed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal

from karpenter_core.api.conditions import FALSE, TRUE, find
from karpenter_core.api.labels import CAPACITY_TYPE, NODE_POOL, ZONE
from karpenter_core.api.nodeclaim import NODE_CLAIM_CONDITIONS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_core.api.conditions import Condition
    from karpenter_core.api.nodeclaim import NodeClaim

__all__ = [
    "CLOCKS_DIFFER",
    "condition_of",
    "cut",
    "disrupted_labels",
    "initialise",
    "metric_labels",
    "redated",
    "restamped",
    "with_condition",
    "with_conditions",
    "with_metadata",
    "without_condition",
]

CLOCKS_DIFFER: Final = timedelta(minutes=1)
"""By how much the clocks of two processes may differ without either being wrong."""
MAX_MESSAGE: Final = 300
"""Length at which texts of clouds are cut (upstream default)."""


def condition_of(claim: NodeClaim, condition_type: str) -> Condition | None:
    """Return one condition of a claim."""
    return find(claim.status.conditions, condition_type)


def initialise(claim: NodeClaim, *, now: datetime) -> NodeClaim:
    """Return the claim with every condition that must be there.

    A condition that is new is dated by the controller's clock, by which the time limits of launch and
    registration pass. The API server's, which dated the creation of the claim, may show hours less.
    """
    return with_conditions(
        claim,
        NODE_CLAIM_CONDITIONS.initialise(
            claim.status.conditions,
            since=now,
            generation=claim.metadata.generation,
            deleting=claim.is_deleting,
        ),
    )


def with_condition(
    claim: NodeClaim,
    condition_type: str,
    *,
    now: datetime,
    status: Literal["True", "False", "Unknown"] = TRUE,
    reason: str = "",
    message: str = "",
) -> NodeClaim:
    """Return the claim with one condition set; a reason that is not given is the type's name."""
    return with_conditions(
        claim,
        NODE_CLAIM_CONDITIONS.set(
            claim.status.conditions,
            type=condition_type,
            status=status,
            reason=reason or condition_type,
            message=message,
            now=now,
            generation=claim.metadata.generation,
            deleting=claim.is_deleting,
        ),
    )


def restamped(claim: NodeClaim, now: datetime) -> NodeClaim:
    """Return the claim with what is settled of its stages observed at its generation.

    A stage that is True or False is not judged again, yet `Ready` counts it only when it was judged
    at the current generation.
    """
    generation = claim.metadata.generation
    settled = [
        item
        for item in claim.status.conditions
        if item.type in NODE_CLAIM_CONDITIONS.dependents and item.status in {TRUE, FALSE}
    ]
    if all(item.observed_generation == generation for item in settled):
        return claim
    # All but one at once, so that `Ready` is judged once and does not waver on the way.
    last = settled[-1]
    others = {item.type for item in settled[:-1]}
    bumped = tuple(
        item.model_copy(update={"observed_generation": generation}) if item.type in others else item
        for item in claim.status.conditions
    )
    return with_condition(
        with_conditions(claim, bumped),
        last.type,
        now=now,
        status=TRUE if last.status == TRUE else FALSE,
        reason=last.reason,
        message=last.message,
    )


def redated(claim: NodeClaim, condition_type: str, now: datetime) -> NodeClaim:
    """Return the claim with one condition as it is, but since now."""
    return with_conditions(
        claim,
        tuple(
            item.model_copy(update={"last_transition_time": now})
            if item.type == condition_type
            else item
            for item in claim.status.conditions
        ),
    )


def without_condition(claim: NodeClaim, condition_type: str) -> NodeClaim:
    """Return the claim without an independent condition."""
    return with_conditions(
        claim, NODE_CLAIM_CONDITIONS.clear(claim.status.conditions, condition_type)
    )


def with_conditions(claim: NodeClaim, conditions: tuple[Condition, ...]) -> NodeClaim:
    """Return the claim with these conditions; the same object when they are its own."""
    if conditions is claim.status.conditions or conditions == claim.status.conditions:
        return claim
    status = claim.status.model_copy(update={"conditions": conditions})
    return claim.model_copy(update={"status": status})


def with_metadata(
    claim: NodeClaim,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    finalizers: tuple[str, ...] | None = None,
) -> NodeClaim:
    """Return the claim with these labels, annotations or finalizers in place of its own."""
    update: dict[str, object] = {}
    if labels is not None and labels != claim.metadata.labels:
        update["labels"] = dict(labels)
    if annotations is not None and annotations != claim.metadata.annotations:
        update["annotations"] = dict(annotations)
    if finalizers is not None and finalizers != claim.metadata.finalizers:
        update["finalizers"] = finalizers
    if not update:
        return claim
    return claim.model_copy(update={"metadata": claim.metadata.model_copy(update=update)})


def metric_labels(claim: NodeClaim, *names: str) -> dict[str, str]:
    """Return labels of metrics out of the claim's labels: `nodepool`, `capacity_type`, `zone`."""
    keys = {"nodepool": NODE_POOL, "capacity_type": CAPACITY_TYPE, "zone": ZONE}
    return {name: claim.metadata.labels.get(keys[name], "") for name in names}


def disrupted_labels(
    claim: NodeClaim, reason: str, *, consolidation_policy: str = ""
) -> dict[str, str]:
    """Return the labels under which a claim that we delete is counted."""
    period = claim.spec.termination_grace_period
    if period is None:
        mode = "graceful"
    else:
        mode = "eventual" if period.timedelta.total_seconds() > 0 else "forceful"
    return {
        "reason": reason,
        **metric_labels(claim, "nodepool", "capacity_type"),
        "consolidation_policy": consolidation_policy,
        "termination_mode": mode,
    }


def cut(text: str) -> str:
    """Shorten a cloud's text to what fits a condition or an Event."""
    return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}..."
