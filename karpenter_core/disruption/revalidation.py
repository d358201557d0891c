"""Validates a consolidation command again after the waiting time.

A small command holds as a whole or not at all, as in the reference. In a large one something has
nearly always changed after the wait: one of its nodes has a new pod, or a pod went to another node
than planned. The remaining candidates are evaluated again as a set, which is shortened until it
holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.disruption.balanced import balanced_scores, is_approved
from karpenter_core.disruption.committed_moves import evaluate_single_move
from karpenter_core.disruption.consolidation import (
    DisruptionMove,
    accepted_candidates,
    evaluate_move,
    split_by_budgets,
    with_new_move,
)
from karpenter_core.disruption.validation import CommandRejection, ValidationVerdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import DisruptionMethod, DisruptionPass, WorkSteps

__all__ = ["revalidate_steps"]

SMALLEST_SHORTENED: Final = 4
"""Number of candidates from which a command may be shortened."""
UNITS_PER_QUESTION: Final = 10


def revalidate_steps(
    method: DisruptionMethod, command: Command, disruption_pass: DisruptionPass
) -> WorkSteps[ValidationVerdict]:
    """Evaluate a command's move again, and take the new move if it is equivalent.

    Candidates must still be accepted and within budget, and the new move must allow the
    replacements that the command launches.
    """
    candidate_count = len(command.candidates)
    alive = accepted_candidates(method, command, disruption_pass)
    remaining, _ = split_by_budgets(alive, disruption_pass.budgets(method.reason))
    is_large = candidate_count >= SMALLEST_SHORTENED
    least = 2 if is_large else candidate_count
    if len(alive) < least:
        return ValidationVerdict(
            rejection=CommandRejection.CHURN, failed_candidates=candidate_count
        )
    if len(remaining) < least:
        return ValidationVerdict(
            rejection=CommandRejection.BUDGET, failed_candidates=candidate_count
        )
    yield from disruption_pass.simulation.prepare_steps(avoid_unsettled=True)
    move = yield from (
        _reduced_command_steps(command, disruption_pass, remaining)
        if is_large
        else _full_command_steps(command, disruption_pass, remaining)
    )
    if move is None:
        return ValidationVerdict(
            rejection=CommandRejection.SCHEDULING, failed_candidates=candidate_count
        )
    return ValidationVerdict(
        command=with_new_move(command, move, disruption_pass),
        failed_candidates=candidate_count - len(move.candidates),
    )


def _full_command_steps(
    command: Command, disruption_pass: DisruptionPass, remaining: Sequence[Candidate]
) -> WorkSteps[DisruptionMove | None]:
    """Return the new move if it is equivalent to the command."""
    if len(remaining) == 1:
        move = evaluate_single_move(disruption_pass, remaining[0])
    else:
        move = evaluate_move(
            disruption_pass, remaining, max_claims=_most_claims(command, len(remaining))
        )
    yield UNITS_PER_QUESTION
    return move if isinstance(move, DisruptionMove) and _is_equivalent(command, move) else None


def _reduced_command_steps(
    command: Command, disruption_pass: DisruptionPass, remaining: Sequence[Candidate]
) -> WorkSteps[DisruptionMove | None]:
    """Return the new move of as many candidates as need no more replacements than planned."""
    count = len(remaining)
    while count >= 2:  # noqa: PLR2004 - one candidate is left to single-node consolidation
        move = evaluate_move(
            disruption_pass, remaining[:count], max_claims=_most_claims(command, count)
        )
        yield UNITS_PER_QUESTION
        if (
            isinstance(move, DisruptionMove)
            and len(move.replacements) <= len(command.replacements)
            and (
                len(move.candidates) == len(command.candidates)
                or _is_approved(move, disruption_pass)
            )
        ):
            return move
        count = count * 3 // 4
    return None


def _most_claims(command: Command, candidates: int) -> int:
    """Return the most new nodes that the first pass allowed: one, or one for each candidate."""
    return candidates if len(command.replacements) > 1 else 1


def _is_approved(move: DisruptionMove, disruption_pass: DisruptionPass) -> bool:
    """Tell whether the policies of its pools still approve a shortened move."""
    return is_approved(
        balanced_scores(
            move.candidates, move.savings_per_hour, disruption_pass.totals, disruption_pass.prices
        )
    )


def _is_equivalent(command: Command, move: DisruptionMove) -> bool:
    """Tell whether a new move needs as many nodes and allows the command's instance types."""
    if len(command.replacements) != len(move.replacements):
        return False
    if len(command.replacements) != 1:
        return True
    (old,), (new,) = command.replacements, move.verdict.claims
    return set(old.instance_types) <= set(new.instance_types)
