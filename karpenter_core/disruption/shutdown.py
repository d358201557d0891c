"""Drains NodePools that a window of their schedules shuts down.

It removes nodes without replacing them, as many at a time as the budgets allow. As for drift, pods
that may not be evicted keep their node, unless its claim has a termination grace period. The pods
become pending: other NodePools may launch nodes for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from karpenter_core.disruption.acceptance import CandidateAcceptance, DeclineReason
from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.disruption.command import Command
from karpenter_core.disruption.consolidation import command_evidence, split_by_budgets
from karpenter_core.disruption.method import MethodPlan
from karpenter_core.disruption.validation import ValidationVerdict
from karpenter_core.state.pool_schedules import shutdown_reason
from karpenter_core.state.static_pools import is_static

if TYPE_CHECKING:
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.method import DisruptionPass, PoolBudgets, WorkSteps

__all__ = ["ShutdownMethod"]


@dataclass(frozen=True, slots=True)
class ShutdownMethod:
    """Removes the nodes of NodePools that are shut down now."""

    name: str = "shutdown"
    reason: DisruptionReason = DisruptionReason.SHUTDOWN
    consolidation_type: str = ""
    disruption_class: DisruptionClass = DisruptionClass.EVENTUAL
    is_validated: bool = False
    skips_unchanged_state: bool = False

    def accept(self, candidate: Candidate, disruption_pass: DisruptionPass) -> CandidateAcceptance:
        """Accept every node of a pool that is shut down."""
        schedule = disruption_pass.snapshot.pool_schedules.get(candidate.pool.name)
        declined = None
        if is_static(candidate.pool) and not disruption_pass.options.static_capacity:
            declined = DeclineReason.STATIC
        elif schedule is None or schedule.shutdown is None:
            declined = DeclineReason.NOT_SHUT_DOWN
        return CandidateAcceptance(accepted=declined is None, decline_reason=declined)

    def acceptance_inputs(self, disruption_pass: DisruptionPass) -> object:
        """Return None: it depends on the open windows."""
        del disruption_pass
        return None

    def plan_steps(
        self,
        disruption_pass: DisruptionPass,
        candidates: tuple[Candidate, ...],
        budgets: PoolBudgets,
    ) -> WorkSteps[MethodPlan]:
        """Return one command for each node that the budgets allow, the cheapest to disrupt first."""
        yield 1
        ordered = sorted(candidates, key=lambda one: (one.reschedule_cost, one.name))
        chosen, spared = split_by_budgets(ordered, budgets)
        return MethodPlan(
            commands=tuple(
                self._command(disruption_pass, candidate, number, spared)
                for number, candidate in enumerate(chosen)
            ),
            constrained=bool(spared),
        )

    def validate_steps(
        self, command: Command, disruption_pass: DisruptionPass
    ) -> WorkSteps[ValidationVerdict]:
        """Return the command unchanged: a shutdown is not validated again."""
        del disruption_pass
        yield 0
        return ValidationVerdict(command=command)

    def _command(
        self,
        disruption_pass: DisruptionPass,
        candidate: Candidate,
        number: int,
        spared: list[Candidate],
    ) -> Command:
        pool, command_id = candidate.pool.name, disruption_pass.command_id
        schedule = disruption_pass.snapshot.pool_schedules.get(pool)
        return Command(
            id=command_id if number == 0 else f"{command_id}-{number}",
            cause=f"{shutdown_reason(pool, schedule)} ({disruption_pass.cause})",
            method=self.name,
            reason=self.reason,
            candidates=(candidate,),
            created=disruption_pass.now,
            evidence=command_evidence(
                disruption_pass.snapshot.version,
                (candidate,),
                savings_per_hour=disruption_pass.prices.cost_per_hour((candidate,)),
                currency=disruption_pass.prices.currency,
                spared_by_budget=tuple(one.name for one in spared),
            ),
        )
