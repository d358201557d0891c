"""Deletes empty nodes: those without pods that would have to move.

Needs no simulation, since no pod has to be placed. One command takes all nodes that the budgets
allow; a node that receives or expects a pod before the command is executed drops out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from karpenter_core.api.conditions import is_true
from karpenter_core.api.nodeclaim import CONSOLIDATABLE
from karpenter_core.disruption.acceptance import CandidateAcceptance, DeclineReason
from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.disruption.command import Command, command_evidence
from karpenter_core.disruption.consolidation import (
    accepted_candidates,
    consolidation_disabled_message,
    sort_by_savings,
    split_by_budgets,
    unconsolidatable_notices,
)
from karpenter_core.disruption.method import MethodPlan
from karpenter_core.disruption.validation import CommandRejection, ValidationVerdict

if TYPE_CHECKING:
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.method import DisruptionPass, PoolBudgets, WorkSteps

__all__ = ["EmptinessMethod"]


@dataclass(frozen=True, slots=True)
class EmptinessMethod:
    """Deletes empty, consolidatable nodes."""

    name: str = "emptiness"
    reason: DisruptionReason = DisruptionReason.EMPTY
    consolidation_type: str = "empty"
    disruption_class: DisruptionClass = DisruptionClass.GRACEFUL
    is_validated: bool = True
    skips_unchanged_state: bool = True

    def accept(self, candidate: Candidate, disruption_pass: DisruptionPass) -> CandidateAcceptance:
        """Accept empty nodes of dynamic pools that are consolidatable."""
        del disruption_pass
        if candidate.pool.spec.replicas is not None:
            return CandidateAcceptance(accepted=False, decline_reason=DeclineReason.STATIC)
        if candidate.pool.spec.disruption.consolidate_after.timedelta is None:
            problem = consolidation_disabled_message(candidate.pool.name)
            return CandidateAcceptance(
                accepted=False,
                decline_reason=DeclineReason.DISABLED,
                notices=unconsolidatable_notices(candidate, problem),
            )
        settled = is_true(candidate.claim.status.conditions, CONSOLIDATABLE)
        if candidate.is_empty and candidate.hosts_virtual_pods:
            return CandidateAcceptance(
                accepted=False,
                decline_reason=DeclineReason.BUFFER,
                notices=unconsolidatable_notices(
                    candidate, f'Node "{candidate.node.name}" has buffer pods'
                ),
            )
        declined = None
        if not candidate.is_empty:
            declined = DeclineReason.NOT_EMPTY
        elif not settled:
            declined = DeclineReason.UNSETTLED
        return CandidateAcceptance(accepted=declined is None, decline_reason=declined)

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
        """Take as many nodes as the budgets allow, the most expensive first."""
        yield 0
        chosen, spared = split_by_budgets(
            sort_by_savings(candidates, disruption_pass.prices), budgets
        )
        if not chosen:
            return MethodPlan(constrained=bool(spared))
        command = Command(
            id=disruption_pass.command_id,
            cause=disruption_pass.cause,
            method=self.name,
            reason=self.reason,
            candidates=tuple(chosen),
            created=disruption_pass.now,
            evidence=command_evidence(
                disruption_pass.snapshot.version,
                tuple(chosen),
                savings_per_hour=disruption_pass.prices.cost_per_hour(chosen),
                currency=disruption_pass.prices.currency,
                spared_by_budget=tuple(candidate.name for candidate in spared),
            ),
        )
        return MethodPlan(commands=(command,), constrained=bool(spared))

    def validate_steps(
        self, command: Command, disruption_pass: DisruptionPass
    ) -> WorkSteps[ValidationVerdict]:
        """Keep the candidates that are still empty, expect no pods and are within budget."""
        yield 0
        candidate_lists = disruption_pass.candidates(self.disruption_class)
        expected_uids = {
            item.state_node.claim.uid
            for item in candidate_lists.blocked
            if item.state_node.claim is not None and item.is_expected
        }
        alive = accepted_candidates(self, command, disruption_pass)
        expected = sum(candidate.claim.uid in expected_uids for candidate in command.candidates)
        allowed, over = split_by_budgets(
            sort_by_savings(alive, disruption_pass.prices), disruption_pass.budgets(self.reason)
        )
        kept_candidates = tuple(allowed)
        dropped = len(over) + expected
        if not alive and not expected:
            return ValidationVerdict(
                rejection=CommandRejection.CHURN, failed_candidates=len(command.candidates)
            )
        if not kept_candidates:
            return ValidationVerdict(
                rejection=CommandRejection.BUDGET, failed_candidates=len(command.candidates)
            )
        return ValidationVerdict(
            command=replace(
                command,
                candidates=kept_candidates,
                evidence=command_evidence(
                    disruption_pass.snapshot.version,
                    kept_candidates,
                    savings_per_hour=disruption_pass.prices.cost_per_hour(kept_candidates),
                    currency=disruption_pass.prices.currency,
                    spared_by_budget=command.evidence.spared_by_budget,
                ),
            ),
            failed_candidates=dropped,
        )
