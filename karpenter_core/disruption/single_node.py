"""Consolidates one node: deletes it or replaces it by a cheaper one.

Every pass evaluates every candidate, so pools need not take turns; only where a pass reaches its
time limit, the next one begins with the pools that were not reached.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
    price_limits,
    sort_by_savings,
    unconsolidatable_notices,
)
from karpenter_core.disruption.method import MethodPlan
from karpenter_core.disruption.revalidation import revalidate_steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.api.notices import Notice
    from karpenter_core.disruption.acceptance import CandidateAcceptance
    from karpenter_core.disruption.balanced import BalancedScore
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import DisruptionPass, PoolBudgets, WorkSteps
    from karpenter_core.disruption.validation import ValidationVerdict
    from karpenter_core.scheduling.whatif.homeless_pods import SinglePrices

__all__ = ["SingleNodeConsolidation"]

UNITS_PER_QUESTION: Final = 5
REPEATED_PER_STEP: Final = 200
"""Number of repeated refusals between two yields."""
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

    def acceptance_inputs(self, disruption_pass: DisruptionPass) -> object:
        """Return nothing: it depends on the candidate alone."""
        del disruption_pass
        return ()

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
        waiting = disruption_pass.unexamined_pools.get(self.name, frozenset())
        ordered = sort_by_savings(
            allowed, disruption_pass.prices, disruption_pass.memory.savings_order
        )
        if waiting:
            ordered.sort(key=lambda item: item.pool.name not in waiting)
        search = _SingleSearch(disruption_pass)
        yield from search.steps(ordered)
        found = MethodPlan(
            constrained=constrained,
            is_cut_short=search.is_cut_short,
            unexamined_pools=search.unexamined_pools,
            notices=tuple(search.notices),
            scores=tuple(search.refused),
        )
        if not search.moves:
            return found
        (best, judged), *others = sorted(search.moves, key=_savings_order)
        command = command_for_move(
            disruption_pass,
            self,
            best,
            alternatives={
                move.candidates[0].node.name: move.savings_per_hour
                for move, _ in others[:MAX_ALTERNATIVES]
            },
        )
        approved = approved_candidate_notices(best.candidates[0], judged)
        return replace(
            found,
            commands=(command,),
            notices=(*found.notices, *approved),
            scores=(*found.scores, *judged),
        )

    def validate_steps(
        self, command: Command, disruption_pass: DisruptionPass
    ) -> WorkSteps[ValidationVerdict]:
        """Keep the command if all of it still holds."""
        return (yield from revalidate_steps(self, command, disruption_pass))


class _SingleSearch:
    """The possible moves of single nodes, and the Events and scores of refused ones."""

    def __init__(self, disruption_pass: DisruptionPass) -> None:
        self._pass: Final = disruption_pass
        self.moves: Final[list[tuple[DisruptionMove, tuple[BalancedScore, ...]]]] = []
        self.notices: Final[list[Notice]] = []
        self.refused: Final[list[BalancedScore]] = []
        self.is_cut_short = False
        self.unexamined_pools: frozenset[str] = frozenset()

    def steps(self, ordered: Sequence[Candidate]) -> WorkSteps[None]:
        """Evaluate candidates until the time limit."""
        simulation, refusals = self._pass.simulation, self._pass.memory.refusals
        refusals.begin_pass(self._pass.prices)
        for number, candidate in enumerate(ordered):
            if self._pass.time_limit.is_reached:
                self.is_cut_short = True
                self.unexamined_pools = _pools(ordered[number:]) - _pools(ordered[:number])
                return
            prices = simulation.single_prices(candidate)
            repeated = refusals.repeated(candidate, prices)
            if repeated is not None:
                self.notices.extend(repeated)
                if number % REPEATED_PER_STEP == 0:
                    yield UNITS_PER_QUESTION
            elif self._may_be_approved(candidate):
                self._evaluate(candidate, prices)
                yield UNITS_PER_QUESTION

    def _may_be_approved(self, candidate: Candidate) -> bool:
        """Tell whether deleting a candidate is approved: no move of it scores higher."""
        prices = self._pass.prices
        saved = prices.cost_per_hour((candidate,))
        ceiling = balanced_scores((candidate,), saved, self._pass.totals, prices)
        if is_approved(ceiling):
            return True
        self.refused.extend(score for score in ceiling if score.policy == BALANCED)
        return False

    def _evaluate(self, candidate: Candidate, prices: SinglePrices | None) -> None:
        evaluated = evaluate_single_move(self._pass, candidate)
        if isinstance(evaluated, DisruptionMove):
            judged = balanced_scores(
                (candidate,), evaluated.savings_per_hour, self._pass.totals, self._pass.prices
            )
            if is_approved(judged):
                self.moves.append((evaluated, judged))
            else:
                self.refused.extend(judged)
        elif evaluated.message:
            notices = unconsolidatable_notices(candidate, evaluated.message)
            self.notices.extend(notices)
            below = price_limits(self._pass, (candidate,)).below
            self._pass.memory.refusals.keep(candidate, prices, notices, below_price=below)


def _pools(candidates: Iterable[Candidate]) -> frozenset[str]:
    return frozenset(candidate.pool.name for candidate in candidates)


def _savings_order(
    scored_move: tuple[DisruptionMove, tuple[BalancedScore, ...]],
) -> tuple[float, str]:
    """Order moves by savings per disruption cost, best first, then by name."""
    move, _ = scored_move
    return (-move.savings_per_hour / move.disruption_cost, move.candidates[0].name)
