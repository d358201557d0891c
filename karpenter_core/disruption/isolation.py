"""Runs disruption methods without the candidates that make them fail.

This runs only after a failure. When a method fails, it is run with each of its candidates alone;
those with which it fails are set aside, and the method is run with the rest. A method that still
fails is left out of the pass, and the other methods run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.disruption.acceptance import CandidateAcceptance
from karpenter_core.disruption.method import MethodPlan
from karpenter_core.disruption.validation import CommandRejection, ValidationVerdict
from karpenter_core.state.state_nodes import state_node_ref

if TYPE_CHECKING:
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import (
        DisruptionMethod,
        DisruptionPass,
        PoolBudgets,
        WorkSteps,
    )

__all__ = ["accept_or_set_aside", "isolated_plan_steps", "isolated_validation_steps"]

UNITS_PER_CANDIDATE: Final = 10


def accept_or_set_aside(
    disruption_pass: DisruptionPass, method: DisruptionMethod, candidate: Candidate
) -> CandidateAcceptance:
    """Ask a method whether it accepts a candidate; set the candidate aside if that fails."""
    try:
        return method.accept(candidate, disruption_pass)
    except Exception as error:
        _set_aside(disruption_pass, candidate, method, error)
        return CandidateAcceptance(accepted=False)


def isolated_plan_steps(
    disruption_pass: DisruptionPass,
    method: DisruptionMethod,
    candidates: tuple[Candidate, ...],
    budgets: PoolBudgets,
) -> WorkSteps[MethodPlan]:
    """Run a method; set aside the candidates with which it fails."""
    try:
        return (yield from method.plan_steps(disruption_pass, candidates, budgets))
    except Exception as error:
        first = error
    disruption_pass.simulation.reset()
    sound = yield from _evaluable_candidates_steps(disruption_pass, method, candidates, budgets)
    if disruption_pass.time_limit.is_reached:
        return MethodPlan(is_cut_short=True)
    if len(sound) < len(candidates):
        disruption_pass.simulation.reset()
        try:
            return (yield from method.plan_steps(disruption_pass, sound, budgets))
        except Exception as error:
            first = error
    disruption_pass.simulation.reset()
    for pool in {item.pool.name: item.pool for item in candidates}.values():
        disruption_pass.failed.note(pool.ref, method.name, first)
    return MethodPlan()


def _evaluable_candidates_steps(
    disruption_pass: DisruptionPass,
    method: DisruptionMethod,
    candidates: tuple[Candidate, ...],
    budgets: PoolBudgets,
) -> WorkSteps[tuple[Candidate, ...]]:
    """Return the candidates with which a method alone does not fail."""
    sound: list[Candidate] = []
    for candidate in candidates:
        if disruption_pass.time_limit.is_reached:
            break
        try:
            yield from method.plan_steps(disruption_pass, (candidate,), budgets)
            # None keeps the method's setting: changing it for each of thousands takes too long.
            yield from disruption_pass.simulation.prepare_steps(avoid_unsettled=None)
            disruption_pass.simulation.evaluate((candidate,))
        except Exception as error:
            _set_aside(disruption_pass, candidate, method, error)
        else:
            sound.append(candidate)
        yield UNITS_PER_CANDIDATE
    return tuple(sound)


def isolated_validation_steps(
    method: DisruptionMethod, command: Command, disruption_pass: DisruptionPass
) -> WorkSteps[ValidationVerdict]:
    """Validate a command again; one whose validation fails is given up."""
    try:
        return (yield from method.validate_steps(command, disruption_pass))
    except Exception as error:
        for candidate in command.candidates:
            _set_aside(disruption_pass, candidate, method, error)
        return ValidationVerdict(
            rejection=CommandRejection.SCHEDULING, failed_candidates=len(command.candidates)
        )


def _set_aside(
    disruption_pass: DisruptionPass,
    candidate: Candidate,
    method: DisruptionMethod,
    error: Exception,
) -> None:
    disruption_pass.failed.note(state_node_ref(candidate.state_node), method.name, error)
    disruption_pass.failed.note(candidate.claim.ref, method.name, error)
