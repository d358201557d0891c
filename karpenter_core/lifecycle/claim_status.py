"""Makes copies of NodeClaims with a condition, label or annotation changed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal

from karpenter_core.api.conditions import FALSE, TRUE, find_condition
from karpenter_core.api.labels import CAPACITY_TYPE, NODE_POOL, ZONE
from karpenter_core.api.nodeclaim import NODE_CLAIM_CONDITIONS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from karpenter_core.api.conditions import Condition
    from karpenter_core.api.nodeclaim import NodeClaim

__all__ = [
    "CLOCK_SKEW",
    "condition_of",
    "disrupted_labels",
    "metric_labels",
    "truncate_message",
    "with_condition",
    "with_conditions",
    "with_current_generation",
    "with_initial_conditions",
    "with_metadata",
    "with_past_transition_time",
    "without_condition",
]

CLOCK_SKEW: Final = timedelta(minutes=1)
"""The clocks of two processes may differ by this much without either being wrong."""
MAX_MESSAGE: Final = 300
"""Length to which a cloud's messages are cut (upstream default)."""


def condition_of(claim: NodeClaim, condition_type: str) -> Condition | None:
    """Return one condition of a claim."""
    return find_condition(claim.status.conditions, condition_type)


def with_initial_conditions(claim: NodeClaim, *, now: datetime) -> NodeClaim:
    """Return the claim with every condition that a NodeClaim must have.

    A new condition is dated now; the time limits of launch and registration run from it.
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
    """Return the claim with one condition set; the reason defaults to the condition's type."""
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


def with_current_generation(claim: NodeClaim, now: datetime) -> NodeClaim:
    """Return the claim with its finished stages marked as observed at its current generation.

    A stage that is True or False is not evaluated again, yet `Ready` counts it only when it was
    observed at the current generation.
    """
    generation = claim.metadata.generation
    settled = [
        item
        for item in claim.status.conditions
        if item.type in NODE_CLAIM_CONDITIONS.dependents and item.status in {TRUE, FALSE}
    ]
    if all(item.observed_generation == generation for item in settled):
        return claim
    # All but the last at once, so that `Ready` is computed once and does not flip in between.
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


def with_past_transition_time(claim: NodeClaim, condition_type: str, now: datetime) -> NodeClaim:
    """Return the claim with a condition that is dated in the future dated now instead.

    The clock was ahead when the condition was set and has been corrected since. The same object is
    returned when the condition is missing or its date is plausible.
    """
    condition = condition_of(claim, condition_type)
    since = None if condition is None else condition.last_transition_time
    if since is None or since - now <= CLOCK_SKEW:
        return claim
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
    """Return the claim with these conditions; the same object when nothing changed."""
    if conditions == claim.status.conditions:
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
    """Return the metric labels `nodepool`, `capacity_type` and `zone` from the claim's labels."""
    keys = {"nodepool": NODE_POOL, "capacity_type": CAPACITY_TYPE, "zone": ZONE}
    return {name: claim.metadata.labels.get(keys[name], "") for name in names}


def disrupted_labels(
    claim: NodeClaim, reason: str, *, consolidation_policy: str = ""
) -> dict[str, str]:
    """Return the metric labels under which a claim that this controller deletes is counted."""
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


def truncate_message(text: str) -> str:
    """Shorten a cloud's message so that it fits a condition or an Event."""
    return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}..."
