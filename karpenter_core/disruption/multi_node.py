"""Consolidates several nodes at once into one, none, or cheaper ones.

The reference searches the prefixes of the order by savings by bisection. Here every prefix is
evaluated; then a set is grown node by node from those whose pods fit on the nodes that stay, and
the grown set is evaluated as a whole. The move that saves most is taken. If there is none, small
sets are repacked into several new nodes (m -> n), without nodes that add nothing to the savings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.disruption.balanced import balanced_scores, is_approved
from karpenter_core.disruption.balanced_notices import approval_notices
from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.disruption.consolidation import (
    DisruptionMove,
    MoveRefusal,
    accept_for_consolidation,
    command_for_move,
    evaluate_move,
    sort_by_savings,
    split_by_budgets,
)
from karpenter_core.disruption.method import MethodPlan
from karpenter_core.disruption.revalidation import revalidate_steps
from karpenter_core.disruption.savings_floors import minimum_savings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.disruption.acceptance import CandidateAcceptance
    from karpenter_core.disruption.balanced import BalancedScore
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import DisruptionPass, PoolBudgets, WorkSteps
    from karpenter_core.disruption.validation import ValidationVerdict

__all__ = ["MultiNodeConsolidation"]

MAX_CANDIDATES: Final = 100  # upstream's number
MAX_REPACKED: Final = 10
REPACKING_SHARE: Final = 0.1
"""Share of their cost that repacking nodes into several new ones must save.

With so many ways to repack some set there is nearly always one that saves a cent.
"""
UNITS_PER_QUESTION: Final = 10
"""Approximate cost of a what-if, in the solver's work units of a tenth of a millisecond."""
UNITS_PER_REPACKING: Final = 100
UNFIT_PER_STEP: Final = 50
NO_MOVE: Final = 1e-9
"""Savings per hour up to this are rounding errors."""


@dataclass(frozen=True, slots=True)
class MultiNodeConsolidation:
    """Consolidates several nodes at once."""

    name: str = "multi-node-consolidation"
    reason: DisruptionReason = DisruptionReason.UNDERUTILIZED
    consolidation_type: str = "multi"
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
        """Return the move of two or more nodes that saves most."""
        ordered = sort_by_savings(
            candidates, disruption_pass.prices, disruption_pass.memory.savings_order
        )
        chosen, spared = split_by_budgets(ordered, budgets)
        constrained = bool(spared)
        if len(chosen) < 2:  # noqa: PLR2004 - several
            return MethodPlan(constrained=constrained)
        yield from disruption_pass.simulation.prepare_steps(avoid_unsettled=True)
        search = _MoveSearch(disruption_pass)
        yield from search.prefix_steps(chosen[:MAX_CANDIDATES])
        yield from search.grow_steps(ordered, budgets)
        if search.best is None:
            yield from search.repack_steps(chosen[:MAX_CANDIDATES])
        judged = search.best_scores
        if search.best is None:
            return MethodPlan(
                constrained=constrained, is_cut_short=search.is_cut_short, scores=judged
            )
        chosen_names = {candidate.name for candidate in search.best.candidates}
        held_back = [candidate for candidate in spared if candidate.name not in chosen_names]
        command = command_for_move(disruption_pass, self, search.best, spared_by_budget=held_back)
        return MethodPlan(
            commands=(command,),
            constrained=constrained,
            is_cut_short=search.is_cut_short,
            notices=approval_notices(disruption_pass.snapshot, judged),
            scores=judged,
        )

    def validate_steps(
        self, command: Command, disruption_pass: DisruptionPass
    ) -> WorkSteps[ValidationVerdict]:
        """Keep the command, or the part of a large one that still holds."""
        return (yield from revalidate_steps(self, command, disruption_pass))


