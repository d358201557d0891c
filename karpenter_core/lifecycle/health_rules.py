"""What users add to their provider's idea of a broken Node, or take from it.

Providers know the kubelet's conditions and those of their own detectors. What else somebody runs on the
nodes, a detector of GPU faults for one, only the users know; and what one can bear for half an hour
another cannot bear for a minute.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.durations import parse_duration
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.lifecycle.repair import HealthPolicy

__all__ = ["HealthRule", "parse_health_rules", "with_rules"]

_NEVER: Final = "never"
_RULE: Final = re.compile(
    r"(?P<type>[A-Za-z0-9](?:[A-Za-z0-9./_-]*[A-Za-z0-9])?)=(?P<status>True|False|Unknown):(?P<wait>\S+)"
)


@final
@dataclass(frozen=True, slots=True)
class HealthRule:
    """A state of a Node, and how long users bear it."""

    condition_type: str
    condition_status: str
    toleration: timedelta
    """`timedelta.max` when it is never repaired."""


def parse_health_rules(text: str) -> tuple[HealthRule, ...]:
    """Read rules such as `GPUFault=True:10m,Ready=Unknown:1h,KernelDeadlock=True:never`.

    Raises:
        BadInputError: one of them is none, or two are about the same state.
    """
    rules: dict[tuple[str, str], HealthRule] = {}
    for part in (piece.strip() for piece in text.split(",")):
        if not part:
            continue
        rule = _parse_rule(part)
        state = (rule.condition_type, rule.condition_status)
        if state in rules:
            raise BadInputError(f'"{part}": another rule is about {"=".join(state)} too')
        rules[state] = rule
    return tuple(rules.values())


def _parse_rule(text: str) -> HealthRule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise BadInputError(f'"{text}" is not CONDITION=STATUS:DURATION, as GPUFault=True:10m is')
    wait = match["wait"]
    try:
        toleration = timedelta.max if wait == _NEVER else parse_duration(wait)
    except ValueError as error:
        raise BadInputError(f'"{text}": "{wait}" is neither a duration nor "{_NEVER}"') from error
    if toleration <= timedelta(0):
        raise BadInputError(f'"{text}": a node would be replaced at once; say how long it may last')
    return HealthRule(match["type"], match["status"], toleration)


def with_rules(
    policies: Iterable[HealthPolicy], rules: Iterable[HealthRule]
) -> tuple[HealthPolicy, ...]:
    """Return a provider's policies with the users' rules, which count where both are about one state."""
    found: dict[tuple[str, str], HealthPolicy] = {
        (policy.condition_type, policy.condition_status): policy for policy in (*policies, *rules)
    }
    return tuple(policy for policy in found.values() if policy.toleration != timedelta.max)
