"""Decides the next step of a ProvisioningRequest, without planning capacity.

All that a decision needs is in the status of the request and in its NodeClaims, so a process that
takes over at any moment continues:

* The status says that an attempt runs, and with how many NodeClaims, before the first is created.
* Each NodeClaim carries the number of its attempt until the request is provisioned. A NodeClaim of an
  attempt that has ended, or whose request is gone, is deleted.
* An attempt fails as soon as it has fewer NodeClaims than it began with, for whatever reason: no
  capacity, a time limit, a process that died between two creations.
* The next attempt begins when no NodeClaim of an earlier one exists.
* Places may be on NodeClaims that another request or pending pods have launched. The attempt then
  lasts until these are ready and the attempt of the other request has ended well.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import find_condition, is_true
from karpenter_core.api.nodeclaim import INITIALIZED
from karpenter_core.api.provisioning_request import (
    ACCEPTED,
    BOOKING_TIME,
    FAILED,
    GANG_ATTEMPT,
    PROVISIONED,
)
from karpenter_core.lifecycle.provisioning_request.parameters import is_ours, parse_parameters
from karpenter_core.lifecycle.provisioning_request.status import (
    attempt_number,
    retry_time,
    with_acceptance,
    with_attempt_ended,
    with_booking_expired,
    with_failure,
    with_missing_templates,
    with_provisioned,
    with_revocation,
)
from karpenter_core.state.bookings import ATTEMPT_CLAIMS_DETAIL, is_launching, starting_claims
from karpenter_core.state.gang_places import parse_places

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.provisioning_request import ProvisioningRequest
    from karpenter_core.state.bookings import Booking
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["RequestStep", "gang_claims_in_attempt", "next_step", "orphaned_claims"]

TEMPLATE_GRACE: Final = timedelta(seconds=30)
"""Time that the author of a request has to create its PodTemplates: Kueue creates them after it."""
_LAUNCHED: Final = "Launched"
_REGISTERED: Final = "Registered"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStep:
    """The next step of one request.

    `request` has the status to write. After that, `delete` are NodeClaims to delete, and `release`
    NodeClaims that become nodes like others. `is_due`: its capacity is to be looked for now.
    `wake_at` is when the passing of time alone changes something.
    """

    request: ProvisioningRequest
    delete: tuple[NodeClaim, ...] = ()
    release: tuple[NodeClaim, ...] = ()
    is_due: bool = False
    wake_at: datetime | None = None


def next_step(
    snapshot: Snapshot,
    request: ProvisioningRequest,
    claims: tuple[NodeClaim, ...],
    booking: Booking | None,
    *,
    now: datetime,
) -> RequestStep:
    """Return the next step of a request that no other task works on."""
    unfinished = gang_claims_in_attempt(claims)
    if request.metadata.deletion_timestamp is not None or not is_ours(request):
        return RequestStep(request=request, delete=_alive(unfinished))
    if request.is_finished:
        if request.is_true(PROVISIONED) and not request.is_true(FAILED):
            return RequestStep(request=request, release=_alive(unfinished))
        return RequestStep(request=request, delete=_alive(unfinished))
    if request.is_true(PROVISIONED):
        return _booked(request, unfinished, booking, now=now)
    parameters = parse_parameters(request)
    if isinstance(parameters, str):
        failed = with_failure(request, parameters, reason="InvalidRequest", now=now)
        return RequestStep(request=failed, delete=_alive(unfinished))
    expiry = (request.metadata.creation_timestamp or now) + parameters.validity
    if now >= expiry:
        why = f"No capacity was found within {int(parameters.validity.total_seconds())} seconds"
        failed = with_failure(request, why, reason="Expired", now=now)
        return RequestStep(request=failed, delete=_alive(unfinished))
    if is_launching(request):
        return _attempt(snapshot, request, unfinished, booking, expiry=expiry, now=now)
    if unfinished:
        return RequestStep(request=request, delete=_alive(unfinished), wake_at=expiry)
    return _waiting(snapshot, request, expiry=expiry, now=now)


def gang_claims_in_attempt(claims: Iterable[NodeClaim]) -> tuple[NodeClaim, ...]:
    """Return the NodeClaims whose request is not known to be provisioned."""
    return tuple(claim for claim in claims if GANG_ATTEMPT in claim.metadata.annotations)


def orphaned_claims(
    snapshot: Snapshot, claims: dict[str, tuple[NodeClaim, ...]]
) -> tuple[NodeClaim, ...]:
    """Return NodeClaims of attempts whose request, by UID, does not exist any more."""
    known = {request.uid for request in snapshot.provisioning_requests.values()}
    return tuple(
        claim
        for uid, found in claims.items()
        if uid not in known
        for claim in _alive(gang_claims_in_attempt(found))
    )


def _booked(
    request: ProvisioningRequest,
    unfinished: tuple[NodeClaim, ...],
    booking: Booking | None,
    *,
    now: datetime,
) -> RequestStep:
    condition = request.condition(PROVISIONED)
    since = None if condition is None else condition.last_transition_time
    end = (since or now) + BOOKING_TIME
    release = _alive(unfinished)
    if now >= end:
        return RequestStep(request=with_booking_expired(request, now=now), release=release)
    if booking is not None and booking.lost:
        revoked = with_revocation(request, booking.lost, now=now)
        return RequestStep(request=revoked, release=release)
    return RequestStep(request=request, release=release, wake_at=end)


def _attempt(
    snapshot: Snapshot,
    request: ProvisioningRequest,
    unfinished: tuple[NodeClaim, ...],
    booking: Booking | None,
    *,
    expiry: datetime,
    now: datetime,
) -> RequestStep:
    number = str(attempt_number(request))
    current = [item for item in unfinished if item.metadata.annotations[GANG_ATTEMPT] == number]
    older = tuple(item for item in unfinished if item not in current)
    text = request.status.provisioning_class_details[ATTEMPT_CLAIMS_DETAIL]
    size = int(text) if text.isdecimal() else None
    alive = _alive(current)
    if size is None or len(alive) < size:
        why = _failure(current, size or 0)
    elif booking is not None and booking.lost:
        why = f"existing nodes with booked capacity for {booking.lost} pod(s) are gone or leave"
    else:
        why = ""
    if why:
        ended = with_attempt_ended(request, why, now=now)
        return RequestStep(request=ended, delete=_alive(unfinished))
    places = parse_places(request.status.provisioning_class_details)
    is_ready = all(is_true(claim.status.conditions, INITIALIZED) for claim in alive)
    if is_ready and not starting_claims(snapshot, request, places):
        done = with_provisioned(request, places, launched=len(alive), now=now)
        return RequestStep(request=done, delete=_alive(older), release=alive)
    return RequestStep(request=request, delete=_alive(older), wake_at=expiry)


def _failure(claims: Iterable[NodeClaim], size: int) -> str:
    """Return why an attempt has fewer NodeClaims than it began with."""
    leaving = [claim for claim in claims if claim.is_deleting]
    for claim in leaving:
        for condition_type in (_LAUNCHED, _REGISTERED, INITIALIZED):
            condition = find_condition(claim.status.conditions, condition_type)
            if condition is not None and condition.status != "True" and condition.message:
                return f"NodeClaim {claim.name}: {condition.message}"
    if leaving:
        return f"NodeClaim {leaving[0].name} was deleted before all nodes were ready"
    return f"not all {size} NodeClaims could be created, or one was deleted"


def _waiting(
    snapshot: Snapshot, request: ProvisioningRequest, *, expiry: datetime, now: datetime
) -> RequestStep:
    missing = _missing_templates(snapshot, request)
    if missing:
        grace = (request.metadata.creation_timestamp or now) + TEMPLATE_GRACE
        if now < grace:
            return RequestStep(request=request, wake_at=grace)
        unaccepted = with_missing_templates(request, missing, now=now)
        return RequestStep(request=unaccepted, wake_at=expiry)
    if not request.is_true(ACCEPTED):
        request = with_acceptance(request, now=now)
    retry = retry_time(request)
    if retry is not None and now < retry:
        return RequestStep(request=request, wake_at=min(retry, expiry))
    return RequestStep(request=request, is_due=True, wake_at=expiry)


def _missing_templates(snapshot: Snapshot, request: ProvisioningRequest) -> tuple[str, ...]:
    namespace = request.metadata.namespace or ""
    names = (pod_set.pod_template_ref.name for pod_set in request.spec.pod_sets)
    return tuple(
        name for name in dict.fromkeys(names) if f"{namespace}/{name}" not in snapshot.pod_templates
    )


def _alive(claims: Iterable[NodeClaim]) -> tuple[NodeClaim, ...]:
    return tuple(claim for claim in claims if not claim.is_deleting)
