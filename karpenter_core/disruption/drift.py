"""Replaces nodes that no longer match their NodePool or its NodeClass.

The replacement may cost anything; where the claim has a termination grace period, pods do not
block it. One node at a time: first those without pods that would have to move, then the oldest
drift.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from karpenter_core.api.conditions import find_condition, is_true
from karpenter_core.api.nodeclaim import DRIFTED
from karpenter_core.api.nodepool import is_detect_only
from karpenter_core.disruption.acceptance import CandidateAcceptance, DeclineReason
from karpenter_core.disruption.blocked_nodes import state_node_notices
from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.disruption.consolidation import (
    DisruptionMove,
    command_for_move,
    individually_within_budget,
)
from karpenter_core.disruption.method import MethodPlan
from karpenter_core.disruption.validation import ValidationVerdict

if TYPE_CHECKING:
    from karpenter_core.api.notices import Notice
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import DisruptionPass, PoolBudgets, WorkSteps

__all__ = ["DriftMethod", "accept_drifted", "drift_order"]


def accept_drifted(candidate: Candidate, disruption_pass: DisruptionPass) -> CandidateAcceptance:
    """Accept drifted nodes of pools that act on drift and are not backing off."""
    pool = candidate.pool
    declined = None
    if not is_true(candidate.claim.status.conditions, DRIFTED):
        declined = DeclineReason.NOT_DRIFTED
    elif is_detect_only(pool):
        declined = DeclineReason.DETECT_ONLY
    elif pool.name in disruption_pass.drift_backoff_pools:
        declined = DeclineReason.DRIFT_BACKOFF
    return CandidateAcceptance(accepted=declined is None, decline_reason=declined)


@dataclass(frozen=True, slots=True)
class DriftMethod:
    """Replaces the node that drifted first."""

    name: str = "drift"
    reason: DisruptionReason = DisruptionReason.DRIFTED
    consolidation_type: str = ""
    disruption_class: DisruptionClass = DisruptionClass.EVENTUAL
    is_validated: bool = False
    skips_unchanged_state: bool = False

    def accept(self, candidate: Candidate, disruption_pass: DisruptionPass) -> CandidateAcceptance:
        """Accept drifted nodes of dynamic pools that act on drift and are not backing off."""
        if candidate.pool.spec.replicas is not None:
            return CandidateAcceptance(accepted=False, decline_reason=DeclineReason.STATIC)
        return accept_drifted(candidate, disruption_pass)

    def acceptance_inputs(self, disruption_pass: DisruptionPass) -> object:
        """Return the pools whose drift backs off."""
        return disruption_pass.drift_backoff_pools

    def plan_steps(
        self,
        disruption_pass: DisruptionPass,
        candidates: tuple[Candidate, ...],
        budgets: PoolBudgets,
    ) -> WorkSteps[MethodPlan]:
        """Return the first node whose pods all find a place, on existing or new nodes."""
        allowed = individually_within_budget(candidates, budgets)
        constrained = len(allowed) < len(candidates)
        if not allowed:
            return MethodPlan(constrained=constrained)
        yield from disruption_pass.simulation.prepare_steps(avoid_unsettled=False)
        notices: list[Notice] = []
        for candidate in sorted(allowed, key=drift_order):
            if disruption_pass.time_limit.is_reached:
                return MethodPlan(
                    constrained=constrained, is_cut_short=True, notices=tuple(notices)
                )
            verdict = disruption_pass.simulation.evaluate((candidate,))
            yield 10
            unready = disruption_pass.simulation.unready_destination(verdict)
            if not verdict.is_possible or unready:
                text = unready or disruption_pass.simulation.unplaced_pods(verdict)
                notices += state_node_notices(
                    candidate.state_node, reason="DisruptionBlocked", message=text
                )
                continue
            move = DisruptionMove(
                candidates=(candidate,),
                verdict=verdict,
                replacements=verdict.claims,
                savings_per_hour=disruption_pass.prices.cost_per_hour((candidate,))
                - verdict.cost_per_hour,
            )
            return MethodPlan(
                commands=(command_for_move(disruption_pass, self, move),),
                constrained=constrained,
                notices=tuple(notices),
            )
        return MethodPlan(constrained=constrained, notices=tuple(notices))

    def validate_steps(
        self, command: Command, disruption_pass: DisruptionPass
    ) -> WorkSteps[ValidationVerdict]:
        """Return the command unchanged: drift is not validated again."""
        del disruption_pass
        yield 0
        return ValidationVerdict(command=command)


def drift_order(candidate: Candidate) -> tuple[bool, float, str]:
    """Return the sort key of drifted nodes: those without pods to move, then the oldest drift."""
    condition = find_condition(candidate.claim.status.conditions, DRIFTED)
    since = None if condition is None else condition.last_transition_time
    return (
        bool(candidate.reschedulable_pods),
        0.0 if since is None else since.timestamp(),
        candidate.name,
    )
