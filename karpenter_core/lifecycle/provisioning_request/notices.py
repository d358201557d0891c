"""Returns the Events about changes of ProvisioningRequests, and the state that metrics show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from karpenter_core.api.notices import Notice
from karpenter_core.api.provisioning_request import (
    ACCEPTED,
    BOOKING_EXPIRED,
    CAPACITY_REVOKED,
    FAILED,
    PROVISIONED,
)
from karpenter_core.state.bookings import is_launching

if TYPE_CHECKING:
    from karpenter_core.api.provisioning_request import ProvisioningRequest

__all__ = ["notices_of_change", "request_state"]

_BAD: Final = frozenset({FAILED, CAPACITY_REVOKED})


def notices_of_change(old: ProvisioningRequest, new: ProvisioningRequest) -> tuple[Notice, ...]:
    """Return an Event for each condition whose status or reason changed, and for each failed attempt."""
    notices: list[Notice] = []
    for condition in new.status.conditions:
        before = old.condition(condition.type)
        if (
            before is not None
            and (before.status, before.reason) == (condition.status, condition.reason)
            and (condition.type != PROVISIONED or before.message == condition.message)
        ):
            continue
        is_bad = (condition.status == "True") == (condition.type in _BAD)
        kind: Literal["Normal", "Warning"] = (
            "Warning" if is_bad and condition.reason != "CapacityIsLaunching" else "Normal"
        )
        if condition.type == BOOKING_EXPIRED:
            kind = "Normal"
        notices.append(
            Notice(
                regarding=new.ref,
                type=kind,
                reason=condition.reason,
                message=condition.message,
                dedupe=(new.uid, condition.message),
            )
        )
    return tuple(notices)


def request_state(request: ProvisioningRequest) -> str:
    """Return the state of a request in one word: its last condition, `Launching` or `Pending`."""
    for condition_type in (FAILED, CAPACITY_REVOKED, BOOKING_EXPIRED, PROVISIONED):
        if request.is_true(condition_type):
            return condition_type
    if is_launching(request):
        return "Launching"
    return ACCEPTED if request.is_true(ACCEPTED) else "Pending"
