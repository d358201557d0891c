"""Shares the rules of the consolidation methods: acceptance and moves.

A move removes some candidates and launches something cheaper in their place, or nothing. The
simulation answers whether their pods find places; this module decides what replacements may cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from math import fsum
from typing import TYPE_CHECKING, Final, NamedTuple

from karpenter_core.api.conditions import is_true
from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, SPOT, ZONE
from karpenter_core.api.nodeclaim import CONSOLIDATABLE
from karpenter_core.api.prices import amount_text
from karpenter_core.disruption.acceptance import CandidateAcceptance, DeclineReason
from karpenter_core.disruption.blocked_nodes import state_node_notices
from karpenter_core.disruption.candidates import Candidate
from karpenter_core.disruption.command import Command, command_evidence
from karpenter_core.disruption.pricing import ReplacementRefusedError
from karpenter_core.disruption.savings_floors import minimum_savings
from karpenter_core.disruption.savings_order import SavingsOrder
from karpenter_core.scheduling.whatif.what_if import WhatIfOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from karpenter_core.api.notices import Notice
    from karpenter_core.disruption.budgets import PoolBudget
    from karpenter_core.disruption.method import DisruptionMethod, DisruptionPass
    from karpenter_core.disruption.pricing import NodePrices
    from karpenter_core.scheduling.problem import PlannedNodeClaim
    from karpenter_core.scheduling.whatif.what_if import WhatIfVerdict

__all__ = [
    "UNCONSOLIDATABLE_WINDOW",
    "DisruptionMove",
    "MoveRefusal",
    "PriceLimits",
    "accept_for_consolidation",
    "accepted_candidates",
    "candidate_notices",
    "command_for_move",
    "consolidation_disabled_message",
    "evaluate_move",
    "individually_within_budget",
    "price_limits",
    "rejection_notices",
    "sort_by_savings",
    "split_by_budgets",
    "unconsolidatable_notices",
    "with_new_move",
]

UNCONSOLIDATABLE_WINDOW: Final = timedelta(minutes=15)  # upstream default
_WHEN_EMPTY: Final = "WhenEmpty"
_TOO_EXPENSIVE: Final = "Can't replace with a cheaper node"
_ROUNDING: Final = 1e-9
"""Tolerance in price per hour: floors are shares, and sums of prices are not exact."""
_SPOT_FLEXIBILITY: Final = 15
"""Cheaper types that replacing one spot node by another needs, and that are sent to launch.

The launched instance is then among the cheapest fifteen, so a chain of replacements ends
(upstream)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DisruptionMove:
    """Candidates that can be removed, and their replacements."""

    candidates: tuple[Candidate, ...]
    verdict: WhatIfVerdict
    replacements: tuple[PlannedNodeClaim, ...]
    savings_per_hour: float
    """With each replacement priced at its cheapest type."""

    @property
    def disruption_cost(self) -> float:
        """Disruption cost of moving its pods."""
        return fsum(candidate.reschedule_cost for candidate in self.candidates)


@dataclass(frozen=True, slots=True)
class MoveRefusal:
    """The message, for Events, that says why candidates cannot be removed; empty for none."""

    message: str


# -- acceptance ------------------------------------------------------------------------------------


