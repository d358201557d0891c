"""What came of one part of a resolution, and what all parts together make of the NodeClass.

Values alone. A part has found something (its condition, and what it puts into the status), or AWS
could not be asked: then what was found before stands, as long as it is about the same spec.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import FALSE, READY, TRUE, UNKNOWN, Condition, find
from karpenter_core.errors import AuthError
from karpenter_provider_aws.discovery.calls import failure_behind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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

# Reasons that the reference does not have: it says nothing of what AWS refuses.
UNAUTHORIZED: Final = "Unauthorized"
UNREACHABLE: Final = "CloudUnreachable"
REFUSED: Final = "Refused"

# The core's own words for a root condition that is not met.
_UNHEALTHY: Final = "UnhealthyDependents"
_RECONCILING: Final = "ReconcilingDependents"

SOON: Final = timedelta(minutes=1)
USUAL: Final = timedelta(minutes=5)
_LONGEST_MESSAGE: Final = 32768

# EC2 adds the whole decision in a form that only it can read, another text each time.
_ENCODED_DECISION: Final = re.compile(r"\s*Encoded authorization failure message:\s*\S+")
_ODD_IN_REASON: Final = re.compile(r"[^A-Za-z0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What came of one part."""

    condition: Condition
    """Of a part that could not ask AWS: what to say when nothing was known before."""
    status: Mapping[str, object] = field(default_factory=dict[str, object])
    """Fields of the status as JSON; those that are not named stay."""
    is_asked: bool = True
    """False when AWS could not be asked: what is known of the same spec stands."""
    retry_after: timedelta = USUAL


def met(
    condition_type: str,
    message: str = "",
    *,
    status: Mapping[str, object] | None = None,
    retry_after: timedelta = USUAL,
) -> Part:
    """Say that a condition holds; a message names what is odd all the same."""
    condition = Condition(
        type=condition_type, status=TRUE, reason=condition_type, message=clipped(message)
    )
    return Part(condition=condition, status=status or {}, retry_after=retry_after)


def unmet(
    condition_type: str,
    reason: str,
    message: str,
    *,
    status: Mapping[str, object] | None = None,
    retry_after: timedelta = SOON,
) -> Part:
    """Say that a condition does not hold; the message names field, value and cause."""
    condition = Condition(
        type=condition_type, status=FALSE, reason=reason, message=clipped(message)
    )
    return Part(condition=condition, status=status or {}, retry_after=retry_after)


def refused(condition_type: str, where: str, error: CloudProviderError) -> Part:
    """Say that AWS refused; what the status has of the part stays."""
    return unmet(condition_type, refusal_reason(error), f"{where}: {stable_text(str(error))}")


def unasked(condition_type: str, where: str, error: CloudProviderError) -> Part:
    """Say that AWS could not be asked."""
    condition = Condition(
        type=condition_type,
        status=UNKNOWN,
        reason=UNREACHABLE,
        message=clipped(f"{where}: {stable_text(str(error))}"),
    )
    return Part(condition=condition, is_asked=False, retry_after=SOON)


def refusal_reason(error: CloudProviderError) -> str:
    """Return the reason of a condition for what AWS refused: its own code, where it has one."""
    if isinstance(error, AuthError):
        return UNAUTHORIZED
    failure = failure_behind(error)
    code = _ODD_IN_REASON.sub("", failure.code) if failure is not None else ""
    return code if code and code[0].isalpha() else REFUSED


def stable_text(text: str) -> str:
    """Return what AWS said without what differs each time, or conditions would never rest."""
    return _ENCODED_DECISION.sub("", text)


def absent_text(absent: Sequence[str]) -> str:
    """Return which terms found nothing; empty when all found something."""
    return f"nothing is found by {', '.join(absent)}" if absent else ""


def known_condition(
    part: Part, before: Iterable[Condition], *, generation: int
) -> tuple[Condition, bool]:
    """Return what holds of a part now, and whether it is news that must be written.

    `before` are the conditions that the NodeClass has. One that was found for another generation
    says nothing about this one.
    """
    if part.is_asked:
        return part.condition, True
    old = find(before, part.condition.type)
    if old is None or old.observed_generation != generation:
        return part.condition, True
    return old, False


def ready_condition(conditions: Iterable[Condition]) -> Condition:
    """Return the condition `Ready`: what is not met, in the words of the conditions."""
    conditions = tuple(conditions)
    for status, reason in ((FALSE, _UNHEALTHY), (UNKNOWN, _RECONCILING)):
        culprits = [condition for condition in conditions if condition.status == status]
        if culprits:
            message = "; ".join(f"{c.type}={c.status}: {c.message or c.reason}" for c in culprits)
            return Condition(type=READY, status=status, reason=reason, message=clipped(message))
    return Condition(type=READY, status=TRUE, reason=READY)


def clipped(text: str) -> str:
    """Return a message that is no longer than a condition may have."""
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[: _LONGEST_MESSAGE - 1]}…"
