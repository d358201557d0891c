"""Emptiness: machines on which nothing runs that would have to move.

Needs no simulation, since nothing has to be placed. All that the budgets allow go in one command;
in the time before it is carried out each that has got a pod, or the promise of one, drops out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import is_true
from karpenter_core.api.nodeclaim import CONSOLIDATABLE
from karpenter_core.disruption.budgets import DisruptionReason, pool_budgets
from karpenter_core.disruption.candidates import (
    Candidate,
    DisruptionClass,
    find_candidates,
    machine_notices,
)
from karpenter_core.disruption.command import Command, prove
from karpenter_core.disruption.method import Acceptance, MethodPlan
from karpenter_core.disruption.validation import Rejection, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.disruption.budgets import PoolBudget
    from karpenter_core.disruption.method import Pass

__all__ = ["Emptiness"]

UNCONSOLIDATABLE_WINDOW: Final = timedelta(minutes=15)  # upstream default


@dataclass(frozen=True, slots=True)
class Emptiness:
    """Delete empty, settled machines."""

    name: str = "emptiness"
    reason: DisruptionReason = DisruptionReason.EMPTY
    consolidation_type: str = "empty"
    disruption_class: DisruptionClass = DisruptionClass.GRACEFUL

    def accept(self, candidate: Candidate) -> Acceptance:
        """Take empty machines of dynamic pools that have been left in peace long enough."""
        if candidate.pool.spec.replicas is not None:
            return Acceptance(accepted=False)
        if candidate.pool.spec.disruption.consolidate_after.timedelta is None:
            notices = machine_notices(
                candidate.machine,
                reason="Unconsolidatable",
                message=f'NodePool "{candidate.pool.name}" has consolidation disabled',
                window=UNCONSOLIDATABLE_WINDOW,
            )
            return Acceptance(accepted=False, notices=notices)
        settled = is_true(candidate.claim.status.conditions, CONSOLIDATABLE)
        return Acceptance(accepted=candidate.is_empty and settled)

    def plan(
        self,
        look: Pass,
        candidates: tuple[Candidate, ...],
        budgets: Mapping[str, PoolBudget],
    ) -> MethodPlan:
        """Take as many as the budgets allow, the dearest first."""
        chosen, spared = _within_budgets(candidates, budgets)
        if not chosen:
            return MethodPlan(constrained=bool(spared))
        command = Command(
            id=look.command_id,
            cause=look.cause,
            method=self.name,
            reason=self.reason,
            candidates=chosen,
            created=look.now,
            proof=prove(
                look.snapshot.version,
                chosen,
                held_back=tuple(candidate.name for candidate in spared),
            ),
        )
        return MethodPlan(command=command, constrained=bool(spared))

    def validate(self, command: Command, look: Pass) -> Verdict:
        """Keep the candidates that are still empty, unexpected and within budget."""
        found = find_candidates(
            look.snapshot,
            now=look.now,
            disruption_class=self.disruption_class,
            queued=look.queued,
            nomination_window=look.options.nomination_window,
        )
        accepted = {item.claim.uid: item for item in found.candidates if self.accept(item).accepted}
        expected_uids = {
            item.machine.claim.uid
            for item in found.blocked
            if item.machine.claim is not None and item.is_expected
        }
        alive = tuple(
            accepted[candidate.claim.uid]
            for candidate in command.candidates
            if candidate.claim.uid in accepted
        )
        expected = sum(candidate.claim.uid in expected_uids for candidate in command.candidates)
        kept, over = _within_budgets(alive, pool_budgets(look.snapshot, self.reason, now=look.now))
        dropped = len(over) + expected
        if not alive and not expected:
            return Verdict(rejection=Rejection.CHURN, failed=len(command.candidates))
        if not kept:
            return Verdict(rejection=Rejection.BUDGET, failed=len(command.candidates))
        return Verdict(
            command=replace(command, candidates=kept, proof=prove(look.snapshot.version, kept)),
            failed=dropped,
        )


def _within_budgets(
    candidates: tuple[Candidate, ...], budgets: Mapping[str, PoolBudget]
) -> tuple[tuple[Candidate, ...], tuple[Candidate, ...]]:
    """Part candidates into those the budgets allow, best ratio first, and the rest."""
    left = {name: budget.remaining for name, budget in budgets.items()}
    chosen: list[Candidate] = []
    spared: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda item: (-item.savings_ratio, item.name)):
        pool = candidate.pool.name
        if left.get(pool, 0) > 0:
            left[pool] -= 1
            chosen.append(candidate)
        else:
            spared.append(candidate)
    return tuple(chosen), tuple(spared)
