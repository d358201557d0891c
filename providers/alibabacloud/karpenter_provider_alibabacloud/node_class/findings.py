"""Conditions of an ECSNodeClass, and what the cloud says in them when it refuses or does not answer.

What a part of a resolution is, and what all parts make of the NodeClass, is the same for every cloud:
`karpenter_core.provider.kit.node_class_parts`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import UNKNOWN
from karpenter_core.errors import AuthError, CloudProviderError, ThrottledError
from karpenter_core.provider.kit import node_class_parts
from karpenter_core.provider.kit.node_class_parts import UNREACHABLE, USUAL, code_reason, unmet
from karpenter_provider_alibabacloud.codes import ErrorClass
from karpenter_provider_alibabacloud.discovery.calls import failure_behind

if TYPE_CHECKING:
    from karpenter_core.provider.kit.node_class_parts import Part

__all__ = [
    "CAPACITY_RESERVATIONS_READY",
    "IMAGES_READY",
    "NOTHING_FOUND",
    "SECURITY_GROUPS_READY",
    "VALIDATION_SUCCEEDED",
    "VSWITCHES_READY",
    "long_unasked",
    "refusal_reason",
    "refused",
    "stable_text",
    "steady",
    "unasked",
]

VSWITCHES_READY: Final = "VSwitchesReady"
SECURITY_GROUPS_READY: Final = "SecurityGroupsReady"
IMAGES_READY: Final = "ImagesReady"
CAPACITY_RESERVATIONS_READY: Final = "CapacityReservationsReady"
VALIDATION_SUCCEEDED: Final = "ValidationSucceeded"

UNAUTHORIZED: Final = "Unauthorized"
"""Reason of missing credentials, for which there is no code."""
NOTHING_FOUND: Final = timedelta(seconds=15)
"""When to look again for what terms do not find: it may be made at the same time."""

_REQUEST_ID: Final = re.compile(r"\s*\(request [^)]*\)|\s*[Rr]equest ?[Ii][Dd]:? *[0-9A-F-]{36}")


def refused(condition_type: str, where: str, error: CloudProviderError) -> Part:
    """Say that the cloud refused; what the status has of the part stays."""
    part = unmet(condition_type, refusal_reason(error), f"{where}: {stable_text(str(error))}")
    failure = failure_behind(error)
    if failure is not None and failure.error_class is ErrorClass.FUNDS:
        return replace(part, retry_after=USUAL)
    return part


def unasked(condition_type: str, where: str, error: CloudProviderError) -> Part:
    """Say that the cloud could not be asked: what is known stands."""
    return node_class_parts.unasked(condition_type, f"{where}: {stable_text(str(error))}")


def long_unasked(part: Part, error: CloudProviderError) -> Part:
    """Say that it could not be asked for so long that what is known does not stand any longer."""
    failure = failure_behind(error)
    reason = UNREACHABLE if failure is None else code_reason(failure.code)
    condition = part.condition.model_copy(update={"status": UNKNOWN, "reason": reason})
    return replace(part, condition=condition, is_asked=True)


def refusal_reason(error: CloudProviderError) -> str:
    """Return the reason of a condition for what was refused: the cloud's own code, if it gave one."""
    failure = failure_behind(error)
    if failure is None and isinstance(error, AuthError):
        return UNAUTHORIZED
    return code_reason("" if failure is None else failure.code)


def stable_text(text: str) -> str:
    """Return what the cloud said without the request's id, or conditions would never rest."""
    return _REQUEST_ID.sub("", text)


def steady(error: CloudProviderError) -> CloudProviderError:
    """Return an error of the same kind that says the same each time: without the request's id.

    What a NodePool's types could not be listed for is written into its status, anew when it changes.
    """
    text = stable_text(str(error))
    if isinstance(error, AuthError):
        return AuthError(text, action=error.action)
    if isinstance(error, ThrottledError):
        return ThrottledError(text, retry_after=error.retry_after)
    return CloudProviderError(text) if type(error) is CloudProviderError else error
