"""Decides whether to launch a claim, and applies the result of the launch.

The provider is called until it answers with an instance. The claim's UID is the idempotency token, so
that a call after a crash finds the instance that was launched before. While a call is open, or its
result is in the ledger, the provider is not called.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from karpenter_core.api.conditions import UNKNOWN, is_condition_reason, is_unknown
from karpenter_core.api.labels import (
    CAPACITY_TYPE,
    CAPACITY_TYPES,
    INSTANCE_TYPE,
    ON_DEMAND,
    SPOT,
    TERMINATION_FINALIZER,
    ZONE,
)
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
from karpenter_core.lifecycle.changes import LifecycleMetric, LifecycleStep, MetricUpdate
from karpenter_core.lifecycle.claim_status import (
    disrupted_labels,
    truncate_message,
    with_condition,
    with_metadata,
)
from karpenter_core.lifecycle.nodeclaim.registration import pool_uid_of
from karpenter_core.scheduling.requirements import Requirements
from karpenter_core.state.events import RegistrationSettled
from karpenter_core.state.unavailable_offerings import contain_offerings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import Resources
    from karpenter_core.errors import CloudProviderError, OfferingMask
    from karpenter_core.scheduling.instance_types import InstanceType
    from karpenter_core.state.ledger_view import LedgerView

INSUFFICIENT_CAPACITY: Final = "insufficient_capacity"
NODE_CLASS_NOT_READY: Final = "nodeclass_not_ready"
NOTHING_ALLOWED: Final = "NoOfferingAllowed"
"""Reason of a NodePool whose claims allow no offering."""
MAX_CONDITION_MESSAGE: Final = 32_768
"""Longest message of a condition (CustomResourceDefinition of NodeClaims)."""

__all__ = [
    "INSUFFICIENT_CAPACITY",
    "NODE_CLASS_NOT_READY",
    "InstanceDescription",
    "LaunchAction",
    "LaunchAdvice",
    "exhausted_for",
    "exhausted_offerings",
    "finalizer_step",
    "launch_advice",
    "launch_failed",
    "launched_claim",
    "launched_step",
]


class InstanceDescription(Protocol):
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
    """The next action for a claim's launch."""

    NONE = "nothing: it is launched or given up"
    ADOPT = "apply the result in the ledger"
    CALL = "call the provider"
    WAIT = "wait for the open call"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAdvice:
    """The next action for a claim's launch; with ADOPT, `result` is the launched claim."""

    action: LaunchAction
    result: NodeClaim | None = None


def finalizer_step(claim: NodeClaim) -> LifecycleStep | None:
    """Add the finalizer, without which nothing is launched; None if the claim has it."""
    if TERMINATION_FINALIZER in claim.metadata.finalizers:
        return None
    finalizers = (*claim.metadata.finalizers, TERMINATION_FINALIZER)
    return LifecycleStep(claim=with_metadata(claim, finalizers=finalizers))


def launch_advice(claim: NodeClaim, ledger: LedgerView) -> LaunchAdvice:
    """Decide whether to call the provider for this claim."""
    if not is_unknown(claim.status.conditions, LAUNCHED):
        return LaunchAdvice(action=LaunchAction.NONE)
    launch = ledger.launches.get(claim.uid)
    if launch is not None:
        return LaunchAdvice(action=LaunchAction.ADOPT, result=launch.claim)
    if claim.uid in ledger.open_launches:
        return LaunchAdvice(action=LaunchAction.WAIT)
    return LaunchAdvice(action=LaunchAction.CALL)


def launched_claim(claim: NodeClaim, instance: InstanceDescription) -> NodeClaim:
    """Return the claim completed with its instance, as the ledger keeps it.

    The claim's own labels win over the provider's, the provider's annotations over the claim's.
    """
    resolved = {
        INSTANCE_TYPE: instance.instance_type,
        ZONE: instance.zone,
        CAPACITY_TYPE: instance.capacity_type,
    }
    labels = {key: value for key, value in resolved.items() if value}
    completed = with_metadata(
        claim,
        labels={**labels, **instance.labels, **claim.metadata.labels},
        annotations={**claim.metadata.annotations, **instance.annotations},
    )
    status = claim.status.model_copy(
        update={
            "provider_id": instance.provider_id,
            "image_id": instance.image_id,
            "capacity": format_resources(instance.capacity),
            "allocatable": format_resources(instance.allocatable),
        },
    )
    return completed.model_copy(update={"status": status})


def launched_step(claim: NodeClaim, result: NodeClaim, now: datetime) -> LifecycleStep:
    """Apply the result of a launch to the claim and set Launched."""
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
    return LifecycleStep(claim=with_condition(merged, LAUNCHED, now=now))


