"""Builds NodeClass conditions for refused and unanswered calls.

Parts of a resolution, and their summary for the NodeClass, are the same for every cloud:
`karpenter_core.provider.kit.node_class.parts`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import UNKNOWN
from karpenter_core.errors import AuthError, CloudProviderError, ThrottledError
from karpenter_core.provider.kit.node_class import parts as node_class_parts
from karpenter_core.provider.kit.node_class.parts import (
    RETRY_USUAL,
    UNREACHABLE_REASON,
    code_reason,
    condition_unmet,
)
from karpenter_provider_alibabacloud.codes import ErrorClass
from karpenter_provider_alibabacloud.discovery.call_errors import refusal_behind

if TYPE_CHECKING:
    from karpenter_core.provider.kit.node_class.parts import ResolutionPart

__all__ = [
    "CAPACITY_RESERVATIONS_READY",
    "IMAGES_READY",
    "NOTHING_FOUND",
    "SECURITY_GROUPS_READY",
    "VALIDATION_SUCCEEDED",
    "VSWITCHES_READY",
    "long_unanswered_condition",
    "refusal_reason",
    "refused_condition",
    "stable_text",
    "unanswered_condition",
    "with_stable_text",
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


def refused_condition(condition_type: str, where: str, error: CloudProviderError) -> ResolutionPart:
    """Say that the cloud refused; what the status has of the part stays."""
    part = condition_unmet(
        condition_type, refusal_reason(error), f"{where}: {stable_text(str(error))}"
    )
    failure = refusal_behind(error)
    if failure is not None and failure.error_class is ErrorClass.FUNDS:
        return replace(part, retry_after=RETRY_USUAL)
    return part


def unanswered_condition(
    condition_type: str, where: str, error: CloudProviderError
) -> ResolutionPart:
    """Say that the cloud could not be asked: what is known stands."""
    return node_class_parts.condition_unknown(condition_type, f"{where}: {stable_text(str(error))}")


def long_unanswered_condition(part: ResolutionPart, error: CloudProviderError) -> ResolutionPart:
    """Say that it could not be asked for so long that what is known does not stand any longer."""
    failure = refusal_behind(error)
    reason = UNREACHABLE_REASON if failure is None else code_reason(failure.code)
    condition = part.condition.model_copy(update={"status": UNKNOWN, "reason": reason})
    return replace(part, condition=condition, is_answered=True)


def refusal_reason(error: CloudProviderError) -> str:
    """Return the reason of a condition for what was refused: the cloud's own code, if it gave one."""
    failure = refusal_behind(error)
    if failure is None and isinstance(error, AuthError):
        return UNAUTHORIZED
    return code_reason("" if failure is None else failure.code)


def stable_text(text: str) -> str:
    """Return what the cloud said without the request's id, or conditions would never rest."""
    return _REQUEST_ID.sub("", text)


def with_stable_text(error: CloudProviderError) -> CloudProviderError:
    """Return an error of the same kind that says the same each time: without the request's id.

    What a NodePool's types could not be listed for is written into its status, anew when it changes.
    """
    text = stable_text(str(error))
    if isinstance(error, AuthError):
        return AuthError(text, action=error.action)
    if isinstance(error, ThrottledError):
        return ThrottledError(text, retry_after=error.retry_after)
    return CloudProviderError(text) if type(error) is CloudProviderError else error
