"""Makes Events about changed ProvisioningRequests, and names their states.

Metrics show these states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

from karpenter_core.api.notices import Notice
from karpenter_core.api.provisioning_request import (
    ACCEPTED,
    PARTIAL_CAPACITY_FOUND,
    PROVISIONED,
)
from karpenter_core.lifecycle.provisioning_request import status
from karpenter_core.state.bookings import is_launching

if TYPE_CHECKING:
    from karpenter_core.api.conditions import Condition
    from karpenter_core.api.provisioning_request import ProvisioningRequest

__all__ = ["notices_of_change", "request_state"]

_EVENTS: Final[Mapping[str, tuple[Literal["Normal", "Warning"], str]]] = {
    ACCEPTED: ("Normal", "Accepted"),
    status.NO_TEMPLATE: ("Warning", "PodTemplateNotFound"),
    status.LAUNCHING: ("Normal", "CapacityIsLaunching"),
    status.CAPACITY_FOUND: ("Normal", "CapacityIsFound"),
    PARTIAL_CAPACITY_FOUND: ("Normal", "PartialCapacityIsFound"),
    status.CAPACITY_PROVISIONED: ("Normal", "CapacityIsProvisioned"),
    status.CAPACITY_NOT_FOUND: ("Warning", "CapacityIsNotFound"),
    status.EXPIRED: ("Warning", "Expired"),
    status.INVALID: ("Warning", "InvalidRequest"),
    status.RESERVATION_EXPIRED: ("Normal", "CapacityReservationTimeExpired"),
    status.NODES_LOST: ("Warning", "NodesLost"),
}
"""Type and reason of the Event, by the reason of the condition."""


def notices_of_change(old: ProvisioningRequest, new: ProvisioningRequest) -> tuple[Notice, ...]:
    """Return an Event for each condition that changed, and for each failed attempt."""
    notices: list[Notice] = []
    for condition in new.status.conditions:
        if not _is_changed(old.condition(condition.type), condition):
            continue
        event_type, reason = _EVENTS[condition.reason]
        notices.append(
            Notice(
                regarding=new.ref,
                type=event_type,
                reason=reason,
                message=condition.message,
                dedupe=(new.uid, condition.message),
            )
        )
    return tuple(notices)


def request_state(request: ProvisioningRequest) -> str:
    """Return the state of a request in one word: its last condition, `Launching` or `Pending`."""
    if request.end is not None:
        return request.end.type
    if request.is_true(PROVISIONED):
        return PROVISIONED
    if is_launching(request):
        return "Launching"
    return ACCEPTED if request.is_true(ACCEPTED) else "Pending"


def _is_changed(before: Condition | None, after: Condition) -> bool:
    """Tell whether a condition of ours is new; attempts differ in their messages only."""
    if after.reason not in _EVENTS:
        return False
    if before is None or (before.status, before.reason) != (after.status, after.reason):
        return True
    return after.type == PROVISIONED and before.message != after.message