def launch_failed(
    claim: NodeClaim,
    error: CloudProviderError,
    *,
    now: datetime,
    instance_types: Iterable[InstanceType] = (),
) -> LifecycleStep:
    """Return what follows from a failed launch.

    Without capacity the claim is deleted, and its pods are planned anew without the offering; if its
    NodeClass is not ready it is deleted too. Other errors are retried until liveness gives up.
    """
    match error:
        case CallPendingError():
            return LifecycleStep(claim=claim)
        case InsufficientCapacityError():
            types = tuple(instance_types)
            requirements = Requirements.from_specs(claim.spec.requirements)
            exhausted = exhausted_offerings(error, types, requirements)
            return LifecycleStep(
                claim=claim,
                notices=(_warning_notice(claim, error, reason="InsufficientCapacityError"),),
                metric_updates=(_disrupted_metric(claim, INSUFFICIENT_CAPACITY),),
                events=() if exhausted else _without_offering(claim, types, requirements),
                exhausted=exhausted,
                exhausted_for=exhausted_for(claim, error),
                delete=INSUFFICIENT_CAPACITY,
            )
        case NodeClassNotReadyError():
            return LifecycleStep(
                claim=claim,
                notices=(_warning_notice(claim, error, reason="NodeClassNotReady"),),
                metric_updates=(_disrupted_metric(claim, NODE_CLASS_NOT_READY),),
                delete=NODE_CLASS_NOT_READY,
            )
        case LaunchFailedError() | AuthError():
            # The API server would reject the whole status because of an invalid reason.
            reason = error.reason if is_condition_reason(error.reason) else LAUNCH_FAILED
            message = str(error)[:MAX_CONDITION_MESSAGE]
        case _:
            reason, message = LAUNCH_FAILED, truncate_message(str(error))
    return LifecycleStep(
        claim=with_condition(
            claim, LAUNCHED, status=UNKNOWN, reason=reason, message=message, now=now
        ),
        requeue_after=error.retry_after if isinstance(error, ThrottledError) else None,
        error=error,
    )


def _without_offering(
    claim: NodeClaim, instance_types: Iterable[InstanceType], requirements: Requirements
) -> tuple[RegistrationSettled, ...]:
    """Return a failure of the pool if a claim allows no offering at all, sold out ones included.

    No plan has such requirements: a webhook has changed them. The next plan would be the same, and with
    nothing sold out its claim would be created at once, and again without end.
    """
    owner = pool_uid_of(claim)
    if not owner or any(
        offering.requirements.intersects(requirements)
        for item in instance_types
        for offering in item.offerings
    ):
        return ()
    message = (
        f"NodeClaim {claim.name} allows no instance type and zone of its NodePool: check the admission "
        "webhooks and policies that change NodeClaims"
    )
    return (
        RegistrationSettled(
            pool_uid=owner, succeeded=False, reason=NOTHING_ALLOWED, message=message
        ),
    )


def exhausted_offerings(
    error: InsufficientCapacityError,
    instance_types: Iterable[InstanceType],
    requirements: Requirements,
) -> tuple[OfferingMask, ...]:
    """Return all that an error makes unavailable.

    A zone or region without capacity has none for any requested type of the same capacity type. Only
    the provider knows which types share a quota, so it names their offerings or their group. An error
    that names nothing, or groups without a requested offering, covers every offering that the claim
    could have used: otherwise the next plan would choose the same ones again and again.
    """
    groups = tuple(
        replace(group, capacity_type=capacity_type)
        for group in error.quota_groups
        for capacity_type in ([group.capacity_type] if group.capacity_type else CAPACITY_TYPES)
    )
    types = tuple(instance_types)
    if not error.offerings and contain_offerings(groups, types):
        return groups
    return (*_exhausted_keys(error, types, requirements), *groups)


def exhausted_for(claim: NodeClaim, error: InsufficientCapacityError) -> str:
    """Return the only NodeClass that a shortage is about; empty for all NodeClasses."""
    return claim.spec.node_class_ref.name if error.scope is ExhaustedScope.NODE_CLASS else ""


def _exhausted_keys(
    error: InsufficientCapacityError,
    instance_types: Iterable[InstanceType],
    requirements: Requirements,
) -> tuple[OfferingKey, ...]:
    if not error.offerings:
        return tuple(
            OfferingKey(
                instance_type=item.name, zone=offering.zone, capacity_type=offering.capacity_type
            )
            for item in instance_types
            for offering in item.offerings
            if offering.available and offering.requirements.intersects(requirements)
        )
    if error.scope is ExhaustedScope.PLACEMENT:
        both = (
            replace(key, capacity_type=capacity_type)
            for key in error.offerings
            for capacity_type in (key.capacity_type, SPOT, ON_DEMAND)
        )
        return tuple(dict.fromkeys(both))
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
        message=f"NodeClaim {claim.name} event: {truncate_message(str(error))}",
        dedupe=(claim.uid,),
    )


def _disrupted_metric(claim: NodeClaim, reason: str) -> MetricUpdate:
    return MetricUpdate(
        metric=LifecycleMetric.NODECLAIMS_DISRUPTED, labels=disrupted_labels(claim, reason)
    )
