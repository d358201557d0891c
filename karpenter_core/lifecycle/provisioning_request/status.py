"""Copies ProvisioningRequests with a changed condition or status detail."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

from karpenter_core.api.conditions import FALSE, TRUE, with_condition
from karpenter_core.api.provisioning_request import (
    ACCEPTED,
    BOOKING_EXPIRED,
    CAPACITY_REVOKED,
    FAILED,
    PARTIAL_CAPACITY_FOUND,
    PROVISIONED,
)
from karpenter_core.lifecycle.provisioning_request.parameters import PARTIAL_CHECK
from karpenter_core.state.bookings import ATTEMPT_CLAIMS_DETAIL
from karpenter_core.state.gang_places import is_places_detail, places_details

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.api.provisioning_request import ProvisioningRequest
    from karpenter_core.state.gang_places import Places

__all__ = [
    "attempt_number",
    "retry_time",
    "status_patch",
    "with_acceptance",
    "with_attempt_ended",
    "with_attempt_started",
    "with_booking_expired",
    "with_failure",
    "with_missing_templates",
    "with_partial_capacity",
    "with_provisioned",
    "with_revocation",
]

SCHEDULABLE_DETAIL: Final = "schedulablePodSets"
"""Key in `status.provisioningClassDetails`: names of the pod sets that fit, as JSON (upstream's)."""
ATTEMPTS_DETAIL: Final = "karpenter.sh/attempts"
"""Key in `status.provisioningClassDetails`: number of the newest attempt to find the capacity."""
RETRY_DETAIL: Final = "karpenter.sh/retry-after"
"""Key in `status.provisioningClassDetails`: time before which no further attempt begins."""

FIRST_RETRY: Final = timedelta(minutes=1)  # upstream default
LONGEST_RETRY: Final = timedelta(minutes=10)  # upstream default

# Reasons: those of Cluster Autoscaler where it has one
CAPACITY_FOUND: Final = "CapacityIsFound"
CAPACITY_PROVISIONED: Final = "CapacityIsProvisioned"
CAPACITY_NOT_FOUND: Final = "CapacityIsNotFound"
RESERVATION_EXPIRED: Final = "CapacityReservationTimeExpired"
EXPIRED: Final = "Expired"
LAUNCHING: Final = "CapacityIsLaunching"  # ours, like the following ones
INVALID: Final = "InvalidRequest"
NO_TEMPLATE: Final = "PodTemplateNotFound"
NODES_LOST: Final = "NodesLost"
_LONGEST_MESSAGE: Final = 2_000
"""Length to which messages are cut: a plan's reasons can be as long as its pools are many."""


def attempt_number(request: ProvisioningRequest) -> int:
    """Return the number of the newest attempt; 0 before the first."""
    text = request.status.provisioning_class_details.get(ATTEMPTS_DETAIL, "")
    return int(text) if text.isdecimal() else 0


def retry_time(request: ProvisioningRequest) -> datetime | None:
    """Return when the next attempt may begin; None: at once."""
    text = request.status.provisioning_class_details.get(RETRY_DETAIL, "")
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def with_acceptance(request: ProvisioningRequest, *, now: datetime) -> ProvisioningRequest:
    """Return the request accepted: attempts to find its capacity begin."""
    return _with(request, ACCEPTED, TRUE, ACCEPTED, "The request is accepted by Karpenter", now)


def with_missing_templates(
    request: ProvisioningRequest, names: tuple[str, ...], *, now: datetime
) -> ProvisioningRequest:
    """Return the request not accepted yet, since PodTemplates do not exist."""
    text = f"PodTemplates of the request do not exist: {', '.join(names)}"
    return _with(request, ACCEPTED, FALSE, NO_TEMPLATE, text, now)


def with_attempt_started(
    request: ProvisioningRequest,
    places: Places,
    *,
    claims: int,
    starting: tuple[str, ...],
    now: datetime,
) -> ProvisioningRequest:
    """Return the request as it is before the NodeClaims of an attempt are created.

    `starting` are NodeClaims with places of it that exist already, and are not ready.
    """
    number = attempt_number(request) + 1
    details = {
        ATTEMPTS_DETAIL: str(number),
        ATTEMPT_CLAIMS_DETAIL: str(claims),
        **places_details(places),
    }
    text = f"Attempt {number}: {claims} NodeClaim(s) are launched for {request.pod_count} pod(s)"
    if starting:
        text += f", and {len(starting)} that start already have places for some of them"
    launching = _with(request, PROVISIONED, FALSE, LAUNCHING, text, now)
    return _with_details(launching, details)


def with_attempt_ended(
    request: ProvisioningRequest, why: str, *, now: datetime
) -> ProvisioningRequest:
    """Return the request without its attempt, which failed or found no capacity, and with a back-off.

    An attempt that created no NodeClaim is counted here.
    """
    is_started = ATTEMPT_CLAIMS_DETAIL in request.status.provisioning_class_details
    number = attempt_number(request) + (not is_started)
    pause = min(FIRST_RETRY * 2 ** min(number - 1, 10), LONGEST_RETRY)
    retry = (now + pause).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = f"Attempt {number} failed, the next one is at {retry}: {why}"
    ended = _with(request, PROVISIONED, FALSE, CAPACITY_NOT_FOUND, text, now)
    return _with_details(ended, {ATTEMPTS_DETAIL: str(number), RETRY_DETAIL: retry})


def with_partial_capacity(
    request: ProvisioningRequest,
    pod_sets: tuple[int, ...],
    places: Places,
    *,
    is_booked: bool,
    now: datetime,
) -> ProvisioningRequest:
    """Return the request with the pod sets that fit: booked for good, or to be checked again."""
    names = _pod_set_names(request, pod_sets)
    others = range(len(request.spec.pod_sets))
    missing = _pod_set_names(request, [index for index in others if index not in pod_sets])
    text = (
        f"Existing nodes have the capacity of pod set(s) {', '.join(names)}, and not that of "
        f"{', '.join(missing)}"
    )
    shown = {SCHEDULABLE_DETAIL: json.dumps(names)}
    if not is_booked:
        ended = with_attempt_ended(request, text, now=now)
        details = ended.status.provisioning_class_details
        found = _with(ended, PROVISIONED, FALSE, PARTIAL_CAPACITY_FOUND, _message_of(ended), now)
        return _with_details(found, {**details, **shown})
    number = str(attempt_number(request) + 1)
    found = _with(request, PROVISIONED, TRUE, PARTIAL_CAPACITY_FOUND, text, now)
    return _with_details(found, {ATTEMPTS_DETAIL: number, **shown, **places_details(places)})


def _pod_set_names(request: ProvisioningRequest, pod_sets: Iterable[int]) -> list[str]:
    return [request.spec.pod_sets[index].pod_template_ref.name for index in pod_sets]


def _message_of(request: ProvisioningRequest) -> str:
    condition = request.condition(PROVISIONED)
    return "" if condition is None else condition.message


def with_provisioned(
    request: ProvisioningRequest, places: Places, *, launched: int, now: datetime
) -> ProvisioningRequest:
    """Return the request provisioned, with its places on capacity that existed before."""
    if launched:
        reason, text = CAPACITY_PROVISIONED, f"{launched} node(s) were launched for the request"
    else:
        reason, text = CAPACITY_FOUND, "Existing nodes have the capacity"
    is_started = ATTEMPT_CLAIMS_DETAIL in request.status.provisioning_class_details
    number = attempt_number(request) + (not is_started)
    details = {ATTEMPTS_DETAIL: str(number), **places_details(places)}
    if not launched and request.spec.parameters.get(PARTIAL_CHECK):
        names = _pod_set_names(request, range(len(request.spec.pod_sets)))
        details[SCHEDULABLE_DETAIL] = json.dumps(names)
    return _with_details(_with(request, PROVISIONED, TRUE, reason, text, now), details)


def with_booking_expired(request: ProvisioningRequest, *, now: datetime) -> ProvisioningRequest:
    """Return the request whose booked capacity is free for others again."""
    text = "The time for which the capacity was booked is over"
    return _with(request, BOOKING_EXPIRED, TRUE, RESERVATION_EXPIRED, text, now)


def with_revocation(
    request: ProvisioningRequest, lost: int, *, now: datetime
) -> ProvisioningRequest:
    """Return the request whose nodes were lost before all of its pods arrived."""
    text = f"Nodes with booked capacity for {lost} pod(s) are gone or are being removed"
    return _with(request, CAPACITY_REVOKED, TRUE, NODES_LOST, text, now)


def with_failure(
    request: ProvisioningRequest,
    why: str,
    *,
    reason: Literal["Expired", "InvalidRequest", "CapacityIsNotFound"],
    now: datetime,
) -> ProvisioningRequest:
    """Return the request failed for good."""
    failed = _with(request, FAILED, TRUE, reason, why, now)
    return _with_details(failed, {ATTEMPTS_DETAIL: str(attempt_number(request))})


def status_patch(old: ProvisioningRequest, new: ProvisioningRequest) -> JsonObject | None:
    """Return the merge patch of the status; None if nothing changed."""
    if old.status == new.status:
        return None
    before, after = old.status.provisioning_class_details, new.status.provisioning_class_details
    details = {**dict.fromkeys(before.keys() - after.keys()), **after}
    dumped: JsonObject = new.status.model_dump(mode="json", exclude_none=True)
    return {
        "status": {"conditions": dumped["conditions"], "provisioningClassDetails": details or None}
    }


def _with_details(request: ProvisioningRequest, details: Mapping[str, str]) -> ProvisioningRequest:
    """Replace our details by these; those of others stay."""
    ours = {ATTEMPTS_DETAIL, ATTEMPT_CLAIMS_DETAIL, RETRY_DETAIL, SCHEDULABLE_DETAIL}
    kept = {
        key: value
        for key, value in request.status.provisioning_class_details.items()
        if key not in ours and not is_places_detail(key)
    }
    attempts = {} if details.get(ATTEMPTS_DETAIL) == "0" else dict(details)
    update = {"provisioning_class_details": {**kept, **attempts}}
    return request.model_copy(update={"status": request.status.model_copy(update=update)})


def _with(
    request: ProvisioningRequest,
    condition_type: str,
    status: Literal["True", "False"],
    reason: str,
    message: str,
    now: datetime,
) -> ProvisioningRequest:
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[:_LONGEST_MESSAGE]}..."
    conditions = with_condition(
        request.status.conditions,
        type=condition_type,
        status=status,
        reason=reason,
        message=message,
        now=now,
        generation=request.metadata.generation,
    )
    update = {"conditions": conditions}
    return request.model_copy(update={"status": request.status.model_copy(update=update)})