def accept_for_consolidation(candidate: Candidate) -> CandidateAcceptance:
    """Accept consolidatable nodes of pools that consolidate nodes in use, or say why not."""
    pool = candidate.pool
    if pool.spec.replicas is not None:
        return CandidateAcceptance(accepted=False, decline_reason=DeclineReason.STATIC)
    labels = candidate.state_node.labels
    declined, problem = DeclineReason.UNKNOWN_OFFERING, ""
    if candidate.instance_type is None:
        problem = f'Instance Type "{labels.get(INSTANCE_TYPE, "")}" not found'
    elif CAPACITY_TYPE not in labels:
        problem = f'Node does not have label "{CAPACITY_TYPE}"'
    elif ZONE not in labels:
        problem = f'Node does not have label "{ZONE}"'
    elif pool.spec.disruption.consolidate_after.timedelta is None:
        declined, problem = DeclineReason.DISABLED, consolidation_disabled_message(pool.name)
    elif candidate.is_empty and not candidate.hosts_virtual_pods:
        return CandidateAcceptance(accepted=False, decline_reason=DeclineReason.EMPTY)
    elif pool.spec.disruption.consolidation_policy == _WHEN_EMPTY:
        declined = DeclineReason.POLICY
        problem = (
            f'NodePool "{pool.name}" has consolidation policy WhenEmpty, but node is not empty'
        )
    if problem:
        return CandidateAcceptance(
            accepted=False,
            decline_reason=declined,
            notices=unconsolidatable_notices(candidate, problem),
        )
    if not is_true(candidate.claim.status.conditions, CONSOLIDATABLE):
        return CandidateAcceptance(accepted=False, decline_reason=DeclineReason.UNSETTLED)
    return CandidateAcceptance(accepted=True)


def consolidation_disabled_message(pool: str) -> str:
    """Return the message that consolidation is disabled in a pool."""
    return f'NodePool "{pool}" has consolidation disabled'


def unconsolidatable_notices(candidate: Candidate, message: str) -> tuple[Notice, ...]:
    """Return Events on a node and its claim that say why it is not consolidated."""
    return state_node_notices(
        candidate.state_node,
        reason="Unconsolidatable",
        message=message,
        window=UNCONSOLIDATABLE_WINDOW,
    )


def sort_by_savings(
    candidates: Sequence[Candidate], prices: NodePrices, memory: SavingsOrder | None = None
) -> list[Candidate]:
    """Sort by savings per reschedule cost, best first; `memory` holds the order of earlier passes."""
    return (memory or SavingsOrder()).sort(candidates, prices)


def split_by_budgets(
    candidates: Sequence[Candidate], budgets: Mapping[str, PoolBudget]
) -> tuple[list[Candidate], list[Candidate]]:
    """Split candidates, in their order, into those that pool budgets allow and the rest."""
    remaining_by_pool = {name: budget.remaining for name, budget in budgets.items()}
    chosen: list[Candidate] = []
    spared: list[Candidate] = []
    for candidate in candidates:
        pool = candidate.pool.name
        if remaining_by_pool.get(pool, 0) > 0:
            remaining_by_pool[pool] -= 1
            chosen.append(candidate)
        else:
            spared.append(candidate)
    return chosen, spared


def individually_within_budget(
    candidates: Sequence[Candidate], budgets: Mapping[str, PoolBudget]
) -> list[Candidate]:
    """Return the candidates whose pool's budget allows one more disruption."""
    open_pools = {name for name, budget in budgets.items() if budget.remaining > 0}
    pools = {id(candidate.pool): candidate.pool for candidate in candidates}
    allowed = {key for key, pool in pools.items() if pool.name in open_pools}
    return [candidate for candidate in candidates if id(candidate.pool) in allowed]


# -- moves -----------------------------------------------------------------------------------------


class PriceLimits(NamedTuple):
    """Prices per hour of candidates, in the reporting currency."""

    price: float
    """The price that is saved without them."""
    least: float
    """The savings floor of their pools."""
    below: float
    """The price that replacements must stay below."""


def price_limits(disruption_pass: DisruptionPass, candidates: Sequence[Candidate]) -> PriceLimits:
    """Return what candidates cost, and what their replacements may cost."""
    price = disruption_pass.prices.cost_per_hour(candidates)
    least = minimum_savings(candidates, disruption_pass.prices, now=disruption_pass.now)
    # Exactly the floor is enough; a saving of nothing never is.
    below = min(price, price - least + _ROUNDING) if least else price
    return PriceLimits(price, least, below)


