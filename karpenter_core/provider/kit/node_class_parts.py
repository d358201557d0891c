"""What came of one part of resolving a NodeClass, and what all parts make of it together.

Values alone. A part (subnets, images, …) has found something, which is its condition and what it puts
into the status, or the cloud could not be asked: then what was found before stands, as long as it is
about the same spec.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import FALSE, READY, TRUE, UNKNOWN, Condition, find
from karpenter_core.provider.contract import NodeClassResolution

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from karpenter_core.api.nodeclass import NodeClass

__all__ = [
    "REFUSED",
    "SOON",
    "UNREACHABLE",
    "USUAL",
    "Part",
    "absent_text",
    "clipped",
    "code_reason",
    "known_condition",
    "met",
    "ready_condition",
    "resolution_of",
    "unasked",
    "unmet",
]

UNREACHABLE: Final = "CloudUnreachable"
"""Reason of what could not be asked."""
REFUSED: Final = "Refused"
"""Reason of what was refused without a code."""

# The core's own words for a root condition that is not met.
_UNHEALTHY: Final = "UnhealthyDependents"
_RECONCILING: Final = "ReconcilingDependents"

SOON: Final = timedelta(minutes=1)
USUAL: Final = timedelta(minutes=5)
_LONGEST_MESSAGE: Final = 32768  # of a condition
_ODD_IN_REASON: Final = re.compile(r"[^A-Za-z0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What came of one part."""

    condition: Condition
    """Of a part that could not ask: what to say when nothing was known before."""
    status: Mapping[str, object] = field(default_factory=dict[str, object])
    """Fields of the status as JSON; those that are not named stay."""
    is_asked: bool = True
    """False when the cloud could not be asked: what is known of the same spec stands."""
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


def unasked(condition_type: str, message: str, *, reason: str = UNREACHABLE) -> Part:
    """Say that the cloud could not be asked."""
    condition = Condition(
        type=condition_type, status=UNKNOWN, reason=reason, message=clipped(message)
    )
    return Part(condition=condition, is_asked=False, retry_after=SOON)


def code_reason(code: str) -> str:
    """Return the reason of a condition for what was refused with a code of the cloud's own."""
    reason = _ODD_IN_REASON.sub("", code)
    return reason if reason and reason[0].isalpha() else REFUSED


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


def resolution_of(node_class: NodeClass, found: Iterable[Part]) -> NodeClassResolution:
    """Return what all parts together say, `Ready` included."""
    found = tuple(found)
    generation = node_class.metadata.generation
    known = [
        known_condition(part, node_class.status.conditions, generation=generation) for part in found
    ]
    ready = ready_condition(condition for condition, _ in known)
    return NodeClassResolution(
        conditions=(*(condition for condition, is_news in known if is_news), ready),
        status={name: value for part in found for name, value in part.status.items()},
        retry_after=min(part.retry_after for part in found),
    )


def clipped(text: str) -> str:
    """Return a message that is no longer than a condition may have."""
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[: _LONGEST_MESSAGE - 1]}…"
