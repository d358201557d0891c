"""One look for something to disrupt: the methods in order, the first that finds something wins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from karpenter_core.disruption.budgets import blocking_notice
from karpenter_core.disruption.candidates import blocked_notices, is_new
from karpenter_core.disruption.drift import Drift
from karpenter_core.disruption.emptiness import Emptiness
from karpenter_core.disruption.isolation import accepted_or_aside, method_steps
from karpenter_core.disruption.method import MethodPlan
from karpenter_core.disruption.multi_node import MultiNode
from karpenter_core.disruption.returning import Return
from karpenter_core.disruption.single_node import SingleNode
from karpenter_core.disruption.stamp import digest_of, stamp_of
from karpenter_core.scheduling.whatif.engine import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.api.judgements import FailedJudgement
    from karpenter_core.api.notices import Notice
    from karpenter_core.disruption.balanced import Score
    from karpenter_core.disruption.budgets import DisruptionReason, PoolBudget
    from karpenter_core.disruption.candidates import DisruptionClass
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import Method, Pass, Room, Steps

__all__ = ["METHODS", "DisruptionPlan", "MethodReport", "plan", "plan_steps"]

METHODS: Final[tuple[Method, ...]] = (Emptiness(), Drift(), MultiNode(), SingleNode(), Return())
"""The built-in methods in the order they are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodReport:
    """What a method saw: for metrics and explanations.

    `is_settled` says that it found nothing, and that looking again would not help until something
    changes, or budgets leave other `room`; so it is not while pods are expected on some machine,
    which ends by itself.
    """

    method: Method
    eligible: int
    constrained: bool
    is_cut_short: bool = False
    is_settled: bool = False
    room: Room = ()
    unseen: frozenset[str] = frozenset()
    budgets: Mapping[str, PoolBudget] = field(default_factory=dict[str, "PoolBudget"])
    scores: tuple[Score, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DisruptionPlan:
    """What a look came to: the commands of the first method that found something.

    `inputs` is the digest of what they rest on.
    """

    commands: tuple[Command, ...] = ()
    method: Method | None = None
    notices: tuple[Notice, ...] = ()
    reports: tuple[MethodReport, ...] = ()
    inputs: str = ""
    set_aside: tuple[FailedJudgement, ...] = ()
    """What could not be judged, and was left alone."""


def plan(look: Pass, *, methods: Sequence[Method] = METHODS) -> DisruptionPlan:
    """Return the commands of the first method that has any."""
    return run(plan_steps(look, methods=methods))


def plan_steps(look: Pass, *, methods: Sequence[Method] = METHODS) -> Steps[DisruptionPlan]:
    """Do the same in small steps; yields units of work.

    Nothing is judged before the state has seen everything once.
    """
    if not look.snapshot.synced:
        return DisruptionPlan()
    notices: list[Notice] = []
    reports: list[MethodReport] = []
    told: set[DisruptionClass | DisruptionReason] = set()
    for method in methods:
        found = look.candidates(method.disruption_class)
        if method.disruption_class not in told:  # methods of one class are blocked alike
            told.add(method.disruption_class)
            notices.extend(found.notices)
            for blocked in found.blocked:
                notices.extend(blocked_notices(blocked))
        yield 5
        verdicts = [
            (candidate, accepted_or_aside(look, method, candidate))
            for candidate in found.candidates
        ]
        notices.extend(
            notice
            for candidate, verdict in verdicts
            if not is_new(candidate.machine, look.now)  # as every machine of its pool is at first
            for notice in verdict.notices
        )
        accepted = tuple(candidate for candidate, verdict in verdicts if verdict.accepted)
        budgets = look.budgets(method.reason)
        if method.reason not in told:
            told.add(method.reason)
            notices.extend(_budget_notices(look, budgets))
        room = tuple((name, budget.remaining) for name, budget in sorted(budgets.items()))
        is_known = method.remembers and look.settled.get(method.name) == room
        outcome = MethodPlan()
        if accepted and not is_known:
            outcome = yield from method_steps(look, method, accepted, budgets)
        notices.extend(outcome.notices)
        reports.append(
            MethodReport(
                method=method,
                eligible=len(accepted),
                constrained=outcome.constrained,
                is_cut_short=outcome.is_cut_short,
                is_settled=is_known
                or not (
                    outcome.commands
                    or outcome.is_cut_short
                    or look.failed.found
                    or any(blocked.is_expected for blocked in found.blocked)
                ),
                room=room,
                unseen=outcome.unseen,
                budgets=budgets,
                scores=outcome.scores,
            )
        )
        if outcome.commands:
            return DisruptionPlan(
                commands=outcome.commands,
                method=method,
                notices=tuple(notices),
                reports=tuple(reports),
                inputs=digest_of(look.stamp or stamp_of(look.snapshot)),
                set_aside=(*look.snapshot.set_aside, *look.failed.found),
            )
    return DisruptionPlan(
        notices=tuple(notices),
        reports=tuple(reports),
        set_aside=(*look.snapshot.set_aside, *look.failed.found),
    )


def _budget_notices(look: Pass, budgets: Mapping[str, PoolBudget]) -> list[Notice]:
    notices = (
        blocking_notice(look.snapshot.node_pools[name], budget)
        for name, budget in sorted(budgets.items())
    )
    return [notice for notice in notices if notice is not None]
