"""Multi-node consolidation: several machines go, at most one comes, or fewer and cheaper ones.

The reference halves its way through the prefixes of the order by savings. Here every prefix is
asked for; then a set is grown machine by machine from those whose pods fit on what stays, and what
has grown is judged as a whole. The move that saves most is taken. If there is none, small sets are
repacked into several new machines (m -> n), leaving out whoever adds nothing to the saving.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.disruption.balanced import is_approved, scores
from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.disruption.consolidation import (
    Move,
    Refusal,
    accept,
    best_move,
    by_savings,
    command_of,
    within_budgets,
)
from karpenter_core.disruption.floors import least_savings
from karpenter_core.disruption.method import MethodPlan
from karpenter_core.disruption.notices import approval_notices
from karpenter_core.disruption.revalidation import revalidate_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.disruption.balanced import Score
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import Acceptance, Budgets, Pass, Steps
    from karpenter_core.disruption.validation import Verdict

__all__ = ["MultiNode"]

MOST_CANDIDATES: Final = 100  # upstream's number
MOST_REPACKED: Final = 10
REPACKING_SHARE: Final = 0.1
"""Share of their cost that repacking machines into several new ones must save.

With so many ways to repack some set there is nearly always one that saves a cent.
"""
UNITS_PER_QUESTION: Final = 10
"""About what a what-if costs, in the solver's work units of a tenth of a millisecond."""
UNITS_PER_REPACKING: Final = 100
NOTHING: Final = 1e-9
"""A saving per hour that is none."""


@dataclass(frozen=True, slots=True)
class MultiNode:
    """Consolidate several machines at once."""

    name: str = "multi-node-consolidation"
    reason: DisruptionReason = DisruptionReason.UNDERUTILIZED
    consolidation_type: str = "multi"
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
        """Return the move that saves most, of two machines or more."""
        ordered = by_savings(candidates, look.prices)
        chosen, spared = within_budgets(ordered, budgets)
        constrained = bool(spared)
        if len(chosen) < 2:  # noqa: PLR2004 - several
            return MethodPlan(constrained=constrained)
        yield from look.simulation.prepare_steps(peaceful=True)
        search = _Search(look)
        yield from search.prefix_steps(chosen[:MOST_CANDIDATES])
        yield from search.grow_steps(ordered, budgets)
        if search.best is None:
            yield from search.repack_steps(chosen[:MOST_CANDIDATES])
        judged = search.judged
        if search.best is None:
            return MethodPlan(
                constrained=constrained, is_cut_short=search.is_cut_short, scores=judged
            )
        taken = {candidate.name for candidate in search.best.candidates}
        held_back = [candidate for candidate in spared if candidate.name not in taken]
        command = command_of(look, self, search.best, held_back=held_back)
        return MethodPlan(
            commands=(command,),
            constrained=constrained,
            is_cut_short=search.is_cut_short,
            notices=approval_notices(look.snapshot, judged),
            scores=judged,
        )

    def validate_steps(self, command: Command, look: Pass) -> Steps[Verdict]:
        """All of it still holds, or nothing does."""
        return (yield from revalidate_steps(self, command, look))


