"""One look for something to disrupt: the methods in order, the first that finds something wins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from karpenter_core.disruption.budgets import blocking_notice, pool_budgets
from karpenter_core.disruption.candidates import blocked_notices, find_candidates
from karpenter_core.disruption.emptiness import Emptiness

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.api.notices import Notice
    from karpenter_core.disruption.budgets import PoolBudget
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import Method, Pass

__all__ = ["METHODS", "DisruptionPlan", "MethodReport", "plan"]

METHODS: Final[tuple[Method, ...]] = (Emptiness(),)
"""The built-in methods in the order they are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodReport:
    """What a method saw: for metrics and explanations."""

    method: str
    reason: str
    consolidation_type: str
    eligible: int
    constrained: bool
    budgets: Mapping[str, PoolBudget] = field(default_factory=dict[str, "PoolBudget"])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DisruptionPlan:
    """What a look came to: at most one command, by the method named in it."""

    command: Command | None = None
    method: Method | None = None
    notices: tuple[Notice, ...] = ()
    reports: tuple[MethodReport, ...] = ()


def plan(look: Pass, *, methods: Sequence[Method] = METHODS) -> DisruptionPlan:
    """Try the methods in order and return the first command.

    Nothing is judged before the state has seen everything once.
    """
    if not look.snapshot.synced:
        return DisruptionPlan()
    notices: list[Notice] = []
    reports: list[MethodReport] = []
    for method in methods:
        found = find_candidates(
            look.snapshot,
            now=look.now,
            disruption_class=method.disruption_class,
            queued=look.queued,
            nomination_window=look.options.nomination_window,
        )
        notices.extend(found.notices)
        for blocked in found.blocked:
            notices.extend(blocked_notices(blocked))
        verdicts = [(candidate, method.accept(candidate)) for candidate in found.candidates]
        notices.extend(notice for _, verdict in verdicts for notice in verdict.notices)
        accepted = tuple(candidate for candidate, verdict in verdicts if verdict.accepted)
        budgets = pool_budgets(look.snapshot, method.reason, now=look.now)
        notices.extend(_budget_notices(look, budgets))
        outcome = method.plan(look, accepted, budgets)
        notices.extend(outcome.notices)
        reports.append(
            MethodReport(
                method=method.name,
                reason=str(method.reason),
                consolidation_type=method.consolidation_type,
                eligible=len(accepted),
                constrained=outcome.constrained,
                budgets=budgets,
            )
        )
        if outcome.command is not None:
            return DisruptionPlan(
                command=outcome.command,
                method=method,
                notices=tuple(notices),
                reports=tuple(reports),
            )
    return DisruptionPlan(notices=tuple(notices), reports=tuple(reports))


def _budget_notices(look: Pass, budgets: Mapping[str, PoolBudget]) -> list[Notice]:
    notices = (
        blocking_notice(look.snapshot.node_pools[name], budget)
        for name, budget in sorted(budgets.items())
    )
    return [notice for notice in notices if notice is not None]
