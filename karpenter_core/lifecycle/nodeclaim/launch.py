"""Launching: from a claim to an instance, once.

The provider is asked for a claim until it answers with an instance; the claim's UID is its token,
so that asking again after a crash finds what was launched. While a call is open, or when its
result is remembered, nobody is asked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from karpenter_core.api.conditions import UNKNOWN, is_unknown
from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, TERMINATION_FINALIZER, ZONE
from karpenter_core.api.nodeclaim import LAUNCH_FAILED, LAUNCHED
from karpenter_core.api.notices import Notice
from karpenter_core.api.quantities import format_resources
from karpenter_core.errors import (
    AuthError,
    CallPendingError,
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    NodeClassNotReadyError,
    OfferingKey,
    ThrottledError,
)
from karpenter_core.lifecycle.changes import Fact, Step
from karpenter_core.lifecycle.claim_status import (
    cut,
    disrupted_labels,
    with_condition,
    with_metadata,
)
from karpenter_core.scheduling.requirements import Requirements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import Resources
    from karpenter_core.errors import CloudProviderError
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.state.ledger import LedgerView

INSUFFICIENT_CAPACITY: Final = "insufficient_capacity"
NODE_CLASS_NOT_READY: Final = "nodeclass_not_ready"
MAX_CONDITION_MESSAGE: Final = 32_768
"""Of a condition (CustomResourceDefinition of NodeClaims)."""
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")

__all__ = [
    "INSUFFICIENT_CAPACITY",
    "NODE_CLASS_NOT_READY",
    "LaunchAction",
    "LaunchAdvice",
    "LaunchedMachine",
    "exhausted_offerings",
    "finalizer_step",
    "launch_advice",
    "launch_failed",
    "launched_claim",
    "launched_step",
]


class LaunchedMachine(Protocol):
    """An instance as a provider describes it."""

    @property
    def provider_id(self) -> str: ...  # noqa: D102 - as in the provider contract
    @property
    def instance_type(self) -> str: ...  # noqa: D102
    @property
    def zone(self) -> str: ...  # noqa: D102
    @property
    def capacity_type(self) -> str: ...  # noqa: D102
    @property
    def capacity(self) -> Resources: ...  # noqa: D102
    @property
    def allocatable(self) -> Resources: ...  # noqa: D102
    @property
    def image_id(self) -> str: ...  # noqa: D102
    @property
    def labels(self) -> Mapping[str, str]: ...  # noqa: D102
    @property
    def annotations(self) -> Mapping[str, str]: ...  # noqa: D102


class LaunchAction(Enum):
    """What a claim needs next."""

    NONE = "launched, or given up"
    ADOPT = "take the result that is remembered"
    CALL = "ask the provider"
    WAIT = "a call is open"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAdvice:
    """What to do about a claim's launch; `result` is there to adopt."""

    action: LaunchAction
    result: NodeClaim | None = None


def finalizer_step(claim: NodeClaim) -> Step | None:
    """Put the finalizer on, which must be there before anything can be launched."""
    if TERMINATION_FINALIZER in claim.metadata.finalizers:
        return None
    finalizers = (*claim.metadata.finalizers, TERMINATION_FINALIZER)
    return Step(claim=with_metadata(claim, finalizers=finalizers))


def launch_advice(claim: NodeClaim, ledger: LedgerView) -> LaunchAdvice:
    """Say whether the provider is to be asked for this claim."""
    if not is_unknown(claim.status.conditions, LAUNCHED):
        return LaunchAdvice(action=LaunchAction.NONE)
    known = ledger.launches.get(claim.uid)
    if known is not None:
        return LaunchAdvice(action=LaunchAction.ADOPT, result=known.claim)
    if claim.uid in ledger.open_launches:
        return LaunchAdvice(action=LaunchAction.WAIT)
    return LaunchAdvice(action=LaunchAction.CALL)


def launched_claim(claim: NodeClaim, machine: LaunchedMachine) -> NodeClaim:
    """Return the claim as the provider completed it: what a launch leaves to remember.

    Of labels the claim's own win, of annotations the provider's.
    """
    resolved = {
        INSTANCE_TYPE: machine.instance_type,
        ZONE: machine.zone,
        CAPACITY_TYPE: machine.capacity_type,
    }
    labels = {key: value for key, value in resolved.items() if value}
    completed = with_metadata(
        claim,
        labels={**labels, **machine.labels, **claim.metadata.labels},
        annotations={**claim.metadata.annotations, **machine.annotations},
    )
    status = claim.status.model_copy(
        update={
            "provider_id": machine.provider_id,
            "image_id": machine.image_id,
            "capacity": format_resources(machine.capacity),
            "allocatable": format_resources(machine.allocatable),
        },
    )
    return completed.model_copy(update={"status": status})


