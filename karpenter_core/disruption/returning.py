"""Return: machines that were a second choice go back to the first one when it can be had again.

When spot or reserved capacity is out of stock, or the pool that is preferred is full, pods get
what there is. That need not be dearer, and where it is, a pool may not consolidate; so a pool says
by itself that its nodes are to return, after what age and how many at once (`api.returning`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import CAPACITY_TYPES, SPOT
from karpenter_core.api.returning import return_rule
from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.disruption.consolidation import Move, command_of, renewed, still_accepted
from karpenter_core.disruption.method import Acceptance, Declined, MethodPlan
from karpenter_core.disruption.pricing import Refused
from karpenter_core.disruption.validation import Rejection, Verdict

if TYPE_CHECKING:
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import Budgets, Pass, Steps
    from karpenter_core.scheduling.problem import PlannedNodeClaim

__all__ = ["Return"]

UNITS_PER_QUESTION: Final = 10
_LAST: Final = len(CAPACITY_TYPES)


@dataclass(frozen=True, slots=True)
class Return:
    """Replace the oldest second choice by a first one."""

    name: str = "return"
    reason: DisruptionReason = DisruptionReason.UNDERUTILIZED
    consolidation_type: str = "return"
    disruption_class: DisruptionClass = DisruptionClass.GRACEFUL
    is_validated: bool = True
    remembers: bool = True

    def accept(self, candidate: Candidate, look: Pass) -> Acceptance:
        """Take machines in use that are old enough, of dynamic pools that want it."""
        rule = return_rule(candidate.pool)
        created = candidate.claim.metadata.creation_timestamp
        declined = None
        if candidate.pool.spec.replicas is not None:
            declined = Declined.STATIC
        elif rule is None:
            declined = Declined.DISABLED
        elif candidate.is_empty:
            declined = Declined.EMPTY
        elif created is None or look.now - created < rule.after:
            declined = Declined.YOUNG
        elif not self._may_improve(candidate, look):
            declined = Declined.FIRST_CHOICE
        return Acceptance(accepted=declined is None, declined=declined)

    def plan_steps(
        self, look: Pass, candidates: tuple[Candidate, ...], budgets: Budgets
    ) -> Steps[MethodPlan]:
        """Return the oldest machine for whose pods the first choice can be bought."""
        allowed = [c for c in candidates if _room(c, budgets) > 0]
        constrained = len(allowed) < len(candidates)
        if not allowed:
            return MethodPlan(constrained=constrained)
        yield from look.simulation.prepare_steps(peaceful=False)
        for candidate in sorted(allowed, key=_age):
            if look.effort.is_spent:
                return MethodPlan(constrained=constrained, is_cut_short=True)
            move = _move(look, candidate)
            yield UNITS_PER_QUESTION
            if move is not None:
                command = command_of(look, self, move)
                return MethodPlan(commands=(command,), constrained=constrained)
        return MethodPlan(constrained=constrained)

    def validate_steps(self, command: Command, look: Pass) -> Steps[Verdict]:
        """Hold on while the machine is a candidate within budget whose replacement can be had."""
        found = still_accepted(self, command, look)
        if not found:
            return Verdict(rejection=Rejection.CHURN, failed=1)
        if _room(found[0], look.budgets(self.reason)) <= 0:
            return Verdict(rejection=Rejection.BUDGET, failed=1)
        yield from look.simulation.prepare_steps(peaceful=False)
        move = _move(look, found[0])
        if move is None:
            return Verdict(rejection=Rejection.SCHEDULING, failed=1)
        return Verdict(command=renewed(command, move, look))

    @staticmethod
    def _may_improve(candidate: Candidate, look: Pass) -> bool:
        """Tell whether anything is preferred to this machine at all."""
        return candidate.capacity_type != CAPACITY_TYPES[0] or any(
            _weight(pool.spec.weight) > _weight(candidate.pool.spec.weight)
            for pool in look.snapshot.node_pools.values()
        )


def _move(look: Pass, candidate: Candidate) -> Move | None:
    """Return what replaces a machine by something preferred to it, if that can be had."""
    verdict = look.simulation.evaluate((candidate,), most_claims=1)
    if (
        not verdict.is_possible
        or not verdict.claims
        or look.simulation.unready_destination(verdict)
    ):
        return None
    (planned,) = verdict.claims
    preferred = _preferred(look, candidate, planned)
    if preferred is None:
        return None
    price = look.prices.of((candidate,))
    return Move(
        candidates=(candidate,),
        verdict=verdict,
        replacements=(preferred,),
        savings_per_hour=price - preferred.cheapest.price_per_hour,
    )


def _preferred(
    look: Pass, candidate: Candidate, planned: PlannedNodeClaim
) -> PlannedNodeClaim | None:
    """Return a replacement that is surely preferred to a machine; None when it may not be."""
    pool = look.snapshot.node_pools.get(planned.pool)
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
        return look.prices.narrowed(planned, below_price=inf, only_spot=True)
    except Refused:
        return None


def _room(candidate: Candidate, budgets: Budgets) -> int:
    """Return how many more nodes of the candidate's pool may go, by its own budget and the pool's."""
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
