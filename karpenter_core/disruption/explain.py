"""Why a machine is or is not disrupted now, method by method, from the code that decides it.

Nothing is judged here. Each method is asked as the controller asks it; where it takes other
machines, it is asked once more with this machine alone, so that what it would be can be said.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from karpenter_core.disruption.isolation import accepted_or_aside, method_steps
from karpenter_core.disruption.plan import METHODS
from karpenter_core.scheduling.whatif.engine import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.api.notices import Notice
    from karpenter_core.disruption.balanced import Score
    from karpenter_core.disruption.budgets import PoolBudget
    from karpenter_core.disruption.candidates import Blocked, Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import Budgets, Declined, Method, MethodPlan, Pass
    from karpenter_core.state.snapshot import StateNode

__all__ = ["SEVERAL", "MachineAnswer", "MethodAnswer", "Verdict", "explain_machine"]

SEVERAL: Final = "multi"
"""Consolidation type of the method that is never about one machine alone."""


class Verdict(StrEnum):
    """What a method says of a machine."""

    BLOCKED = "blocked"
    """Something forbids it: `MethodAnswer.blocked`."""
    DECLINED = "declined"
    """It is not about this machine: `MethodAnswer.declined`."""
    BUDGET = "budget"
    """It would, and the budgets of its pool allow no more now."""
    REFUSED = "refused"
    """It looked, and the machine cannot go or is not worth it."""
    LATER = "later"
    """It would, after others: `MethodAnswer.others`."""
    CHOSEN = "chosen"
    """It takes the machine now, if no method before it has anything to do."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MethodAnswer:
    """What one method says of a machine.

    `command` is the move it makes (chosen), or would make with this machine alone (later, budget;
    None where it is not about single machines). `messages` are what it tells users of the machine.
    """

    method: Method
    verdict: Verdict
    eligible: int = 0
    """How many machines the method is about, this one included."""
    blocked: Blocked | None = None
    declined: Declined | None = None
    budget: PoolBudget | None = None
    messages: tuple[str, ...] = ()
    scores: tuple[Score, ...] = ()
    command: Command | None = None
    others: tuple[str, ...] = ()
    """Names of the nodes that it takes first."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MachineAnswer:
    """What all methods say of a machine, in the order in which they are tried.

    `winner` is the method that acts in this look, on this machine or on others; None when none
    does.
    """

    machine: StateNode
    candidate: Candidate | None
    methods: tuple[MethodAnswer, ...]
    winner: Method | None = None


def explain_machine(
    look: Pass, machine: StateNode, *, methods: Sequence[Method] = METHODS
) -> MachineAnswer:
    """Ask every method about a machine."""
    answers: list[MethodAnswer] = []
    winner: Method | None = None
    candidate: Candidate | None = None
    for method in methods:
        found = look.candidates(method.disruption_class)
        accepted = tuple(
            item for item in found.candidates if accepted_or_aside(look, method, item).accepted
        )
        budgets = look.budgets(method.reason)
        outcome = _plan(look, method, accepted, budgets) if accepted else None
        if outcome is not None and outcome.commands and winner is None:
            winner = method
        blocked = next((item for item in found.blocked if item.machine is machine), None)
        if blocked is not None:
            answers.append(
                MethodAnswer(
                    method=method,
                    verdict=Verdict.BLOCKED,
                    eligible=len(accepted),
                    blocked=blocked,
                )
            )
            continue
        candidate = next(item for item in found.candidates if item.machine is machine)
        answer = _answer(look, method, candidate, outcome, budgets)
        answers.append(replace(answer, eligible=len(accepted)))
    return MachineAnswer(
        machine=machine, candidate=candidate, methods=tuple(answers), winner=winner
    )


def _answer(
    look: Pass,
    method: Method,
    candidate: Candidate,
    outcome: MethodPlan | None,
    budgets: Budgets,
) -> MethodAnswer:
    budget = budgets.get(candidate.pool.name)
    acceptance = accepted_or_aside(look, method, candidate)
    if not acceptance.accepted or outcome is None:
        return MethodAnswer(
            method=method,
            verdict=Verdict.DECLINED,
            declined=acceptance.declined,
            budget=budget,
            messages=_about(acceptance.notices, candidate),
        )
    for command in outcome.commands:
        if candidate in command.candidates:
            return MethodAnswer(
                method=method,
                verdict=Verdict.CHOSEN,
                budget=budget,
                command=command,
            )
    if budget is None or budget.remaining == 0:
        return MethodAnswer(method=method, verdict=Verdict.BUDGET, budget=budget)
    alone = _plan(look, method, (candidate,), budgets)
    failures = [item.notice for item in look.failed.found if item.step == method.name]
    others = tuple(item.node.name for command in outcome.commands for item in command.candidates)
    if alone.commands or (others and method.consolidation_type == SEVERAL):
        return MethodAnswer(
            method=method,
            verdict=Verdict.LATER,
            budget=budget,
            scores=alone.scores,
            command=next(iter(alone.commands), None),
            others=others,
        )
    return MethodAnswer(
        method=method,
        verdict=Verdict.REFUSED,
        budget=budget,
        messages=_about((*alone.notices, *failures), candidate),
        scores=tuple(score for score in alone.scores if not score.approved),
    )


def _plan(
    look: Pass, method: Method, candidates: tuple[Candidate, ...], budgets: Budgets
) -> MethodPlan:
    return run(method_steps(look, method, candidates, budgets))


def _about(notices: Iterable[Notice], candidate: Candidate) -> tuple[str, ...]:
    """Return what is told about a machine, each text once."""
    texts = (item.message for item in notices if item.regarding.uid == candidate.claim.uid)
    return tuple(dict.fromkeys(texts))