def launched_step(claim: NodeClaim, result: NodeClaim, now: datetime) -> Step:
    """Take over what a launch brought, and say so."""
    merged = with_metadata(
        claim,
        labels={**result.metadata.labels, **claim.metadata.labels},
        annotations={**claim.metadata.annotations, **result.metadata.annotations},
    )
    status = claim.status.model_copy(
        update={
            "provider_id": result.status.provider_id,
            "image_id": result.status.image_id,
            "capacity": result.status.capacity,
            "allocatable": result.status.allocatable,
        },
    )
    merged = merged.model_copy(update={"status": status})
    return Step(claim=with_condition(merged, LAUNCHED, now=now))


def launch_failed(
    claim: NodeClaim,
    error: CloudProviderError,
    *,
    now: datetime,
    instance_types: Iterable[InstanceType] = (),
) -> Step:
    """Answer a launch that brought nothing.

    Without capacity the claim goes, so that its pods are placed anew with the offering masked; so
    it does when its NodeClass is not usable. Everything else is tried again until liveness ends it.
    """
    match error:
        case CallPendingError():
            return Step(claim=claim)
        case InsufficientCapacityError():
            return Step(
                claim=claim,
                notices=(_warning_notice(claim, error, reason="InsufficientCapacityError"),),
                facts=(_disrupted(claim, INSUFFICIENT_CAPACITY),),
                exhausted=exhausted_offerings(
                    error, instance_types, Requirements.from_specs(claim.spec.requirements)
                ),
                exhausted_for=(
                    claim.spec.node_class_ref.name
                    if error.scope is ExhaustedScope.NODE_CLASS
                    else ""
                ),
                delete=INSUFFICIENT_CAPACITY,
            )
        case NodeClassNotReadyError():
            return Step(
                claim=claim,
                notices=(_warning_notice(claim, error, reason="NodeClassNotReady"),),
                facts=(_disrupted(claim, NODE_CLASS_NOT_READY),),
                delete=NODE_CLASS_NOT_READY,
            )
        case LaunchFailedError() | AuthError():
            # A reason that the API server refuses would keep the whole status from being written.
            reason = error.reason if _REASON.fullmatch(error.reason) else LAUNCH_FAILED
            message = str(error)[:MAX_CONDITION_MESSAGE]
        case _:
            reason, message = LAUNCH_FAILED, cut(str(error))
    return Step(
        claim=with_condition(
            claim, LAUNCHED, status=UNKNOWN, reason=reason, message=message, now=now
        ),
        requeue_after=error.retry_after if isinstance(error, ThrottledError) else None,
        error=error,
    )


def exhausted_offerings(
    error: InsufficientCapacityError,
    instance_types: Iterable[InstanceType],
    requirements: Requirements,
) -> tuple[OfferingKey, ...]:
    """Return every offering that a stock-out reaches, out of the types that were asked for.

    A zone or region without capacity has none for any type under the same capacity type; which
    types share a family's quota only the provider knows, who then names them all. An error that
    names nothing is about all that the claim could have become: else the next plan would ask for
    the same, again and again.
    """
    if not error.offerings:
        return tuple(
            OfferingKey(
                instance_type=item.name, zone=offering.zone, capacity_type=offering.capacity_type
            )
            for item in instance_types
            for offering in item.offerings
            if offering.available and offering.requirements.intersects(requirements)
        )
    if error.scope not in {ExhaustedScope.ZONE, ExhaustedScope.REGION}:
        return error.offerings
    where = {
        (key.zone if error.scope is ExhaustedScope.ZONE else "", key.capacity_type)
        for key in error.offerings
    }
    wider = (
        OfferingKey(
            instance_type=item.name, zone=offering.zone, capacity_type=offering.capacity_type
        )
        for item in instance_types
        for offering in item.offerings
        if (
            offering.zone if error.scope is ExhaustedScope.ZONE else "",
            offering.capacity_type,
        )
        in where
    )
    return tuple(dict.fromkeys((*error.offerings, *wider)))


def _warning_notice(claim: NodeClaim, error: CloudProviderError, *, reason: str) -> Notice:
    return Notice(
        regarding=claim.ref,
        type="Warning",
        reason=reason,
        message=f"NodeClaim {claim.name} event: {cut(str(error))}",
        dedupe=(claim.uid,),
    )


def _disrupted(claim: NodeClaim, reason: str) -> Fact:
    return Fact(metric=DISRUPTED, labels=disrupted_labels(claim, reason))


DISRUPTED: Final = "nodeclaims_disrupted"
