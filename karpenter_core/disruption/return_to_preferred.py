"""Replaces nodes by the capacity type or NodePool that is preferred.

While spot or reserved capacity is unavailable, or the preferred pool is full, pods get other
nodes. These need not cost more, and where they do, the pool may not consolidate; so a pool enables
the return of its nodes separately, with a minimum age and a budget (`api.returning`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CAPACITY_TYPES, SPOT
from karpenter_core.api.returning import return_rule
from karpenter_core.disruption.acceptance import CandidateAcceptance, DeclineReason
from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.disruption.consolidation import (
    DisruptionMove,
    accepted_candidates,
    command_for_move,
    with_new_move,
)
from karpenter_core.disruption.method import MethodPlan
from karpenter_core.disruption.pricing import ReplacementRefusedError
from karpenter_core.disruption.validation import CommandRejection, ValidationVerdict

if TYPE_CHECKING:
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import DisruptionPass, PoolBudgets, WorkSteps
    from karpenter_core.scheduling.problem import PlannedNodeClaim

__all__ = ["ReturnToPreferred"]

UNITS_PER_QUESTION: Final = 10
_LAST: Final = len(CAPACITY_TYPES)


@dataclass(frozen=True, slots=True)
class ReturnToPreferred:
    """Replaces the oldest node for which something preferred is available."""

    name: str = "return"
    reason: DisruptionReason = DisruptionReason.UNDERUTILIZED
    consolidation_type: str = "return"
    disruption_class: DisruptionClass = DisruptionClass.GRACEFUL
    is_validated: bool = True
    skips_unchanged_state: bool = True

    def accept(self, candidate: Candidate, disruption_pass: DisruptionPass) -> CandidateAcceptance:
        """Accept nodes in use that are old enough, of dynamic pools that enable the return."""
        rule = return_rule(candidate.pool)
        created = candidate.claim.metadata.creation_timestamp
        declined = None
        if candidate.pool.spec.replicas is not None:
            declined = DeclineReason.STATIC
        elif rule is None:
            declined = DeclineReason.DISABLED
        elif candidate.is_empty and not candidate.hosts_virtual_pods:
            declined = DeclineReason.EMPTY
        elif created is None or disruption_pass.now - created < rule.after:
            declined = DeclineReason.YOUNG
        elif not self._may_improve(candidate, disruption_pass):
            declined = DeclineReason.FIRST_CHOICE
        return CandidateAcceptance(accepted=declined is None, decline_reason=declined)

    def acceptance_inputs(self, disruption_pass: DisruptionPass) -> object:
        """Return None if a pool enables the return: it then depends on time and prices."""
        enabled = any(map(return_rule, disruption_pass.snapshot.node_pools.values()))
        return None if enabled else ()

    def plan_steps(
        self,
        disruption_pass: DisruptionPass,
        candidates: tuple[Candidate, ...],
        budgets: PoolBudgets,
    ) -> WorkSteps[MethodPlan]:
        """Return the oldest node whose pods fit on a preferred replacement."""
        allowed = [c for c in candidates if _remaining_disruptions(c, budgets) > 0]
        constrained = len(allowed) < len(candidates)
        if not allowed:
            return MethodPlan(constrained=constrained)
        yield from disruption_pass.simulation.prepare_steps(avoid_unsettled=False)
        for candidate in sorted(allowed, key=_age):
            if disruption_pass.time_limit.is_reached:
                return MethodPlan(constrained=constrained, is_cut_short=True)
            move = _preferred_move(disruption_pass, candidate)
            yield UNITS_PER_QUESTION
            if move is not None:
                command = command_for_move(disruption_pass, self, move)
                return MethodPlan(commands=(command,), constrained=constrained)
        return MethodPlan(constrained=constrained)

    def validate_steps(
        self, command: Command, disruption_pass: DisruptionPass
    ) -> WorkSteps[ValidationVerdict]:
        """Keep the command while its node is accepted, within budget and replaceable."""
        accepted = accepted_candidates(self, command, disruption_pass)
        if not accepted:
            return ValidationVerdict(rejection=CommandRejection.CHURN, failed_candidates=1)
        if _remaining_disruptions(accepted[0], disruption_pass.budgets(self.reason)) <= 0:
            return ValidationVerdict(rejection=CommandRejection.BUDGET, failed_candidates=1)
        yield from disruption_pass.simulation.prepare_steps(avoid_unsettled=False)
        move = _preferred_move(disruption_pass, accepted[0])
        if move is None:
            return ValidationVerdict(rejection=CommandRejection.SCHEDULING, failed_candidates=1)
        return ValidationVerdict(command=with_new_move(command, move, disruption_pass))

    @staticmethod
    def _may_improve(candidate: Candidate, disruption_pass: DisruptionPass) -> bool:
        """Tell whether some capacity type or pool is preferred to the candidate's."""
        return candidate.capacity_type != CAPACITY_TYPES[0] or any(
            _weight(pool.spec.weight) > _weight(candidate.pool.spec.weight)
            for pool in disruption_pass.snapshot.node_pools.values()
        )


def _preferred_move(disruption_pass: DisruptionPass, candidate: Candidate) -> DisruptionMove | None:
    """Return the move that replaces a node by a preferred one; None when there is none."""
    verdict = disruption_pass.simulation.evaluate((candidate,), max_claims=1)
    if (
        not verdict.is_possible
        or not verdict.claims
        or disruption_pass.simulation.unready_destination(verdict)
    ):
        return None
    (planned,) = verdict.claims
    preferred = _preferred_replacement(disruption_pass, candidate, planned)
    if preferred is None:
        return None
    price = disruption_pass.prices.cost_per_hour((candidate,))
    return DisruptionMove(
        candidates=(candidate,),
        verdict=verdict,
        replacements=(preferred,),
        savings_per_hour=price - preferred.cheapest.price_per_hour,
    )


def _preferred_replacement(
    disruption_pass: DisruptionPass, candidate: Candidate, planned: PlannedNodeClaim
) -> PlannedNodeClaim | None:
    """Return the replacement if it is certainly preferred to the candidate, else None."""
    pool = disruption_pass.snapshot.node_pools.get(planned.pool)
    ours, theirs = candidate.pool.spec.weight, None if pool is None else pool.spec.weight
    if _weight(theirs) > _weight(ours):
        return planned
    if _weight(theirs) < _weight(ours) or _rank(planned.cheapest.capacity_type) >= _rank(
        candidate.capacity_type
    ):
        return None
    if planned.cheapest.capacity_type != SPOT:
        return planned
    try:
        return disruption_pass.prices.limited_by_price(planned, below_price=inf, only_spot=True)
    except ReplacementRefusedError:
        return None


def _remaining_disruptions(candidate: Candidate, budgets: PoolBudgets) -> int:
    """Return how many nodes of a pool may still be removed, by the return's and pool's budgets."""
    rule, budget = return_rule(candidate.pool), budgets.get(candidate.pool.name)
    if rule is None or budget is None:
        return 0
    return min(budget.remaining, rule.allowed(budget.total) - budget.consuming)


def _age(candidate: Candidate) -> tuple[float, str]:
    created = candidate.claim.metadata.creation_timestamp
    return (0.0 if created is None else created.timestamp(), candidate.name)


def _rank(capacity_type: str) -> int:
    return CAPACITY_TYPES.index(capacity_type) if capacity_type in CAPACITY_TYPES else _LAST


def _weight(weight: int | None) -> int:
    return weight or 0