class _Search:
    """The best move found so far, and how it was judged."""

    def __init__(self, look: Pass) -> None:
        self._look: Final = look
        self._units = look.options.work_units
        self.best: Move | None = None
        self.judged: tuple[Score, ...] = ()
        """Of the best move, or of the last that was refused for its score."""
        self.is_cut_short = False

    def prefix_steps(self, ordered: Sequence[Candidate]) -> Steps[None]:
        """Ask for every prefix of two machines or more."""
        for count in range(2, len(ordered) + 1):
            if not self._may_ask(UNITS_PER_QUESTION):
                return
            self._consider(best_move(self._look, ordered[:count]))
            yield UNITS_PER_QUESTION

    def grow_steps(self, ordered: Sequence[Candidate], budgets: Budgets) -> Steps[None]:
        """Let machines go one after the other as long as their pods fit on what stays.

        Only who goes uses a budget up, so those that cannot go do not stand in the way of others.

        What has grown is a sequence of small moves. Taken as a whole it may not fit, so the
        longest part from its beginning that does is looked for by halving.
        """
        simulation = self._look.simulation
        left = {name: budget.remaining for name, budget in budgets.items() if budget.remaining}
        grown: list[Candidate] = []
        for candidate in ordered:
            pool = candidate.pool.name
            if pool not in left:
                continue
            if not self._may_ask(1):
                break
            if simulation.push(candidate):
                grown.append(candidate)
                left[pool] -= 1
                if not left[pool]:
                    del left[pool]
            yield 1
        for _ in grown:
            simulation.pop()
        low, high = 2, len(grown)
        count = high  # most likely all of it
        while low <= high and self._may_ask(UNITS_PER_QUESTION):
            if self._consider(best_move(self._look, grown[:count])):
                low = count + 1
            else:
                high = count - 1
            count = (low + high) // 2
            yield UNITS_PER_QUESTION

    def repack_steps(self, ordered: Sequence[Candidate]) -> Steps[None]:
        """Put the pods of a few machines onto several new ones that cost less."""
        for start in range(0, len(ordered) - 1, MOST_REPACKED // 2):
            members = ordered[start : start + MOST_REPACKED]
            if len(members) < 2 or not self._may_ask(UNITS_PER_REPACKING):  # noqa: PLR2004
                return
            found = yield from self._repacked_steps(members)
            if isinstance(found, Move):
                found = yield from self._needed_steps(found)
                if len(found.candidates) > 1 and self._is_worth_repacking(found):
                    self._consider(found)
            if self.best is not None:
                return

    def _needed_steps(self, move: Move) -> Steps[Move]:
        """Leave machines out of a move that are exchanged in it for as good as nothing.

        Repacking ten machines of which one is too large would otherwise disturb the pods of all.
        """
        for candidate in reversed(move.candidates):
            if not self._may_ask(UNITS_PER_REPACKING):
                return move
            rest = [item for item in move.candidates if item is not candidate]
            found = yield from self._repacked_steps(rest)
            if not isinstance(found, Move):
                continue
            gained = move.savings_per_hour - found.savings_per_hour
            least = least_savings((candidate,), self._look.prices, now=self._look.now)
            if gained <= max(least, NOTHING):
                move = found
        return move

    def _repacked_steps(self, members: Sequence[Candidate]) -> Steps[Move | Refusal]:
        """Ask for as many new machines as there are old ones at most.

        Where one does, or none, the answer is that to the question for one: it is what the second
        look asks.
        """
        most = min(len(members), MOST_REPACKED)
        found = best_move(self._look, members, most_claims=most)
        yield UNITS_PER_REPACKING
        if most > 1 and isinstance(found, Move) and len(found.replacements) <= 1:
            found = best_move(self._look, members)
            yield UNITS_PER_QUESTION
        return found

    def _is_worth_repacking(self, move: Move) -> bool:
        """Tell whether enough is saved for new machines that nothing but a price asks for."""
        price = self._look.prices.of(move.candidates)
        return move.savings_per_hour >= REPACKING_SHARE * price

    def _may_ask(self, units: int) -> bool:
        """Tell whether there is work left to do it with.

        Running out of units is no reason to look again: the answer would be the same.
        """
        if self._look.effort.is_spent:
            self.is_cut_short = True
            return False
        if self._units < units:
            return False
        self._units -= units
        return True

    def _consider(self, move: object) -> bool:
        """Keep a move if it is possible, approved and saves more than the best one."""
        if not isinstance(move, Move):
            return False
        look = self._look
        judged = scores(move.candidates, move.savings_per_hour, look.totals, look.prices)
        if not is_approved(judged):
            if self.best is None:
                self.judged = judged
            return False
        if self.best is None or move.savings_per_hour > self.best.savings_per_hour:
            self.best, self.judged = move, judged
        return True
