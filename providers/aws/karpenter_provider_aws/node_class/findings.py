"""Conditions of an EC2NodeClass, and what AWS says in them when it refuses or does not answer.

What a part of a resolution is, and what all parts make of the NodeClass, is the same for every cloud:
`karpenter_core.provider.kit.node_class_parts`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from karpenter_core.errors import AuthError
from karpenter_core.provider.kit import node_class_parts
from karpenter_core.provider.kit.node_class_parts import (
    SOON,
    UNREACHABLE,
    USUAL,
    Part,
    absent_text,
    known_condition,
    met,
    ready_condition,
    resolution_of,
    unmet,
)
from karpenter_provider_aws.discovery.calls import failure_behind

if TYPE_CHECKING:
    from karpenter_core.errors import CloudProviderError

__all__ = [
    "AMIS_READY",
    "CAPACITY_RESERVATIONS_READY",
    "INSTANCE_PROFILE_READY",
    "PLACEMENT_GROUP_READY",
    "SECURITY_GROUPS_READY",
    "SOON",
    "SUBNETS_READY",
    "UNREACHABLE",
    "USUAL",
    "VALIDATION_SUCCEEDED",
    "Part",
    "absent_text",
    "known_condition",
    "met",
    "ready_condition",
    "refusal_reason",
    "refused",
    "resolution_of",
    "stable_text",
    "unasked",
    "unmet",
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


def refused(condition_type: str, where: str, error: CloudProviderError) -> Part:
    """Say that AWS refused; what the status has of the part stays."""
    return unmet(condition_type, refusal_reason(error), f"{where}: {stable_text(str(error))}")


def unasked(condition_type: str, where: str, error: CloudProviderError) -> Part:
    """Say that AWS could not be asked."""
    return node_class_parts.unasked(condition_type, f"{where}: {stable_text(str(error))}")


def refusal_reason(error: CloudProviderError) -> str:
    """Return the reason of a condition for what AWS refused: its own code, where it has one."""
    if isinstance(error, AuthError):
        return UNAUTHORIZED
    failure = failure_behind(error)
    return node_class_parts.code_reason(failure.code if failure is not None else "")


def stable_text(text: str) -> str:
    """Return what AWS said without what differs each time, or conditions would never rest."""
    return _ENCODED_DECISION.sub("", text)
