"""Parses users' rules on unhealthy Nodes; adds them to the provider's.

Providers know the kubelet's conditions and those of their own detectors. Only users know the other
detectors on their nodes (of GPU faults, for example), and how long their workload tolerates a fault.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, final

from karpenter_core.api.durations import parse_duration
from karpenter_core.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.lifecycle.node.repair import HealthPolicy

__all__ = ["HealthRule", "apply_health_rules", "parse_health_rules"]

_NEVER: Final = "never"
_WELL: Final = (("Ready", "True"), ("Pressure", "False"), ("NetworkUnavailable", "False"))
"""Suffixes of condition types and their healthy status: a rule for it would replace every Node."""
_RULE: Final = re.compile(
    r"(?P<type>[A-Za-z0-9](?:[A-Za-z0-9./_-]*[A-Za-z0-9])?)=(?P<status>True|False|Unknown):(?P<wait>\S+)"
)


@final
@dataclass(frozen=True, slots=True)
class HealthRule:
    """A condition status of a Node, and how long users tolerate it."""

    condition_type: str
    condition_status: str
    toleration: timedelta | None
    """None if it is tolerated for ever."""


class _RepairPolicy(NamedTuple):
    condition_type: str
    condition_status: str
    toleration: timedelta


def parse_health_rules(text: str) -> tuple[HealthRule, ...]:
    """Read rules such as `GPUFault=True:10m,Ready=Unknown:1h,KernelDeadlock=True:never`.

    Raises:
        BadInputError: a rule cannot be parsed, or two rules name the same condition status.
    """
    rules: dict[tuple[str, str], HealthRule] = {}
    for part in (piece.strip() for piece in text.split(",")):
        if not part:
            continue
        rule = _parse_rule(part)
        state = (rule.condition_type, rule.condition_status)
        if state in rules:
            raise BadInputError(
                f'"{part}": another rule names {"=".join(state)} too; keep one of them'
            )
        rules[state] = rule
    return tuple(rules.values())


def _parse_rule(text: str) -> HealthRule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise BadInputError(f'"{text}" is not CONDITION=STATUS:DURATION, such as GPUFault=True:10m')
    kind, status, wait = match["type"], match["status"], match["wait"]
    if wait == _NEVER:
        return HealthRule(kind, status, None)
    if any(kind.endswith(end) and status == well for end, well in _WELL):
        raise BadInputError(f'"{text}": a healthy node has this status; use the unhealthy one')
    try:
        toleration = parse_duration(wait)
    except ValueError as error:
        raise BadInputError(f'"{text}": "{wait}" is neither a duration nor "{_NEVER}"') from error
    if toleration <= timedelta(0):
        raise BadInputError(f'"{text}": a node would be replaced at once; use a longer duration')
    return HealthRule(kind, status, toleration)


def apply_health_rules(
    policies: Iterable[HealthPolicy], rules: Sequence[HealthRule]
) -> tuple[HealthPolicy, ...]:
    """Return a provider's policies with the rules in place of those for the same status."""
    covered = {(rule.condition_type, rule.condition_status) for rule in rules}
    uncovered = (it for it in policies if (it.condition_type, it.condition_status) not in covered)
    ours = (
        _RepairPolicy(rule.condition_type, rule.condition_status, rule.toleration)
        for rule in rules
        if rule.toleration is not None
    )
    return (*uncovered, *ours)
