"""Replaces drifted nodes of static NodePools one by one, replacement first.

No simulation is run: each node gets one replacement from the template of its pool, and pods move
when the node is drained. Budgets and `limits.nodes` decide how many nodes are replaced at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from karpenter_core.disruption.acceptance import CandidateAcceptance
from karpenter_core.disruption.blocked_nodes import state_node_notices
from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.disruption.command import Command, command_evidence
from karpenter_core.disruption.drift import accept_drifted, drift_order
from karpenter_core.disruption.method import MethodPlan
from karpenter_core.disruption.validation import ValidationVerdict
from karpenter_core.state.static_claims import plan_static_claim
from karpenter_core.state.static_pools import (
    StaticPoolClaims,
    free_nodes,
    is_static,
    node_limit,
    static_claims_by_pool,
)

if TYPE_CHECKING:
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.method import DisruptionPass, PoolBudgets, WorkSteps
    from karpenter_core.scheduling.problem import PlannedNodeClaim

__all__ = ["StaticDriftMethod"]


@dataclass(frozen=True, slots=True)
class StaticDriftMethod:
    """Replaces the nodes of static pools that drifted first."""

    name: str = "static-drift"
    reason: DisruptionReason = DisruptionReason.DRIFTED
    consolidation_type: str = ""
    disruption_class: DisruptionClass = DisruptionClass.EVENTUAL
    is_validated: bool = False
    skips_unchanged_state: bool = False

    def accept(self, candidate: Candidate, disruption_pass: DisruptionPass) -> CandidateAcceptance:
        """Accept drifted nodes of static pools that act on drift and are not backing off."""
        if not is_static(candidate.pool):  # the other drift method explains it
            return CandidateAcceptance(accepted=False)
        return accept_drifted(candidate, disruption_pass)

    def acceptance_inputs(self, disruption_pass: DisruptionPass) -> object:
        """Return None: few nodes are of static pools."""
        del disruption_pass
        return None

    def plan_steps(
        self,
        disruption_pass: DisruptionPass,
        candidates: tuple[Candidate, ...],
        budgets: PoolBudgets,
    ) -> WorkSteps[MethodPlan]:
        """Return one command for each node, as many as budget and node limit of its pool allow."""
        yield 1
        by_pool: dict[str, list[Candidate]] = {}
        for candidate in candidates:
            by_pool.setdefault(candidate.pool.name, []).append(candidate)
        claims = static_claims_by_pool(disruption_pass.snapshot, frozenset(by_pool))
        plan = MethodPlan()
        for name, drifted in sorted(by_pool.items()):
            budget = budgets.get(name)
            allowed = 0 if budget is None else budget.remaining
            outcome = _pool_commands(
                self,
                disruption_pass,
                sorted(drifted, key=drift_order),
                claims.get(name, StaticPoolClaims()),
                allowed,
            )
            plan = MethodPlan(
                commands=(*plan.commands, *outcome.commands),
                constrained=plan.constrained or outcome.constrained,
                notices=(*plan.notices, *outcome.notices),
            )
            yield 1 + len(outcome.commands)
        return plan

    def validate_steps(
        self, command: Command, disruption_pass: DisruptionPass
    ) -> WorkSteps[ValidationVerdict]:
        """Return the command unchanged: drift is not validated again."""
        del disruption_pass
        yield 0
        return ValidationVerdict(command=command)


def _pool_commands(
    method: StaticDriftMethod,
    disruption_pass: DisruptionPass,
    drifted: list[Candidate],
    claims: StaticPoolClaims,
    allowed: int,
) -> MethodPlan:
    """Return the commands for one pool; nothing while a reduction of its replicas is in progress."""
    pool = drifted[0].pool
    chosen = drifted[:allowed]
    constrained = len(chosen) < len(drifted)
    if not chosen:
        return MethodPlan(constrained=constrained)
    if len(claims.active) + len(claims.pending) > (pool.spec.replicas or 0):
        return _blocked(
            chosen, "the nodepool has more nodes than replicas", constrained=constrained
        )
    free = free_nodes(pool, claims)
    if free == 0:
        text = f"limits.nodes={node_limit(pool)} leaves no room for a replacement"
        return _blocked(chosen, text, constrained=constrained)
    planned = plan_static_claim(
        disruption_pass.snapshot,
        pool,
        aliases=disruption_pass.options.problem_settings.aliases,
        well_known=disruption_pass.options.problem_settings.well_known,
        solve=disruption_pass.options.solve,
    )
    if planned is None:
        return _blocked(
            chosen, "no instance type is available for a replacement", constrained=constrained
        )
    return MethodPlan(
        commands=tuple(
            _command(method, disruption_pass, candidate, planned, number)
            for number, candidate in enumerate(chosen[:free])
        ),
        constrained=constrained,
    )


def _blocked(candidates: list[Candidate], why: str, *, constrained: bool) -> MethodPlan:
    notices = tuple(
        notice
        for candidate in candidates
        for notice in state_node_notices(
            candidate.state_node,
            reason="DisruptionBlocked",
            message=f"Drifted node is not replaced: {why}",
        )
    )
    return MethodPlan(constrained=constrained, notices=notices)


def _command(
    method: StaticDriftMethod,
    disruption_pass: DisruptionPass,
    candidate: Candidate,
    planned: PlannedNodeClaim,
    number: int,
) -> Command:
    before = disruption_pass.prices.cost_per_hour((candidate,))
    command_id = disruption_pass.command_id
    return Command(
        id=command_id if number == 0 else f"{command_id}-{number}",
        cause=disruption_pass.cause,
        method=method.name,
        reason=method.reason,
        candidates=(candidate,),
        replacements=(planned,),
        created=disruption_pass.now,
        evidence=command_evidence(
            disruption_pass.snapshot.version,
            (candidate,),
            savings_per_hour=before - planned.cheapest.price_per_hour,
            currency=disruption_pass.prices.currency,
            spared_by_budget=(),
        ),
    )
