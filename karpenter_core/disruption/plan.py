"""Runs one disruption pass: the first method with commands wins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.disruption.blocked_nodes import blocked_notices
from karpenter_core.disruption.budgets import blocking_notice
from karpenter_core.disruption.candidates import is_recent
from karpenter_core.disruption.drift import DriftMethod
from karpenter_core.disruption.emptiness import EmptinessMethod
from karpenter_core.disruption.fingerprint import consolidation_fingerprint, digest_fingerprint
from karpenter_core.disruption.isolation import accept_or_set_aside, isolated_plan_steps
from karpenter_core.disruption.method import MethodPlan
from karpenter_core.disruption.multi_node import MultiNodeConsolidation
from karpenter_core.disruption.return_to_preferred import ReturnToPreferred
from karpenter_core.disruption.shutdown import ShutdownMethod
from karpenter_core.disruption.single_node import SingleNodeConsolidation
from karpenter_core.disruption.static_drift import StaticDriftMethod
from karpenter_core.scheduling.identity_memo import IdentityMemo
from karpenter_core.scheduling.steps import run_steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.api.judgements import FailedJudgement
    from karpenter_core.api.notices import Notice
    from karpenter_core.disruption.acceptance import CandidateAcceptance
    from karpenter_core.disruption.balanced import BalancedScore
    from karpenter_core.disruption.budgets import DisruptionReason, PoolBudget
    from karpenter_core.disruption.candidates import Candidate, DisruptionClass
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import (
        DisruptionMethod,
        DisruptionOptions,
        DisruptionPass,
        RemainingBudgets,
        WorkSteps,
    )

__all__ = ["METHODS", "DisruptionPlan", "MethodReport", "methods_of", "plan", "plan_steps"]

METHODS: Final[tuple[DisruptionMethod, ...]] = (
    EmptinessMethod(),
    DriftMethod(),
    MultiNodeConsolidation(),
    SingleNodeConsolidation(),
    ReturnToPreferred(),
)
"""The methods of dynamic pools in the order they are tried."""

_WITH_STATIC_DRIFT: Final = (METHODS[0], StaticDriftMethod(), *METHODS[1:])
_SHUTDOWN: Final = ShutdownMethod()


def methods_of(
    options: DisruptionOptions, *, shuts_down: bool = False
) -> tuple[DisruptionMethod, ...]:
    """Return the methods of a process, in the order they are tried.

    With the feature gate `StaticCapacity` one replaces drifted nodes of static pools. While a window
    `shuts_down` some pool, the first one drains it.
    """
    methods = _WITH_STATIC_DRIFT if options.static_capacity else METHODS
    return (_SHUTDOWN, *methods) if shuts_down else methods


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodReport:
    """The report of one method, for metrics and explanations.

    `is_idle` says that it found nothing and need not run again until something changes or
    `remaining_budgets` differ. It is False while pods are expected on some node, since that ends
    by itself.
    """

    method: DisruptionMethod
    eligible: int
    constrained: bool
    is_cut_short: bool
    is_idle: bool
    remaining_budgets: RemainingBudgets
    unexamined_pools: frozenset[str]
    budgets: Mapping[str, PoolBudget]
    scores: tuple[BalancedScore, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DisruptionPlan:
    """The result of a pass: the commands of the first method that has any.

    `inputs` is the digest of the state that they are based on.
    """

    commands: tuple[Command, ...] = ()
    method: DisruptionMethod | None = None
    notices: tuple[Notice, ...] = ()
    reports: tuple[MethodReport, ...] = ()
    inputs: str = ""
    set_aside: tuple[FailedJudgement, ...] = ()
    """Objects that could not be evaluated, and were not disrupted."""


def plan(
    disruption_pass: DisruptionPass, *, methods: Sequence[DisruptionMethod] = METHODS
) -> DisruptionPlan:
    """Return the commands of the first method that has any."""
    return run_steps(plan_steps(disruption_pass, methods=methods))


def plan_steps(
    disruption_pass: DisruptionPass, *, methods: Sequence[DisruptionMethod] = METHODS
) -> WorkSteps[DisruptionPlan]:
    """Run a pass in small steps; yields units of work.

    Nothing is planned before every informer has listed its objects once.
    """
    if not disruption_pass.snapshot.synced:
        return DisruptionPlan()
    notices: list[Notice] = []
    reports: list[MethodReport] = []
    reported: set[DisruptionClass | DisruptionReason] = set()
    for method in methods:
        candidate_lists = disruption_pass.candidates(method.disruption_class)
        if method.disruption_class not in reported:  # methods of one class are blocked alike
            reported.add(method.disruption_class)
            notices.extend(candidate_lists.notices)
            for blocked in candidate_lists.blocked:
                notices.extend(blocked_notices(blocked))
        yield 5
        accepted = _accept_candidates(disruption_pass, method, notices)
        budgets = disruption_pass.budgets(method.reason)
        if method.reason not in reported:
            reported.add(method.reason)
            notices.extend(_budget_notices(disruption_pass, budgets))
        remaining = tuple((name, budget.remaining) for name, budget in sorted(budgets.items()))
        is_known = (
            method.skips_unchanged_state
            and disruption_pass.idle_methods.get(method.name) == remaining
        )
        outcome = MethodPlan()
        if accepted and not is_known:
            outcome = yield from isolated_plan_steps(disruption_pass, method, accepted, budgets)
        notices.extend(outcome.notices)
        reports.append(
            MethodReport(
                method=method,
                eligible=len(accepted),
                constrained=outcome.constrained,
                is_cut_short=outcome.is_cut_short,
                is_idle=is_known or _is_idle(disruption_pass, method, outcome),
                remaining_budgets=remaining,
                unexamined_pools=outcome.unexamined_pools,
                budgets=budgets,
                scores=outcome.scores,
            )
        )
        if outcome.commands:
            return _plan(disruption_pass, notices, reports, method, outcome.commands)
    return _plan(disruption_pass, notices, reports)


def _accept_candidates(
    disruption_pass: DisruptionPass, method: DisruptionMethod, notices: list[Notice]
) -> tuple[Candidate, ...]:
    """Return the candidates that a method accepts; add the reasons of the others to `notices`."""
    candidates = disruption_pass.candidates(method.disruption_class).candidates
    accepted: list[Candidate] = []
    for candidate, verdict in zip(
        candidates, _acceptances(disruption_pass, method, candidates), strict=True
    ):
        if verdict.accepted:
            accepted.append(candidate)
        # Every node of a pool is declined at first.
        if verdict.notices and not is_recent(candidate.state_node, disruption_pass.now):
            notices.extend(verdict.notices)
    return tuple(accepted)


def _acceptances(
    disruption_pass: DisruptionPass, method: DisruptionMethod, candidates: tuple[Candidate, ...]
) -> Sequence[CandidateAcceptance]:
    """Return the verdict of a method on every candidate; those of the last pass where they hold."""
    inputs = method.acceptance_inputs(disruption_pass)
    if inputs is not None:
        memo = disruption_pass.memory.acceptances.setdefault(method.name, IdentityMemo())
        try:
            return memo.values(
                candidates,
                lambda candidate: method.accept(candidate, disruption_pass),
                equal=inputs,
            )
        except Exception:  # noqa: S110 - below it is set aside with its candidate
            pass
    return [accept_or_set_aside(disruption_pass, method, candidate) for candidate in candidates]


def _is_idle(
    disruption_pass: DisruptionPass, method: DisruptionMethod, outcome: MethodPlan
) -> bool:
    """Tell whether the method would find nothing again while the state is the same."""
    blocked = disruption_pass.candidates(method.disruption_class).blocked
    return not (
        outcome.commands
        or outcome.is_cut_short
        or disruption_pass.failed.found
        or any(item.is_expected for item in blocked)
    )


def _plan(
    disruption_pass: DisruptionPass,
    notices: Sequence[Notice],
    reports: Sequence[MethodReport],
    method: DisruptionMethod | None = None,
    commands: tuple[Command, ...] = (),
) -> DisruptionPlan:
    inputs = ""
    if commands:
        inputs = digest_fingerprint(
            disruption_pass.fingerprint or consolidation_fingerprint(disruption_pass.snapshot)
        )
    return DisruptionPlan(
        commands=commands,
        method=method,
        notices=tuple(notices),
        reports=tuple(reports),
        inputs=inputs,
        set_aside=(*disruption_pass.snapshot.set_aside, *disruption_pass.failed.found),
    )


def _budget_notices(
    disruption_pass: DisruptionPass, budgets: Mapping[str, PoolBudget]
) -> list[Notice]:
    notices = (
        blocking_notice(disruption_pass.snapshot.node_pools[name], budget)
        for name, budget in sorted(budgets.items())
    )
    return [notice for notice in notices if notice is not None]
