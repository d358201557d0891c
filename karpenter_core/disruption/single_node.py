"""Single-node consolidation: one machine goes, and one that is cheaper comes, or none.

Every candidate is asked for in each look, so pools need not take turns; only where the time of one
look does not suffice, the next one begins with the pools that were not reached.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.disruption.balanced import BALANCED, is_approved, scores
from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.disruption.consolidation import (
    Move,
    accept,
    best_move,
    by_savings,
    command_of,
    each_within_budget,
    unconsolidatable,
)
from karpenter_core.disruption.method import MethodPlan
from karpenter_core.disruption.notices import approved_candidate
from karpenter_core.disruption.revalidation import revalidate_steps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.notices import Notice
    from karpenter_core.disruption.balanced import Score
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import Acceptance, Budgets, Pass, Steps
    from karpenter_core.disruption.validation import Verdict

__all__ = ["SingleNode"]

UNITS_PER_QUESTION: Final = 5
MOST_ALTERNATIVES: Final = 10
"""Moves that are kept on record beside the one that is made."""


@dataclass(frozen=True, slots=True)
class SingleNode:
    """Consolidate the one machine with the best saving."""

    name: str = "single-node-consolidation"
    reason: DisruptionReason = DisruptionReason.UNDERUTILIZED
    consolidation_type: str = "single"
    disruption_class: DisruptionClass = DisruptionClass.GRACEFUL
    is_validated: bool = True
    remembers: bool = True

    def accept(self, candidate: Candidate, look: Pass) -> Acceptance:
        """Take settled machines in use."""
        del look
        return accept(candidate)

    def plan_steps(
        self, look: Pass, candidates: tuple[Candidate, ...], budgets: Budgets
    ) -> Steps[MethodPlan]:
        """Return the move with the best saving for what it disturbs."""
        allowed = each_within_budget(candidates, budgets)
        constrained = len(allowed) < len(candidates)
        if not allowed:
            return MethodPlan(constrained=constrained)
        yield from look.simulation.prepare_steps(peaceful=True)
        totals = look.totals
        notices: list[Notice] = []
        moves: list[tuple[Move, tuple[Score, ...]]] = []
        refused: list[Score] = []
        unseen: frozenset[str] = frozenset()
        is_cut_short = False
        waiting = look.unseen.get(self.name, frozenset())
        ordered = sorted(
            by_savings(allowed, look.prices), key=lambda item: item.pool.name not in waiting
        )
        for number, candidate in enumerate(ordered):
            if look.effort.is_spent:
                is_cut_short, unseen = True, _pools(ordered[number:]) - _pools(ordered[:number])
                break
            # What ending it for nothing would score is the most that any move of it can.
            ceiling = scores((candidate,), look.prices.of((candidate,)), totals, look.prices)
            if candidate.pool.name in totals and not is_approved(ceiling):
                refused += (score for score in ceiling if score.policy == BALANCED)
                continue
            found = best_move(look, (candidate,))
            yield UNITS_PER_QUESTION
            if not isinstance(found, Move):
                if found.message:
                    notices += unconsolidatable(candidate, found.message)
                continue
            judged = scores((candidate,), found.savings_per_hour, totals, look.prices)
            if is_approved(judged):
                moves.append((found, judged))
            else:
                refused += judged
        if not moves:
            return MethodPlan(
                constrained=constrained,
                is_cut_short=is_cut_short,
                unseen=unseen,
                notices=tuple(notices),
                scores=tuple(refused),
            )
        (best, judged), *others = sorted(moves, key=_worth)
        command = command_of(
            look,
            self,
            best,
            alternatives={
                move.candidates[0].node.name: move.savings_per_hour
                for move, _ in others[:MOST_ALTERNATIVES]
            },
        )
        notices += approved_candidate(best.candidates[0], judged)
        return MethodPlan(
            commands=(command,),
            constrained=constrained,
            is_cut_short=is_cut_short,
            unseen=unseen,
            notices=tuple(notices),
            scores=(*refused, *judged),
        )

    def validate_steps(self, command: Command, look: Pass) -> Steps[Verdict]:
        """All of it still holds, or nothing does."""
        return (yield from revalidate_steps(self, command, look))


def _pools(candidates: Iterable[Candidate]) -> frozenset[str]:
    return frozenset(candidate.pool.name for candidate in candidates)


def _worth(found: tuple[Move, tuple[Score, ...]]) -> tuple[float, str]:
    """Order moves: what they save for what they disturb, best first, then by name."""
    move, _ = found
    return (-move.savings_per_hour / move.disturbance, move.candidates[0].name)