class _MoveSearch:
    """The best move found so far, and its scores."""

    def __init__(self, disruption_pass: DisruptionPass) -> None:
        self._pass: Final = disruption_pass
        self._units = disruption_pass.options.work_units
        self.best: DisruptionMove | None = None
        self.best_scores: tuple[BalancedScore, ...] = ()
        """Scores of the best move, or of the last one that was refused for its score."""
        self.is_cut_short = False

    def prefix_steps(self, ordered: Sequence[Candidate]) -> WorkSteps[None]:
        """Evaluate every prefix of two or more nodes.

        Where one has pods that only several new nodes could hold, longer ones have them, too.
        """
        is_hopeless = False
        for count in range(2, len(ordered) + 1):
            if not self._has_units(UNITS_PER_QUESTION):
                return
            is_hopeless = is_hopeless or self._pass.simulation.need_several_nodes(ordered[:count])
            if is_hopeless:
                continue
            self._consider(evaluate_move(self._pass, ordered[:count]))
            yield UNITS_PER_QUESTION

    def grow_steps(self, ordered: Sequence[Candidate], budgets: PoolBudgets) -> WorkSteps[None]:
        """Remove nodes one after the other as long as their pods fit on the nodes that stay.

        Only removed nodes use up a budget, so nodes that cannot be removed do not block others.
        The grown set is a sequence of small moves. As a whole it may not fit, so bisection finds
        its longest prefix that does.
        """
        grown = yield from self._grown_steps(ordered, budgets)
        for _ in grown:
            self._pass.simulation.pop()
        low, high = 2, len(grown)
        count = high  # most likely the whole set
        while low <= high and self._has_units(UNITS_PER_QUESTION):
            if self._consider(evaluate_move(self._pass, grown[:count])):
                low = count + 1
            else:
                high = count - 1
            count = (low + high) // 2
            yield UNITS_PER_QUESTION

    def _grown_steps(
        self, ordered: Sequence[Candidate], budgets: PoolBudgets
    ) -> WorkSteps[list[Candidate]]:
        """Remove nodes as long as their pods fit; return them."""
        simulation = self._pass.simulation
        remaining_by_pool = {
            name: budget.remaining for name, budget in budgets.items() if budget.remaining
        }
        grown: list[Candidate] = []
        unfit = simulation.names_known_not_to_fit()
        for number, candidate in enumerate(ordered):
            pool = candidate.pool.name
            if pool not in remaining_by_pool:
                continue
            if not self._has_units(1):
                break
            if candidate.state_node.name in unfit:
                if number % UNFIT_PER_STEP == 0:
                    yield 1
                continue
            if simulation.push(candidate):
                grown.append(candidate)
                remaining_by_pool[pool] -= 1
                if not remaining_by_pool[pool]:
                    del remaining_by_pool[pool]
            yield 1
        return grown

    def repack_steps(self, ordered: Sequence[Candidate]) -> WorkSteps[None]:
        """Put the pods of a few nodes onto several new ones that cost less."""
        for start in range(0, len(ordered) - 1, MAX_REPACKED // 2):
            members = ordered[start : start + MAX_REPACKED]
            if len(members) < 2 or not self._has_units(UNITS_PER_REPACKING):  # noqa: PLR2004
                return
            move = yield from self._repacked_steps(members)
            if isinstance(move, DisruptionMove):
                move = yield from self._needed_steps(move)
                if len(move.candidates) > 1 and self._saves_enough_to_repack(move):
                    self._consider(move)
            if self.best is not None:
                return

    def _needed_steps(self, move: DisruptionMove) -> WorkSteps[DisruptionMove]:
        """Leave nodes out of a move whose replacement saves next to nothing.

        Repacking ten nodes of which one is too large would otherwise disrupt the pods of all ten.
        """
        for candidate in reversed(move.candidates):
            if not self._has_units(UNITS_PER_REPACKING):
                return move
            rest = [item for item in move.candidates if item is not candidate]
            smaller_move = yield from self._repacked_steps(rest)
            if not isinstance(smaller_move, DisruptionMove):
                continue
            gained = move.savings_per_hour - smaller_move.savings_per_hour
            least = minimum_savings((candidate,), self._pass.prices, now=self._pass.now)
            if gained <= max(least, NO_MOVE):
                move = smaller_move
        return move

    def _repacked_steps(
        self, members: Sequence[Candidate]
    ) -> WorkSteps[DisruptionMove | MoveRefusal]:
        """Evaluate the replacement of nodes by at most as many new ones.

        Where one new node or none is enough, the move is evaluated for one, as its validation does.
        """
        most = min(len(members), MAX_REPACKED)
        repacked = evaluate_move(self._pass, members, max_claims=most)
        yield UNITS_PER_REPACKING
        if most > 1 and isinstance(repacked, DisruptionMove) and len(repacked.replacements) <= 1:
            repacked = evaluate_move(self._pass, members)
            yield UNITS_PER_QUESTION
        return repacked

    def _saves_enough_to_repack(self, move: DisruptionMove) -> bool:
        """Tell whether a repacking saves a large enough share of the cost."""
        price = self._pass.prices.cost_per_hour(move.candidates)
        return move.savings_per_hour >= REPACKING_SHARE * price

    def _has_units(self, units: int) -> bool:
        """Spend work units; False when too few are left or the time limit is reached.

        A pass that ran out of units is not cut short: another one would end at the same point.
        """
        if self._pass.time_limit.is_reached:
            self.is_cut_short = True
            return False
        if self._units < units:
            return False
        self._units -= units
        return True

    def _consider(self, move: object) -> bool:
        """Keep a move if it is possible, approved and saves more than the best one."""
        if not isinstance(move, DisruptionMove):
            return False
        disruption_pass = self._pass
        judged = balanced_scores(
            move.candidates, move.savings_per_hour, disruption_pass.totals, disruption_pass.prices
        )
        if not is_approved(judged):
            if self.best is None:
                self.best_scores = judged
            return False
        # Of moves that save the same, the first stays: later prefixes disrupt more nodes.
        if self.best is None or move.savings_per_hour > self.best.savings_per_hour + NO_MOVE:
            self.best, self.best_scores = move, judged
        return True
