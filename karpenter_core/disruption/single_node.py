"""Consolidates one node: deletes it or replaces it by a cheaper one.

Every pass evaluates every candidate, so pools need not take turns; only where a pass reaches its
time limit, the next one begins with the pools that were not reached.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.disruption.balanced import BALANCED, balanced_scores, is_approved
from karpenter_core.disruption.balanced_notices import approved_candidate_notices
from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.disruption.committed_moves import evaluate_single_move
from karpenter_core.disruption.consolidation import (
    DisruptionMove,
    accept_for_consolidation,
    command_for_move,
    individually_within_budget,
    sort_by_savings,
    unconsolidatable_notices,
)
from karpenter_core.disruption.method import MethodPlan
from karpenter_core.disruption.revalidation import revalidate_steps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.notices import Notice
    from karpenter_core.disruption.balanced import BalancedScore
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import (
        CandidateAcceptance,
        DisruptionPass,
        PoolBudgets,
        WorkSteps,
    )
    from karpenter_core.disruption.validation import ValidationVerdict

__all__ = ["SingleNodeConsolidation"]

UNITS_PER_QUESTION: Final = 5
MAX_ALTERNATIVES: Final = 10
"""Number of other moves that the decision journal records."""


@dataclass(frozen=True, slots=True)
class SingleNodeConsolidation:
    """Consolidates the one node with the best savings for its disruption cost."""

    name: str = "single-node-consolidation"
    reason: DisruptionReason = DisruptionReason.UNDERUTILIZED
    consolidation_type: str = "single"
    disruption_class: DisruptionClass = DisruptionClass.GRACEFUL
    is_validated: bool = True
    skips_unchanged_state: bool = True

    def accept(self, candidate: Candidate, disruption_pass: DisruptionPass) -> CandidateAcceptance:
        """Accept consolidatable nodes in use."""
        del disruption_pass
        return accept_for_consolidation(candidate)

    def plan_steps(
        self,
        disruption_pass: DisruptionPass,
        candidates: tuple[Candidate, ...],
        budgets: PoolBudgets,
    ) -> WorkSteps[MethodPlan]:
        """Return the move with the best savings for its disruption cost."""
        allowed = individually_within_budget(candidates, budgets)
        constrained = len(allowed) < len(candidates)
        if not allowed:
            return MethodPlan(constrained=constrained)
        yield from disruption_pass.simulation.prepare_steps(avoid_unsettled=True)
        totals = disruption_pass.totals
        notices: list[Notice] = []
        moves: list[tuple[DisruptionMove, tuple[BalancedScore, ...]]] = []
        refused: list[BalancedScore] = []
        unseen: frozenset[str] = frozenset()
        is_cut_short = False
        waiting = disruption_pass.unexamined_pools.get(self.name, frozenset())
        ordered = sorted(
            sort_by_savings(allowed, disruption_pass.prices),
            key=lambda item: item.pool.name not in waiting,
        )
        for number, candidate in enumerate(ordered):
            if disruption_pass.time_limit.is_reached:
                is_cut_short, unseen = True, _pools(ordered[number:]) - _pools(ordered[:number])
                break
            # No move of it scores higher than deleting it without a replacement.
            ceiling = balanced_scores(
                (candidate,),
                disruption_pass.prices.cost_per_hour((candidate,)),
                totals,
                disruption_pass.prices,
            )
            if not is_approved(ceiling):
                refused += (score for score in ceiling if score.policy == BALANCED)
                continue
            evaluated = evaluate_single_move(disruption_pass, candidate)
            yield UNITS_PER_QUESTION
            if not isinstance(evaluated, DisruptionMove):
                if evaluated.message:
                    notices += unconsolidatable_notices(candidate, evaluated.message)
                continue
            judged = balanced_scores(
                (candidate,), evaluated.savings_per_hour, totals, disruption_pass.prices
            )
            if is_approved(judged):
                moves.append((evaluated, judged))
            else:
                refused += judged
        if not moves:
            return MethodPlan(
                constrained=constrained,
                is_cut_short=is_cut_short,
                unexamined_pools=unseen,
                notices=tuple(notices),
                scores=tuple(refused),
            )
        (best, judged), *others = sorted(moves, key=_savings_order)
        command = command_for_move(
            disruption_pass,
            self,
            best,
            alternatives={
                move.candidates[0].node.name: move.savings_per_hour
                for move, _ in others[:MAX_ALTERNATIVES]
            },
        )
        notices += approved_candidate_notices(best.candidates[0], judged)
        return MethodPlan(
            commands=(command,),
            constrained=constrained,
            is_cut_short=is_cut_short,
            unexamined_pools=unseen,
            notices=tuple(notices),
            scores=(*refused, *judged),
        )

    def validate_steps(
        self, command: Command, disruption_pass: DisruptionPass
    ) -> WorkSteps[ValidationVerdict]:
        """Keep the command if all of it still holds."""
        return (yield from revalidate_steps(self, command, disruption_pass))


def _pools(candidates: Iterable[Candidate]) -> frozenset[str]:
    return frozenset(candidate.pool.name for candidate in candidates)


def _savings_order(
    scored_move: tuple[DisruptionMove, tuple[BalancedScore, ...]],
) -> tuple[float, str]:
    """Order moves by savings per disruption cost, best first, then by name."""
    move, _ = scored_move
    return (-move.savings_per_hour / move.disruption_cost, move.candidates[0].name)
