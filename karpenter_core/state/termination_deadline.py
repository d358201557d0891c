"""Reads the deadline by which the instance of a NodeClaim ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import TERMINATION_TIMESTAMP
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import NodeClaim

__all__ = ["deadline_of", "has_stale_deadline", "readable_deadline"]

_UNIX_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MAX_RETRIES_TIME: Final = timedelta(minutes=10)
"""Time between a deadline and the deletion that it is for; retries end before that."""


def deadline_of(claim: NodeClaim | None) -> datetime | None:
    """Return the deadline after which the instance ends in any case; None without one.

    One before 1970, such as Go's zero time, is that instant: grace periods are subtracted from it.

    Raises:
        BadInputError: the annotation is not an instant.
    """
    if claim is None or TERMINATION_TIMESTAMP not in claim.metadata.annotations:
        return None
    text = claim.metadata.annotations[TERMINATION_TIMESTAMP]
    try:
        deadline = datetime.fromisoformat(text)
        aware = deadline if deadline.tzinfo is not None else deadline.replace(tzinfo=UTC)
        return max(aware.astimezone(UTC), _UNIX_EPOCH)
    except (ValueError, OverflowError) as error:
        raise BadInputError(
            f'NodeClaim {claim.name}: annotation {TERMINATION_TIMESTAMP} is "{text}", '
            "which is not an RFC 3339 instant"
        ) from error


def readable_deadline(claim: NodeClaim) -> datetime | None:
    """Return the deadline of a claim (`deadline_of`); None if it has none that can be read."""
    try:
        return deadline_of(claim)
    except BadInputError:
        return None


def has_stale_deadline(claim: NodeClaim, now: datetime) -> bool:
    """Tell whether the deadline of a claim is of a forced deletion that did not happen.

    Repair and interruptions write the deadline first. If the API server refuses the deletion or the
    process ends in between, a later deletion would not be graceful: its deadline would have passed.
    """
    deadline = None if claim.is_deleting else readable_deadline(claim)
    return deadline is not None and now - deadline >= _MAX_RETRIES_TIME