def evaluate_move(
    disruption_pass: DisruptionPass, candidates: Sequence[Candidate], *, max_claims: int = 1
) -> DisruptionMove | MoveRefusal:
    """Return the move that removes all candidates at once, or why it is refused.

    Replacements cost less than the candidates, by at least the savings floor of their pools,
    whichever of their listed types is launched.
    """
    chosen = tuple(candidates)
    price, least, below = price_limits(disruption_pass, chosen)
    floor = _floor_text(least, disruption_pass.prices)
    verdict = disruption_pass.simulation.evaluate(chosen, max_claims=max_claims, below_price=below)
    if verdict.outcome is WhatIfOutcome.LEFT:
        text = disruption_pass.simulation.unplaced_pods(verdict)
        return MoveRefusal(text[:1].upper() + text[1:])
    if verdict.outcome is WhatIfOutcome.TOO_MANY:
        return MoveRefusal(f"Can't remove without creating more than {max_claims} candidates")
    unrated = disruption_pass.prices.missing_rates_message(
        candidate.price.currency for candidate in chosen
    )
    if unrated and (verdict.outcome is WhatIfOutcome.TOO_DEAR or verdict.claims):
        return MoveRefusal(f"Can't compare prices: {unrated} (--exchange-rates)")
    if verdict.outcome is WhatIfOutcome.TOO_DEAR:
        return MoveRefusal(_TOO_EXPENSIVE + floor)
    if verdict.fits and price < least - _ROUNDING:
        return MoveRefusal("Can't save enough by removing" + floor)
    unready = disruption_pass.simulation.unready_destination(verdict)
    if unready:
        return MoveRefusal(unready[:1].upper() + unready[1:])
    crowding = disruption_pass.expendable_moves.taking_buffer_room(chosen, verdict)
    if crowding:
        return MoveRefusal(f"{crowding} expendable pod(s) would take the room of a CapacityBuffer")
    lost = disruption_pass.buffer_room.lost_by(verdict)
    if lost:
        return MoveRefusal(f"Its pods would take the room of {lost} pod(s) of a CapacityBuffer")
    try:
        replacements = _replacements(disruption_pass, chosen, verdict, below)
    except ReplacementRefusedError as refused:
        return MoveRefusal(str(refused) + floor)
    saved = price - fsum(planned.cheapest.price_per_hour for planned in replacements)
    return DisruptionMove(
        candidates=chosen, verdict=verdict, replacements=replacements, savings_per_hour=saved
    )


def _floor_text(least: float, prices: NodePrices) -> str:
    if not least:
        return ""
    return f" (savings floor: {amount_text(least, prices.currency, digits=4)} per hour)"


def _replacements(
    disruption_pass: DisruptionPass,
    candidates: tuple[Candidate, ...],
    verdict: WhatIfVerdict,
    below: float,
) -> tuple[PlannedNodeClaim, ...]:
    """Narrow the simulation's claims down to types that cost less in any case.

    Several replacements divide the price limit in proportion to their cheapest prices.
    """
    claims = verdict.claims
    total = fsum(planned.cheapest.price_per_hour for planned in claims)
    all_spot = all(candidate.capacity_type == SPOT for candidate in candidates)
    replacements: list[PlannedNodeClaim] = []
    for planned in claims:
        if planned.min_values_relaxed:
            raise ReplacementRefusedError("Can't replace without relaxing minValues")
        ceiling = (
            below
            if len(claims) == 1 or total <= 0
            else below * (planned.cheapest.price_per_hour / total)
        )
        if all_spot and disruption_pass.prices.is_spot_possible(planned):
            # Replacing n nodes by n could go on for ever, each time for a small saving.
            endless = len(claims) >= len(candidates)
            narrowed = _spot_for_spot(disruption_pass, planned, ceiling, is_flexible=endless)
        else:
            narrowed = disruption_pass.prices.limited_by_price(planned, below_price=ceiling)
        if len(candidates) > 1 and len(claims) == 1:
            narrowed = disruption_pass.prices.limited_by_ceilings(
                narrowed, _ceilings(disruption_pass, candidates)
            )
        replacements.append(narrowed)
    return tuple(replacements)


