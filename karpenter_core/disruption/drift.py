"""Drift: machines that are no longer what their pool or its class asks for are replaced.

Whatever the replacement costs; and where its class of machine has a grace period, whatever its
pods wish. One machine at a time, the oldest drift first, and before these those without pods that
would have to move.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from karpenter_core.api.conditions import find, is_true
from karpenter_core.api.nodeclaim import DRIFTED
from karpenter_core.api.nodepool import is_detect_only
from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.candidates import DisruptionClass, machine_notices
from karpenter_core.disruption.consolidation import Move, command_of, each_within_budget
from karpenter_core.disruption.method import Acceptance, Declined, MethodPlan
from karpenter_core.disruption.simulation import leftover_message
from karpenter_core.disruption.validation import Verdict

if TYPE_CHECKING:
    from karpenter_core.api.notices import Notice
    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.disruption.command import Command
    from karpenter_core.disruption.method import Budgets, Pass, Steps

__all__ = ["Drift"]


@dataclass(frozen=True, slots=True)
class Drift:
    """Replace the machine that drifted first."""

    name: str = "drift"
    reason: DisruptionReason = DisruptionReason.DRIFTED
    consolidation_type: str = ""
    disruption_class: DisruptionClass = DisruptionClass.EVENTUAL
    is_validated: bool = False
    remembers: bool = False

    def accept(self, candidate: Candidate, look: Pass) -> Acceptance:
        """Take drifted machines of dynamic pools that are to be disrupted for it."""
        pool = candidate.pool
        declined = None
        if pool.spec.replicas is not None:
            declined = Declined.STATIC
        elif not is_true(candidate.claim.status.conditions, DRIFTED):
            declined = Declined.NOT_DRIFTED
        elif is_detect_only(pool):
            declined = Declined.DETECT_ONLY
        elif pool.name in look.resting:
            declined = Declined.RESTING
        return Acceptance(accepted=declined is None, declined=declined)

    def plan_steps(
        self, look: Pass, candidates: tuple[Candidate, ...], budgets: Budgets
    ) -> Steps[MethodPlan]:
        """Return the first machine whose pods all find a place, on nodes or on new ones."""
        allowed = each_within_budget(candidates, budgets)
        constrained = len(allowed) < len(candidates)
        if not allowed:
            return MethodPlan(constrained=constrained)
        yield from look.simulation.prepare_steps(peaceful=False)
        notices: list[Notice] = []
        for candidate in sorted(allowed, key=_order):
            if look.effort.is_spent:
                return MethodPlan(
                    constrained=constrained, is_cut_short=True, notices=tuple(notices)
                )
            verdict = look.simulation.evaluate((candidate,))
            yield 10
            unready = look.simulation.unready_destination(verdict)
            if not verdict.is_possible or unready:
                text = unready or leftover_message(verdict)
                notices += machine_notices(
                    candidate.machine, reason="DisruptionBlocked", message=text
                )
                continue
            move = Move(
                candidates=(candidate,),
                verdict=verdict,
                replacements=verdict.claims,
                savings_per_hour=look.prices.of((candidate,)) - verdict.cost_per_hour,
            )
            return MethodPlan(
                commands=(command_of(look, self, move),),
                constrained=constrained,
                notices=tuple(notices),
            )
        return MethodPlan(constrained=constrained, notices=tuple(notices))

    def validate_steps(self, command: Command, look: Pass) -> Steps[Verdict]:
        """Return the command: it is carried out without a second look."""
        del look
        yield 0
        return Verdict(command=command)


def _order(candidate: Candidate) -> tuple[bool, float, str]:
    condition = find(candidate.claim.status.conditions, DRIFTED)
    since = None if condition is None else condition.last_transition_time
    return (
        bool(candidate.reschedulable_pods),
        0.0 if since is None else since.timestamp(),
        candidate.name,
    )
