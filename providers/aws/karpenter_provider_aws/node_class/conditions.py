"""Builds NodeClass conditions for refused and unanswered calls.

Parts of a resolution, and their summary for the NodeClass, are the same for every cloud:
`karpenter_core.provider.kit.node_class.parts`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from karpenter_core.errors import AuthError
from karpenter_core.provider.kit.node_class import parts as node_class_parts
from karpenter_core.provider.kit.node_class.parts import (
    RETRY_SOON,
    RETRY_USUAL,
    UNREACHABLE_REASON,
    ResolutionPart,
    absent_terms_message,
    condition_met,
    condition_unmet,
    current_condition,
    ready_condition,
    resolution_of,
)
from karpenter_provider_aws.discovery.call_errors import refusal_behind

if TYPE_CHECKING:
    from karpenter_core.errors import CloudProviderError

__all__ = [
    "AMIS_READY",
    "CAPACITY_RESERVATIONS_READY",
    "INSTANCE_PROFILE_READY",
    "PLACEMENT_GROUP_READY",
    "RETRY_SOON",
    "RETRY_USUAL",
    "SECURITY_GROUPS_READY",
    "SUBNETS_READY",
    "UNREACHABLE_REASON",
    "VALIDATION_SUCCEEDED",
    "ResolutionPart",
    "absent_terms_message",
    "condition_met",
    "condition_unmet",
    "current_condition",
    "ready_condition",
    "refusal_reason",
    "refused_condition",
    "resolution_of",
    "stable_text",
    "unanswered_condition",
]

AMIS_READY: Final = "AMIsReady"
SUBNETS_READY: Final = "SubnetsReady"
SECURITY_GROUPS_READY: Final = "SecurityGroupsReady"
INSTANCE_PROFILE_READY: Final = "InstanceProfileReady"
PLACEMENT_GROUP_READY: Final = "PlacementGroupReady"
CAPACITY_RESERVATIONS_READY: Final = "CapacityReservationsReady"
VALIDATION_SUCCEEDED: Final = "ValidationSucceeded"

# A reason that the reference does not have: it says nothing of what AWS refuses.
UNAUTHORIZED: Final = "Unauthorized"

# EC2 adds the whole decision in a form that only it can read, another text each time.
_ENCODED_DECISION: Final = re.compile(r"\s*Encoded authorization failure message:\s*\S+")


def refused_condition(condition_type: str, where: str, error: CloudProviderError) -> ResolutionPart:
    """Say that AWS refused; what the status has of the part stays."""
    return condition_unmet(
        condition_type, refusal_reason(error), f"{where}: {stable_text(str(error))}"
    )


def unanswered_condition(
    condition_type: str, where: str, error: CloudProviderError
) -> ResolutionPart:
    """Say that AWS could not be asked."""
    return node_class_parts.condition_unknown(condition_type, f"{where}: {stable_text(str(error))}")


def refusal_reason(error: CloudProviderError) -> str:
    """Return the reason of a condition for what AWS refused: its own code, where it has one."""
    if isinstance(error, AuthError):
        return UNAUTHORIZED
    failure = refusal_behind(error)
    return node_class_parts.code_reason(failure.code if failure is not None else "")


def stable_text(text: str) -> str:
    """Return what AWS said without what differs each time, or conditions would never rest."""
    return _ENCODED_DECISION.sub("", text)
