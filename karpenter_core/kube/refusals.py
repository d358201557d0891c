"""Tells writes that the API server refuses for good from errors that pass.

A quota, an admission policy or a webhook refuses a write because of its content, and will refuse it
again: a user has to change something, so it is published as an Event.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeGuard

from karpenter_core.api.notices import Notice
from karpenter_core.errors import ApiError, TooManyRequestsError, is_webhook_denial

if TYPE_CHECKING:
    from karpenter_core.api.notices import ObjectRef

__all__ = ["REFUSED_WINDOW", "is_refusal", "is_webhook_outage", "refused_write_notice"]

REFUSED_WINDOW: Final = timedelta(minutes=15)

_REFUSALS: Final = frozenset({400, 401, 403, 413, 422})
"""Answers because of the content or size of an object, or of a policy about it.

A ValidatingAdmissionPolicy may answer 403, 413 or 422. A webhook may answer anything, and says so.
"""
_SERVER_ERROR: Final = 500
_WEBHOOK_OUTAGE: Final = "failed calling webhook"
"""Part of the API server's message if a webhook that must agree does not answer."""


def is_webhook_outage(error: ApiError) -> bool:
    """Tell whether nothing was written because an admission webhook did not answer."""
    return error.status >= _SERVER_ERROR and _WEBHOOK_OUTAGE in str(error)


def is_in_doubt(error: ApiError) -> bool:
    """Tell whether the write may have been done all the same; not if a webhook has denied it."""
    is_broken = error.status >= _SERVER_ERROR and not is_webhook_denial(str(error))
    return error.status == 0 or is_broken


def is_refusal(error: Exception) -> TypeGuard[ApiError]:
    """Tell whether a user has to change something before such a write can succeed."""
    if not isinstance(error, ApiError) or isinstance(error, TooManyRequestsError):
        return False  # also a webhook's: it asks for another attempt
    is_denied = is_webhook_denial(str(error))
    return error.status in _REFUSALS or is_denied or is_webhook_outage(error)


def refused_write_notice(regarding: ObjectRef, error: ApiError) -> Notice:
    """Return the Event on an object about a write that the API server refuses."""
    return Notice(
        regarding=regarding,
        type="Warning",
        reason="WriteRefused",
        message=f"The API server refuses a write that the object waits for: {error}",
        dedupe=(regarding.uid,),
        window=REFUSED_WINDOW,
    )
