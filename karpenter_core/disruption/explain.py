"""Explains why each disruption method takes or leaves a node.

This module decides nothing itself: it runs each method as the controller does. Where a method
takes other nodes, it is run once more with this node alone, to show what it would do with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from karpenter_core.disruption.isolation import accept_or_set_aside, isolated_plan_steps
from karpenter_core.disruption.plan import METHODS
from karpenter_core.scheduling.steps import run_steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.api.notices import Notice
    from karpenter_core.disruption.acceptance import DeclineReason
    from karpenter_core.disruption.balanced import BalancedScore
    from karpenter_core.disruption.blocked_nodes import BlockedNode
    from karpenter_core.disruption.budgets import PoolBudget
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import (
        DisruptionMethod,
        DisruptionPass,
        MethodPlan,
        PoolBudgets,
    )
    from karpenter_core.state.snapshot import StateNode

__all__ = [
    "SEVERAL",
    "MethodExplanation",
    "MethodVerdict",
    "StateNodeExplanation",
    "explain_state_node",
]

SEVERAL: Final = "multi"
"""Consolidation type of the method that never takes a single node."""


class MethodVerdict(StrEnum):
    """The verdict of a method on a node."""

    BLOCKED = "blocked"
    """The node may not be disrupted: `MethodExplanation.blocked`."""
    DECLINED = "declined"
    """The method does not accept the node: `MethodExplanation.decline_reason`."""
    BUDGET = "budget"
    """The budgets of the node's pool allow no more disruptions now."""
    REFUSED = "refused"
    """The method evaluated the node: it cannot be removed, or that saves too little."""
    LATER = "later"
    """The method takes other nodes first: `MethodExplanation.others`."""
    CHOSEN = "chosen"
    """The method takes the node now, if no earlier method has a command."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MethodExplanation:
    """The verdict of one method on a node, with its details.

    `command` is the command it makes (chosen), or would make with this node alone (later; None
    for a method that never takes single nodes). `messages` are its Events about the node.
    """

    method: DisruptionMethod
    verdict: MethodVerdict
    eligible: int = 0
    """Number of nodes that the method accepts, this one included."""
    blocked: BlockedNode | None = None
    decline_reason: DeclineReason | None = None
    budget: PoolBudget | None = None
    messages: tuple[str, ...] = ()
    scores: tuple[BalancedScore, ...] = ()
    command: Command | None = None
    others: tuple[str, ...] = ()
    """Names of the nodes that the method takes first."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StateNodeExplanation:
    """The verdicts of all methods on a node, in the order in which they are tried.

    `winner` is the first method of this pass with a command, for this node or others; None when
    no method has one.
    """

    state_node: StateNode
    candidate: Candidate | None
    methods: tuple[MethodExplanation, ...]
    winner: DisruptionMethod | None


def explain_state_node(
    disruption_pass: DisruptionPass,
    state_node: StateNode,
    *,
    methods: Sequence[DisruptionMethod] = METHODS,
) -> StateNodeExplanation:
    """Run every method and explain its verdict on a node."""
    answers: list[MethodExplanation] = []
    winner: DisruptionMethod | None = None
    candidate: Candidate | None = None
    for method in methods:
        candidate_lists = disruption_pass.candidates(method.disruption_class)
        accepted = tuple(
            item
            for item in candidate_lists.candidates
            if accept_or_set_aside(disruption_pass, method, item).accepted
        )
        budgets = disruption_pass.budgets(method.reason)
        outcome = _plan(disruption_pass, method, accepted, budgets) if accepted else None
        if outcome is not None and outcome.commands and winner is None:
            winner = method
        blocked = next(
            (item for item in candidate_lists.blocked if item.state_node is state_node), None
        )
        if blocked is not None:
            answers.append(
                MethodExplanation(
                    method=method,
                    verdict=MethodVerdict.BLOCKED,
                    eligible=len(accepted),
                    blocked=blocked,
                )
            )
            continue
        candidate = next(
            item for item in candidate_lists.candidates if item.state_node is state_node
        )
        answer = _explain_method(disruption_pass, method, candidate, outcome, budgets)
        answers.append(replace(answer, eligible=len(accepted)))
    return StateNodeExplanation(
        state_node=state_node, candidate=candidate, methods=tuple(answers), winner=winner
    )


def _explain_method(
    disruption_pass: DisruptionPass,
    method: DisruptionMethod,
    candidate: Candidate,
    outcome: MethodPlan | None,
    budgets: PoolBudgets,
) -> MethodExplanation:
    budget = budgets.get(candidate.pool.name)
    acceptance = accept_or_set_aside(disruption_pass, method, candidate)
    if not acceptance.accepted or outcome is None:
        return MethodExplanation(
            method=method,
            verdict=MethodVerdict.DECLINED,
            decline_reason=acceptance.decline_reason,
            budget=budget,
            messages=_messages_about(acceptance.notices, candidate),
        )
    for command in outcome.commands:
        if candidate in command.candidates:
            return MethodExplanation(
                method=method,
                verdict=MethodVerdict.CHOSEN,
                budget=budget,
                command=command,
            )
    if budget is None or budget.remaining == 0:
        return MethodExplanation(method=method, verdict=MethodVerdict.BUDGET, budget=budget)
    alone = _plan(disruption_pass, method, (candidate,), budgets)
    failures = [item.notice for item in disruption_pass.failed.found if item.step == method.name]
    others = tuple(item.node.name for command in outcome.commands for item in command.candidates)
    if alone.commands or (others and method.consolidation_type == SEVERAL):
        return MethodExplanation(
            method=method,
            verdict=MethodVerdict.LATER,
            budget=budget,
            scores=alone.scores,
            command=next(iter(alone.commands), None),
            others=others,
        )
    return MethodExplanation(
        method=method,
        verdict=MethodVerdict.REFUSED,
        budget=budget,
        messages=_messages_about((*alone.notices, *failures), candidate),
        scores=tuple(score for score in alone.scores if not score.approved),
    )


def _plan(
    disruption_pass: DisruptionPass,
    method: DisruptionMethod,
    candidates: tuple[Candidate, ...],
    budgets: PoolBudgets,
) -> MethodPlan:
    return run_steps(isolated_plan_steps(disruption_pass, method, candidates, budgets))


def _messages_about(notices: Iterable[Notice], candidate: Candidate) -> tuple[str, ...]:
    """Return the messages about a candidate, each once."""
    texts = (item.message for item in notices if item.regarding.uid == candidate.claim.uid)
    return tuple(dict.fromkeys(texts))
