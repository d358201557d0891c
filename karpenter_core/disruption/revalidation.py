"""The second look at a consolidation: it must still hold, on the cluster as it is now.

A small command holds as a whole or not at all, as in the reference. Of a large one something has
nearly always changed after the wait: one of its machines has got a pod, a pod has gone elsewhere
than was thought. What is left of it then is judged anew, as a set, and shortened until it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.disruption.balanced import is_approved, scores
from karpenter_core.disruption.consolidation import (
    Move,
    best_move,
    renewed,
    still_accepted,
    within_budgets,
)
from karpenter_core.disruption.validation import Rejection, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import Method, Pass, Steps

__all__ = ["revalidate_steps"]

SMALLEST_SHORTENED: Final = 4
"""Machines of a command that is large enough to be shortened."""
UNITS_PER_QUESTION: Final = 10


def revalidate_steps(method: Method, command: Command, look: Pass) -> Steps[Verdict]:
    """Ask again what was asked, and take the new answer if it is of the same kind.

    Candidates must have remained ones, their budgets must have room, and what is to be launched
    must be something that the new answer allows too.
    """
    asked = len(command.candidates)
    alive = still_accepted(method, command, look)
    kept, _ = within_budgets(alive, look.budgets(method.reason))
    is_large = asked >= SMALLEST_SHORTENED
    least = 2 if is_large else asked
    if len(alive) < least:
        return Verdict(rejection=Rejection.CHURN, failed=asked)
    if len(kept) < least:
        return Verdict(rejection=Rejection.BUDGET, failed=asked)
    yield from look.simulation.prepare_steps(peaceful=True)
    move = yield from (
        _shortened_steps(command, look, kept) if is_large else _whole_steps(command, look, kept)
    )
    if move is None:
        return Verdict(rejection=Rejection.SCHEDULING, failed=asked)
    return Verdict(command=renewed(command, move, look), failed=asked - len(move.candidates))


def _whole_steps(command: Command, look: Pass, kept: Sequence[Candidate]) -> Steps[Move | None]:
    """Return the new answer if it is like the old one."""
    move = best_move(look, kept, most_claims=_most_claims(command, len(kept)))
    yield UNITS_PER_QUESTION
    return move if isinstance(move, Move) and _is_alike(command, move) else None


def _shortened_steps(command: Command, look: Pass, kept: Sequence[Candidate]) -> Steps[Move | None]:
    """Return the new answer for as many of the candidates as need no more than was planned."""
    count = len(kept)
    while count >= 2:  # noqa: PLR2004 - one is for the method that takes single machines
        move = best_move(look, kept[:count], most_claims=_most_claims(command, count))
        yield UNITS_PER_QUESTION
        if (
            isinstance(move, Move)
            and len(move.replacements) <= len(command.replacements)
            and (len(move.candidates) == len(command.candidates) or _is_approved(move, look))
        ):
            return move
        count = count * 3 // 4
    return None


def _most_claims(command: Command, candidates: int) -> int:
    """Return what the first look asked for: one new machine, or as many as there are old ones."""
    return candidates if len(command.replacements) > 1 else 1


def _is_approved(move: Move, look: Pass) -> bool:
    """Tell whether what is left of a move is worth it still, by the policy of its pools."""
    return is_approved(scores(move.candidates, move.savings_per_hour, look.totals, look.prices))


def _is_alike(command: Command, move: Move) -> bool:
    """Tell whether a new answer needs as many machines, of which the old ones are examples."""
    if len(command.replacements) != len(move.replacements):
        return False
    if len(command.replacements) != 1:
        return True
    (old,), (new,) = command.replacements, move.verdict.claims
    return set(old.instance_types) <= set(new.instance_types)
