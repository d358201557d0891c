"""What users add to their provider's idea of a broken Node, or take from it.

Providers know the kubelet's conditions and those of their own detectors. What else somebody runs on the
nodes, a detector of GPU faults for one, only the users know; and what one can bear for half an hour
another cannot bear for a minute.
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

__all__ = ["HealthRule", "parse_health_rules", "with_rules"]

_NEVER: Final = "never"
_WELL: Final = (("Ready", "True"), ("Pressure", "False"), ("NetworkUnavailable", "False"))
"""How conditions end, and what they are while a Node is well: a rule for that would end every Node."""
_RULE: Final = re.compile(
    r"(?P<type>[A-Za-z0-9](?:[A-Za-z0-9./_-]*[A-Za-z0-9])?)=(?P<status>True|False|Unknown):(?P<wait>\S+)"
)


@final
@dataclass(frozen=True, slots=True)
class HealthRule:
    """A state of a Node, and how long users bear it."""

    condition_type: str
    condition_status: str
    toleration: timedelta | None
    """None when it is borne for ever."""


class _Policy(NamedTuple):
    condition_type: str
    condition_status: str
    toleration: timedelta


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
    kind, status, wait = match["type"], match["status"], match["wait"]
    if wait == _NEVER:
        return HealthRule(kind, status, None)
    if any(kind.endswith(end) and status == well for end, well in _WELL):
        raise BadInputError(f'"{text}": that is the state of a node that is well')
    try:
        toleration = parse_duration(wait)
    except ValueError as error:
        raise BadInputError(f'"{text}": "{wait}" is neither a duration nor "{_NEVER}"') from error
    if toleration <= timedelta(0):
        raise BadInputError(f'"{text}": a node would be replaced at once; say how long it may last')
    return HealthRule(kind, status, toleration)


def with_rules(
    policies: Iterable[HealthPolicy], rules: Sequence[HealthRule]
) -> tuple[HealthPolicy, ...]:
    """Return a provider's policies, but for states that a rule is about, and what the rules ask for."""
    about = {(rule.condition_type, rule.condition_status) for rule in rules}
    kept = (it for it in policies if (it.condition_type, it.condition_status) not in about)
    ours = (
        _Policy(rule.condition_type, rule.condition_status, rule.toleration)
        for rule in rules
        if rule.toleration is not None
    )
    return (*kept, *ours)