def _spot_for_spot(
    disruption_pass: DisruptionPass, planned: PlannedNodeClaim, ceiling: float, *, is_flexible: bool
) -> PlannedNodeClaim:
    if not disruption_pass.options.spot_to_spot:
        raise ReplacementRefusedError(
            "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
        )
    narrowed = disruption_pass.prices.limited_by_price(planned, below_price=ceiling, only_spot=True)
    if not is_flexible:
        return narrowed
    count = len(narrowed.instance_types)
    if count < _SPOT_FLEXIBILITY:
        raise ReplacementRefusedError(
            f"SpotToSpotConsolidation requires {_SPOT_FLEXIBILITY} cheaper instance type options"
            f" than the current candidate to consolidate, got {count}"
        )
    return disruption_pass.prices.limited_to_cheapest(narrowed, _SPOT_FLEXIBILITY)


def _ceilings(disruption_pass: DisruptionPass, candidates: Sequence[Candidate]) -> dict[str, float]:
    """Return the lowest current price of each type among the candidates."""
    lowest: dict[str, float] = {}
    for candidate in candidates:
        if candidate.instance_type is not None:
            price = disruption_pass.prices.convert(candidate.price)
            name = candidate.instance_type.name
            lowest[name] = min(price, lowest.get(name, price))
    return lowest


# -- commands --------------------------------------------------------------------------------------


def command_for_move(
    disruption_pass: DisruptionPass,
    method: DisruptionMethod,
    move: DisruptionMove,
    *,
    spared_by_budget: Sequence[Candidate] = (),
    alternatives: Mapping[str, float] | None = None,
) -> Command:
    """Return the command that executes a move."""
    return Command(
        id=disruption_pass.command_id,
        cause=disruption_pass.cause,
        method=method.name,
        reason=method.reason,
        candidates=move.candidates,
        replacements=move.replacements,
        moves=move.verdict.real_moves,
        created=disruption_pass.now,
        evidence=command_evidence(
            disruption_pass.snapshot.version,
            move.candidates,
            savings_per_hour=move.savings_per_hour,
            currency=disruption_pass.prices.currency,
            spared_by_budget=tuple(candidate.name for candidate in spared_by_budget),
            alternatives=alternatives,
        ),
    )


def accepted_candidates(
    method: DisruptionMethod, command: Command, disruption_pass: DisruptionPass
) -> list[Candidate]:
    """Return the command's candidates that its method still accepts, in their present state."""
    uids = {candidate.claim.uid for candidate in command.candidates}
    candidates_by_uid = {
        item.claim.uid: item
        for item in disruption_pass.candidates(method.disruption_class).candidates
        if item.claim.uid in uids and method.accept(item, disruption_pass).accepted
    }
    return [
        candidates_by_uid[c.claim.uid]
        for c in command.candidates
        if c.claim.uid in candidates_by_uid
    ]


def with_new_move(
    command: Command, move: DisruptionMove, disruption_pass: DisruptionPass
) -> Command:
    """Return the command with the move that a later pass found instead."""
    return replace(
        command,
        candidates=move.candidates,
        replacements=move.replacements,
        moves=move.verdict.real_moves,
        evidence=command_evidence(
            disruption_pass.snapshot.version,
            move.candidates,
            savings_per_hour=move.savings_per_hour,
            currency=disruption_pass.prices.currency,
            spared_by_budget=command.evidence.spared_by_budget,
            alternatives=command.evidence.alternatives,
        ),
    )


def candidate_notices(command: Command) -> tuple[Notice, ...]:
    """Return Events on every node of a command that it is about to be consolidated."""
    return _command_notices(command, "ConsolidationCandidate", "Consolidation candidate: {}")


def rejection_notices(command: Command, reason: str) -> tuple[Notice, ...]:
    """Return Events on every node of a command that it was given up, and why."""
    return _command_notices(
        command, "ConsolidationRejected", f"Consolidation rejected: {{}}, reason: {reason}"
    )


def _command_notices(command: Command, reason: str, pattern: str) -> tuple[Notice, ...]:
    savings = f" ({command.evidence.savings_text})"
    notices: list[Notice] = []
    for candidate in command.candidates:
        text = pattern.format(command.describe_for(candidate))
        notices += state_node_notices(
            candidate.state_node, reason=reason, message=text + savings, dedupe=(text,)
        )
    return tuple(notices)
