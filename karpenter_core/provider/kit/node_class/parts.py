"""Combines the parts of a NodeClass resolution into its conditions and status.

Pure functions. Each part (subnets, images, …) has a result: its condition, and its fields of the
status. If the cloud did not answer, the earlier result is kept, as long as it is for the same spec.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import FALSE, READY, TRUE, UNKNOWN, Condition, find_condition
from karpenter_core.provider.contract import NodeClassResolution

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from karpenter_core.api.nodeclass import NodeClass

__all__ = [
    "REFUSED_REASON",
    "RETRY_SOON",
    "RETRY_USUAL",
    "UNREACHABLE_REASON",
    "ResolutionPart",
    "absent_terms_message",
    "code_reason",
    "condition_met",
    "condition_unknown",
    "condition_unmet",
    "current_condition",
    "ready_condition",
    "resolution_of",
    "truncated_message",
]

UNREACHABLE_REASON: Final = "CloudUnreachable"
"""Reason of a part for which the cloud did not answer."""
REFUSED_REASON: Final = "Refused"
"""Reason of a refusal without a code."""

# The core's own words for a root condition that is not met.
_UNHEALTHY: Final = "UnhealthyDependents"
_RECONCILING: Final = "ReconcilingDependents"

RETRY_SOON: Final = timedelta(minutes=1)
RETRY_USUAL: Final = timedelta(minutes=5)
_LONGEST_MESSAGE: Final = 32768  # of a condition
_ODD_IN_REASON: Final = re.compile(r"[^A-Za-z0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolutionPart:
    """The result of one part."""

    condition: Condition
    """If the cloud did not answer: the message to use when there is no earlier result."""
    status: Mapping[str, object] = field(default_factory=dict[str, object])
    """Fields of the status as JSON; other fields are kept."""
    is_answered: bool = True
    """False if the cloud did not answer: the earlier result for the same spec is kept."""
    retry_after: timedelta = RETRY_USUAL


def condition_met(
    condition_type: str,
    message: str = "",
    *,
    status: Mapping[str, object] | None = None,
    retry_after: timedelta = RETRY_USUAL,
) -> ResolutionPart:
    """Return a condition that is True; the message may name minor problems."""
    condition = Condition(
        type=condition_type, status=TRUE, reason=condition_type, message=truncated_message(message)
    )
    return ResolutionPart(condition=condition, status=status or {}, retry_after=retry_after)


def condition_unmet(
    condition_type: str,
    reason: str,
    message: str,
    *,
    status: Mapping[str, object] | None = None,
    retry_after: timedelta = RETRY_SOON,
) -> ResolutionPart:
    """Return a condition that is False; the message names field, value and cause."""
    condition = Condition(
        type=condition_type, status=FALSE, reason=reason, message=truncated_message(message)
    )
    return ResolutionPart(condition=condition, status=status or {}, retry_after=retry_after)


def condition_unknown(
    condition_type: str, message: str, *, reason: str = UNREACHABLE_REASON
) -> ResolutionPart:
    """Return the result of a part for which the cloud did not answer."""
    condition = Condition(
        type=condition_type, status=UNKNOWN, reason=reason, message=truncated_message(message)
    )
    return ResolutionPart(condition=condition, is_answered=False, retry_after=RETRY_SOON)


def code_reason(code: str) -> str:
    """Return the condition reason for an error code of the cloud."""
    reason = _ODD_IN_REASON.sub("", code)
    return reason if reason and reason[0].isalpha() else REFUSED_REASON


def absent_terms_message(absent: Sequence[str]) -> str:
    """Name the selector terms that matched nothing; empty if all matched."""
    return f"nothing matches {', '.join(absent)}" if absent else ""


def current_condition(
    part: ResolutionPart, before: Iterable[Condition], *, generation: int
) -> tuple[Condition, bool]:
    """Return the condition of a part, and whether it has changed and must be written.

    `before` are the conditions of the NodeClass. A condition for another generation is ignored.
    """
    if part.is_answered:
        return part.condition, True
    old = find_condition(before, part.condition.type)
    if old is None or old.observed_generation != generation:
        return part.condition, True
    return old, False


def ready_condition(conditions: Iterable[Condition]) -> Condition:
    """Return the condition `Ready`; its message has the messages of the parts that are not met."""
    conditions = tuple(conditions)
    for status, reason in ((FALSE, _UNHEALTHY), (UNKNOWN, _RECONCILING)):
        culprits = [condition for condition in conditions if condition.status == status]
        if culprits:
            message = "; ".join(f"{c.type}={c.status}: {c.message or c.reason}" for c in culprits)
            return Condition(
                type=READY, status=status, reason=reason, message=truncated_message(message)
            )
    return Condition(type=READY, status=TRUE, reason=READY)


def resolution_of(node_class: NodeClass, parts: Iterable[ResolutionPart]) -> NodeClassResolution:
    """Return the resolution of all parts, with the condition `Ready`."""
    parts = tuple(parts)
    generation = node_class.metadata.generation
    current = [
        current_condition(part, node_class.status.conditions, generation=generation)
        for part in parts
    ]
    ready = ready_condition(condition for condition, _ in current)
    return NodeClassResolution(
        conditions=(*(condition for condition, is_news in current if is_news), ready),
        status={name: value for part in parts for name, value in part.status.items()},
        retry_after=min(part.retry_after for part in parts),
    )


def truncated_message(text: str) -> str:
    """Shorten a message to the maximum length of a condition message."""
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[: _LONGEST_MESSAGE - 1]}…"
