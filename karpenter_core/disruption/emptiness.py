"""Emptiness: machines on which nothing runs that would have to move.

Needs no simulation, since nothing has to be placed. All that the budgets allow go in one command;
in the time before it is carried out each that has got a pod, or the promise of one, drops out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from karpenter_core.api.conditions import is_true
from karpenter_core.api.nodeclaim import CONSOLIDATABLE
from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.disruption.command import Command, prove
from karpenter_core.disruption.consolidation import (
    by_savings,
    consolidation_disabled,
    still_accepted,
    unconsolidatable,
    within_budgets,
)
from karpenter_core.disruption.method import Acceptance, Declined, MethodPlan
from karpenter_core.disruption.validation import Rejection, Verdict

if TYPE_CHECKING:
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.method import Budgets, Pass, Steps

__all__ = ["Emptiness"]


@dataclass(frozen=True, slots=True)
class Emptiness:
    """Delete empty, settled machines."""

    name: str = "emptiness"
    reason: DisruptionReason = DisruptionReason.EMPTY
    consolidation_type: str = "empty"
    disruption_class: DisruptionClass = DisruptionClass.GRACEFUL
    is_validated: bool = True
    remembers: bool = True

    def accept(self, candidate: Candidate, look: Pass) -> Acceptance:
        """Take empty machines of dynamic pools that have been left in peace long enough."""
        del look
        if candidate.pool.spec.replicas is not None:
            return Acceptance(accepted=False, declined=Declined.STATIC)
        if candidate.pool.spec.disruption.consolidate_after.timedelta is None:
            problem = consolidation_disabled(candidate.pool.name)
            return Acceptance(
                accepted=False,
                declined=Declined.DISABLED,
                notices=unconsolidatable(candidate, problem),
            )
        settled = is_true(candidate.claim.status.conditions, CONSOLIDATABLE)
        declined = None
        if not candidate.is_empty:
            declined = Declined.NOT_EMPTY
        elif not settled:
            declined = Declined.UNSETTLED
        return Acceptance(accepted=declined is None, declined=declined)

    def plan_steps(
        self, look: Pass, candidates: tuple[Candidate, ...], budgets: Budgets
    ) -> Steps[MethodPlan]:
        """Take as many as the budgets allow, the dearest first."""
        yield 0
        chosen, spared = within_budgets(by_savings(candidates, look.prices), budgets)
        if not chosen:
            return MethodPlan(constrained=bool(spared))
        command = Command(
            id=look.command_id,
            cause=look.cause,
            method=self.name,
            reason=self.reason,
            candidates=tuple(chosen),
            created=look.now,
            proof=prove(
                look.snapshot.version,
                tuple(chosen),
                savings_per_hour=look.prices.of(chosen),
                held_back=tuple(candidate.name for candidate in spared),
            ),
        )
        return MethodPlan(commands=(command,), constrained=bool(spared))

    def validate_steps(self, command: Command, look: Pass) -> Steps[Verdict]:
        """Keep the candidates that are still empty, unexpected and within budget."""
        yield 0
        found = look.candidates(self.disruption_class)
        expected_uids = {
            item.machine.claim.uid
            for item in found.blocked
            if item.machine.claim is not None and item.is_expected
        }
        alive = still_accepted(self, command, look)
        expected = sum(candidate.claim.uid in expected_uids for candidate in command.candidates)
        left, over = within_budgets(by_savings(alive, look.prices), look.budgets(self.reason))
        kept = tuple(left)
        dropped = len(over) + expected
        if not alive and not expected:
            return Verdict(rejection=Rejection.CHURN, failed=len(command.candidates))
        if not kept:
            return Verdict(rejection=Rejection.BUDGET, failed=len(command.candidates))
        return Verdict(
            command=replace(
                command,
                candidates=kept,
                proof=prove(
                    look.snapshot.version,
                    kept,
                    savings_per_hour=look.prices.of(kept),
                    held_back=command.proof.held_back,
                ),
            ),
            failed=dropped,
        )
